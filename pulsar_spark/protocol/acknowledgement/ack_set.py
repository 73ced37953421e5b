"""Ack sets: which messages of a batch are still unacknowledged, as Pulsar sends and stores them.

Rule (semantics 3.3): signed 64-bit words, low bit first, a set bit = unacknowledged, no zero words at the end. The
empty tuple acknowledges the entry. A whole entry has no set (None, in tables null)."""

from collections.abc import Iterable
from functools import reduce
from itertools import islice
from operator import or_

AckSet = tuple[int, ...]

WORD_BITS, _WORD_BYTES = 64, 8
_MASK = (1 << WORD_BITS) - 1


def full(batch_size: int) -> AckSet:
    """The set of a batch with no message acknowledged.

    >>> full(3), full(64), full(65)
    ((7,), (-1,), (-1, 1))
    """
    return of_bits((1 << batch_size) - 1)


def of_indexes(indexes: Iterable[int]) -> AckSet:
    """The set in which only these batch indexes are unacknowledged.

    >>> of_indexes([0, 2, 64])
    (5, 1)
    """
    return of_bits(reduce(or_, (1 << index for index in indexes), 0))


def of_bits(bits: int) -> AckSet:
    """The set whose unacknowledged messages are the set bits of *bits*."""
    size = -(-bits.bit_length() // WORD_BITS) * _WORD_BYTES
    content = bits.to_bytes(size, "little")
    return tuple(
        int.from_bytes(content[at : at + _WORD_BYTES], "little", signed=True) for at in range(0, size, _WORD_BYTES)
    )


def has(words: Iterable[int], index: int) -> bool:
    """Whether message *index* is unacknowledged.

    >>> has((5, 1), 2), has((5, 1), 3), has((5, 1), 64)
    (True, False, True)
    """
    number, bit = divmod(index, WORD_BITS)
    word = next(islice(words, number, None), 0)
    return bool(word >> bit & 1)


def indexes(words: Iterable[int]) -> tuple[int, ...]:
    """The unacknowledged batch indexes, ascending.

    >>> indexes((5, 1))
    (0, 2, 64)
    """
    return tuple(
        WORD_BITS * number + bit
        for number, word in enumerate(words)
        if word
        for bit in range(WORD_BITS)
        if word >> bit & 1
    )


def clear(words: Iterable[int], index: int) -> AckSet:
    """Acknowledge message *index* in *words*.

    >>> clear(full(3), 1), clear((2,), 1)
    ((5,), ())
    """
    return of_bits(_to_bits(words) & ~(1 << index))


def intersect(kept: Iterable[int], given: Iterable[int]) -> AckSet:
    """The messages unacknowledged in both: an individual acknowledgement with an ack set (3.20).

    >>> intersect((7,), (5, 1))
    (5,)
    """
    return of_bits(_to_bits(kept) & _to_bits(given))


def replaced_by_cumulative(kept: Iterable[int], given: Iterable[int]) -> AckSet:
    """The ack set after a cumulative acknowledgement brings *given* (3.20).

    As in Pulsar, *given* replaces *kept* if its first unacknowledged index is larger. An empty set wins.

    >>> replaced_by_cumulative(of_indexes([0, 3]), of_indexes([2, 3]))
    (12,)
    >>> replaced_by_cumulative(of_indexes([3]), of_indexes([2, 3]))
    (8,)
    """
    kept, given = trimmed(kept), trimmed(given)
    if is_empty(kept) or is_empty(given):
        return ()
    return given if first_unacked(given) > first_unacked(kept) else kept


def count(words: Iterable[int]) -> int:
    """The number of unacknowledged messages."""
    return sum((word & _MASK).bit_count() for word in words)


def is_empty(words: Iterable[int]) -> bool:
    return not any(words)


def first_unacked(words: Iterable[int]) -> int:
    """The lowest unacknowledged batch index, -1 for an empty set.

    >>> first_unacked((0, 4)), first_unacked(())
    (66, -1)
    """
    return next((WORD_BITS * number + (word & -word).bit_length() - 1 for number, word in enumerate(words) if word), -1)


def trimmed(words: Iterable[int]) -> AckSet:
    """The set without zero words at the end."""
    return of_bits(_to_bits(words))


def _to_bits(words: Iterable[int]) -> int:
    return int.from_bytes(b"".join((word & _MASK).to_bytes(_WORD_BYTES, "little") for word in words), "little")
