"""Publish ids: one UUIDv7 per publish commit, so that ids sort by time and file statistics prune on them (RFC 9562,
section 5.7).

Written without hyphens: 32 characters are all that Delta's file statistics keep of a text. The clock and the random
bits are arguments, because this layer has neither.
"""

import uuid

_RANDOM_BITS = 74


def publish_id(time_ms: int, random_bits: int) -> str:
    """The UUIDv7 of an instant (Unix time in ms) and 74 random bits.

    >>> publish_id(0x017F22E279B0, 0xCC3 << 62 | 0x18C4DC0C0C07398F)
    '017f22e279b07cc398c4dc0c0c07398f'
    """
    bits = random_bits & ((1 << _RANDOM_BITS) - 1)
    return uuid.UUID(int=time_ms << 80 | 0x7 << 76 | bits >> 62 << 64 | 0b10 << 62 | bits & ((1 << 62) - 1)).hex
