"""Murmur3 of keys as Spark expressions, without a Python worker; it equals the Arrow UDF of ``columns``.

Spark's ``hash`` is Murmur3 (x86, 32 bits) with two differences from Pulsar's, which are undone:

- Its seed is 42, not 0. So the key is hashed after the number whose hash from 42 is 0.
- It mixes each byte after the last whole word like a word. So keys are padded with zeros. As every step is a bijection,
  the hash is taken back to the last word, and finished with the key's own length.

32-bit products are cut from 64-bit ones with a signed factor, which cannot overflow in ANSI mode."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pulsar_spark.protocol.keys.sticky_key import MAX_HASH

_UINT32 = 0xFFFFFFFF
_FIRST_FACTOR, _SECOND_FACTOR = 0xCC9E2D51, 0x1B873593
_ADDEND = 0xE6546B64
_LAST_FACTORS = 0x85EBCA6B, 0xC2B2AE35
_SPARK_SEED = 42


def hash_keys(messages: DataFrame, key: Column, name: str) -> DataFrame:
    """*messages* with the 31-bit hash of the bytes *key* in the int column *name*, null for a null key."""
    names = (bytes_, size, finished, state) = [f"{name}_{part}" for part in ("bytes", "size", "finished", "state")]
    padded_size = f"(({size} + 3) & ~3)"
    padded = f"if({size} = {padded_size}, {bytes_}, rpad({bytes_}, {padded_size}, X'00'))"
    steps = {size: f"octet_length({bytes_})", finished: _unsigned(f"cast(hash({_BEFORE_KEY}, {padded}) as bigint)")}
    taken_back = (
        _times(_folded(finished, 16), _inverse(_LAST_FACTORS[1])),
        _times(_folded(state, 13, 26), _inverse(_LAST_FACTORS[0])),
        _unsigned(f"({_folded(state, 16)} ^ cast({padded_size} as bigint)) - {_ADDEND}"),
        _times(state, _inverse(5)),
        f"{_unsigned(f'shiftright({state}, 13) | shiftleft({state}, 19)')} ^ cast({size} as bigint)",
        _times(_folded(state, 16), _LAST_FACTORS[0]),
        _times(_folded(state, 13), _LAST_FACTORS[1]),
    )
    hashed = messages.withColumn(bytes_, key)
    for column, step in (*steps.items(), *((state, step) for step in taken_back)):
        hashed = hashed.withColumn(column, F.expr(step))
    found = f"cast(if({size} = {padded_size}, {finished}, {_folded(state, 16)}) & {MAX_HASH} as int)"
    return hashed.withColumn(name, F.expr(found)).drop(*names)


def _unsigned(number: str) -> str:
    return f"(({number}) & {_UINT32})"


def _times(number: str, factor: int) -> str:
    return _unsigned(f"{number} * {_signed(factor)}L")


def _folded(number: str, *shifts: int) -> str:
    return "({})".format(" ^ ".join([number, *(f"shiftright({number}, {shift})" for shift in shifts)]))


def _signed(number: int) -> int:
    return (number & _UINT32) - ((number & 1 << 31) << 1)


def _inverse(factor: int) -> int:
    return pow(factor, -1, 1 << 32)


def _rotated_back(number: int, bits: int) -> int:
    return (number >> bits | number << 32 - bits) & _UINT32


def _hashed_to_zero() -> int:
    """The number whose Murmur3 hash from Spark's seed is 0, by reversing the steps."""
    mixed = _rotated_back((4 - _ADDEND) * _inverse(5) & _UINT32, 13) ^ _SPARK_SEED
    return _signed(_rotated_back(mixed * _inverse(_SECOND_FACTOR) & _UINT32, 15) * _inverse(_FIRST_FACTOR))


_BEFORE_KEY = _hashed_to_zero()
