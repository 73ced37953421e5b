"""The sticky-key hash in frames of messages, and their order by key.

It is the message's own hash, stored by the producer or computed from the key; that of a batch's entry may differ
(semantics 2.22)."""

from collections.abc import Collection

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pulsar_spark.protocol.keys.sticky_key import NONE_KEY
from pulsar_spark.table_specs import HASH, KEY_COLUMNS, MESSAGE_KEYS
from pulsar_spark.transforms.key_hashes import hash_keys

ORDER = (HASH, "partition", "position", "batch_index")
_BASE64 = r"\A[A-Za-z0-9+/]*={0,2}\z"
_COMPUTED = "computed_sticky_key_hash"


def with_hash(messages: DataFrame, key_columns: Collection[str] = KEY_COLUMNS) -> DataFrame:
    """*messages* with a hash in every row; they have the *key_columns* among :data:`KEY_COLUMNS`.

    A filter on the hash, pushed below this, would repeat each step of the computation. The last column is declared
    nondeterministic to prevent that."""
    computed = hash_keys(messages, _sticky_key(key_columns), _COMPUTED)
    once = F.coalesce(F.col(HASH), F.col(_COMPUTED), F.monotonically_increasing_id().cast("int"))
    return computed.withColumn(HASH, once).drop(_COMPUTED)


def by_key(messages: DataFrame) -> DataFrame:
    """All rows of a key in one task, in order; keys with one hash are interleaved."""
    return messages.repartition(HASH).sortWithinPartitions(*ORDER)


def _sticky_key(key_columns: Collection[str]) -> Column:
    """The key's bytes; null where the hash is stored."""
    key = F.lit(NONE_KEY)
    for name in MESSAGE_KEYS:
        if name in key_columns:
            is_coded = f"{name}_b64_encoded" in key_columns
            key = F.when(F.col(name).isNull(), key).otherwise(
                _bytes_of(name) if is_coded else F.col(name).cast("binary")
            )
    return F.when(F.col(HASH).isNull(), key)


def _bytes_of(name: str) -> Column:
    """A key's bytes, decoded if flagged; NONE_KEY for invalid base64, such as white space, which Spark's decoder
    skips."""
    key, is_base64 = F.col(name), F.coalesce(F.col(f"{name}_b64_encoded"), F.lit(False))
    text = key.cast("string")
    missing = F.when(F.contains(text, F.lit("=")), 0).otherwise(F.pmod(-F.length(text), F.lit(4)))
    padded = F.concat(text, F.repeat(F.lit("="), missing))
    is_whole = (F.length(padded) % 4 == 0) & padded.rlike(_BASE64)
    decoded = F.when(is_whole, F.unbase64(padded)).otherwise(F.lit(NONE_KEY))
    return F.when(is_base64, decoded).otherwise(key.cast("binary"))
