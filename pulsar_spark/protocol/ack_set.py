"""Ack sets: which messages of a batch are still unacknowledged, as Pulsar sends and stores them.

Rule (semantics 3.3): 64-bit words, low bit first, a set bit = not yet acknowledged, zero words at the end cut. Words are signed, as Java's
``long`` and Arrow's ``int64`` are, so bit 63 alone is the smallest number there is. The empty tuple is "nothing left": the entry is acknowledged. No ack
set at all (None, in tables null) is "the whole entry", which these functions do not take: start from :func:`full`.
"""
from collections.abc import Iterable, Iterator

AckSet = tuple[int, ...]

WORD_BITS = 64
_MASK = (1 << WORD_BITS) - 1


def full(batch_size: int) -> AckSet:
    """The set of a batch nothing of which is acknowledged.

    >>> full(3), full(64), full(65)
    ((7,), (-1,), (-1, 1))
    """
    return _to_words((1 << batch_size) - 1)


def of_indexes(indexes: Iterable[int]) -> AckSet:
    """The set with just these batch indexes unacknowledged.

    >>> of_indexes([0, 2, 64])
    (5, 1)
    """
    bits = 0
    for index in indexes:
        bits |= 1 << index
    return _to_words(bits)


def of_bits(bits: int) -> AckSet:
    """The set with the messages unacknowledged whose bits are set in a number.

    >>> of_bits(0b101), of_bits(1 << 64)
    ((5,), (0, 1))
    """
    return _to_words(bits)


def has(words: Iterable[int], index: int) -> bool:
    """Whether message *index* is unacknowledged.

    >>> has((5, 1), 2), has((5, 1), 3), has((5, 1), 64)
    (True, False, True)
    """
    return bool(_to_bits(words) >> index & 1)


def indexes(words: Iterable[int]) -> tuple[int, ...]:
    """The unacknowledged batch indexes, ascending.

    >>> indexes((5, 1))
    (0, 2, 64)
    """
    return tuple(_set_bits(_to_bits(words)))


def clear(words: Iterable[int], index: int) -> AckSet:
    """*words* with message *index* acknowledged.

    >>> clear(full(3), 1), clear((2,), 1)
    ((5,), ())
    """
    return _to_words(_to_bits(words) & ~(1 << index))


def clear_up_to(words: Iterable[int], index: int) -> AckSet:
    """*words* with messages 0..*index* acknowledged, as a cumulative acknowledgement does.

    >>> clear_up_to(full(4), 1)
    (12,)
    """
    return _to_words(_to_bits(words) >> (index + 1) << (index + 1))


def intersect(kept: Iterable[int], given: Iterable[int]) -> AckSet:
    """What is unacknowledged in both: the effect of an individual acknowledgement with an ack set (3.20).

    >>> intersect((7,), (5, 1))
    (5,)
    """
    return _to_words(_to_bits(kept) & _to_bits(given))


def replaced_by_cumulative(kept: Iterable[int], given: Iterable[int]) -> AckSet:
    """What stays of an entry when a cumulative acknowledgement brings *given* for it (3.20).

    Pulsar does not intersect here: the given set takes the kept one's place if its first unacknowledged index is larger, and is ignored if not.
    An empty given set means that the entry is acknowledged.

    >>> replaced_by_cumulative(of_indexes([0, 3]), of_indexes([2, 3])), replaced_by_cumulative(of_indexes([3]), of_indexes([2, 3]))
    ((12,), (8,))
    """
    kept, given = trimmed(kept), trimmed(given)
    if is_empty(kept) or is_empty(given):
        return ()
    return given if first_unacked(given) > first_unacked(kept) else kept


def count(words: Iterable[int]) -> int:
    """How many messages are unacknowledged.

    >>> count((-1, 1))
    65
    """
    return _to_bits(words).bit_count()


def is_empty(words: Iterable[int]) -> bool:
    """Whether nothing is left, so that the entry is acknowledged."""
    return not _to_bits(words)


def first_unacked(words: Iterable[int]) -> int:
    """The lowest unacknowledged batch index, -1 for an empty set.

    >>> first_unacked((0, 4)), first_unacked(())
    (66, -1)
    """
    bits = _to_bits(words)
    return (bits & -bits).bit_length() - 1


def trimmed(words: Iterable[int]) -> AckSet:
    """The same set in its one canonical form: no zero words at the end.

    >>> trimmed([7, 0, 0])
    (7,)
    """
    return _to_words(_to_bits(words))


def _to_bits(words: Iterable[int]) -> int:
    bits = 0
    for number, word in enumerate(words):
        bits |= (word & _MASK) << (WORD_BITS * number)
    return bits


def _to_words(bits: int) -> AckSet:
    words = []
    while bits:
        word = bits & _MASK
        words.append(word - (1 << WORD_BITS) if word >> (WORD_BITS - 1) else word)
        bits >>= WORD_BITS
    return tuple(words)


def _set_bits(bits: int) -> Iterator[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
