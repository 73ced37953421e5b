"""Sticky keys of entries and their hash, and the hashes by which producers route.

Rules: semantics 2.21-2.23 and 0.1. Boost's ``hash<std::string>`` depends on its version: this is the one in the
``pulsar`` package's wheels."""

import base64
import binascii

import mmh3

NONE_KEY = b"NONE_KEY"
DEFAULT_RANGE_SIZE = 65536
"""The slots of Key_Shared: the slot of a key is its hash modulo this."""

MAX_HASH = 0x7FFFFFFF
"""The highest hash of a key: 31 bits."""

_UINT32 = 0xFFFFFFFF
_UINT64 = 0xFFFFFFFFFFFFFFFF
_BOOST_STEP = 0x9E3779B97F4A7C15
_BOOST_FACTOR = 0xDF442D22CE4859B9


def sticky_key_hash(key: bytes) -> int:
    """Pulsar's Murmur3_32Hash (x86, 32 bits, seed 0) without the sign bit.

    >>> sticky_key_hash(b"Order-3459134")
    964695987
    """
    return mmh3.hash(key, 0, signed=False) & MAX_HASH


NO_KEY_HASH = sticky_key_hash(NONE_KEY)
"""The hash of an entry without a key."""


def sticky_key(
    partition_key: str | bytes | None,
    *,
    ordering_key: bytes | None = None,
    is_base64: bool | None = False,
    is_ordering_key_base64: bool | None = False,
) -> bytes:
    """The bytes that Key_Shared hashes: the ordering key, even an empty one, else the partition key (text or UTF-8),
    else ``NONE_KEY``.

    *is_base64* and *is_ordering_key_base64* mark keys in base64; invalid base64 counts as no key.

    >>> sticky_key("k"), sticky_key("k", ordering_key=b""), sticky_key(None), sticky_key("AQI=", is_base64=True)
    (b'k', b'', b'NONE_KEY', b'\\x01\\x02')
    """
    if ordering_key is not None:
        return bytes_of(ordering_key) if is_ordering_key_base64 else ordering_key
    if partition_key is None:
        return NONE_KEY
    text = partition_key.encode("utf-8") if isinstance(partition_key, str) else partition_key
    return bytes_of(text) if is_base64 else text


def bytes_of(text: bytes) -> bytes:
    """The bytes of a key in base64, with all its padding or none, as in Java; ``NONE_KEY`` if it is invalid."""
    padded = text if b"=" in text else text + b"=" * (-len(text) % 4)
    if len(padded) % 4 or padded.endswith(b"==="):  # Python would take b"AQID====", unlike Java
        return NONE_KEY
    try:
        return base64.b64decode(padded, validate=True)
    except binascii.Error:
        return NONE_KEY


def java_string_hash(key: str) -> int:
    """Java's ``String.hashCode`` with the sign bit cleared.

    >>> java_string_hash("key1")
    3288498
    """
    code, units = 0, key.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & _UINT32
    return code & MAX_HASH


def boost_hash(key: bytes) -> int:
    """Boost's 64-bit hash of a string, cut to 31 bits: the default routing hash of C++ and Python clients.

    >>> boost_hash(b"key-0") % 4, boost_hash(b"key-10") % 4
    (2, 3)
    """
    step = _folded_product(_BOOST_STEP)
    mixed = step ^ len(key)
    for start in range(0, len(key) - len(key) % 8 + 1, 8):  # the last part has 0 to 7 bytes
        step = (step + _BOOST_STEP) & _UINT64
        mixed ^= _folded_product(int.from_bytes(key[start : start + 8], "little") + step)
    return _folded_product(mixed + step) & MAX_HASH


def _folded_product(value: int) -> int:
    product = (value & _UINT64) * _BOOST_FACTOR
    return (product & _UINT64) ^ (product >> 64)
