"""Messages acknowledged one by one, and processed together.

Append first, then look at :attr:`room`; a taker sets it to 0 first.
"""

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from pulsar_spark.client.model.message import Message

_BLOCK, _POSITION = attrgetter("_block"), attrgetter("_position")


class Acknowledged(NamedTuple):
    """Whole entries at *positions*; or of one batch entry the *indexes* (bits) among those it was *delivered* with."""

    positions: list[int]
    indexes: int
    delivered: int


class PendingAcks(list):
    """Messages of one subscription and partition, which ``owner`` may append. At ``room`` messages they must be
    processed."""

    __slots__ = ("owner", "room")

    def __init__(self):
        super().__init__()
        self.owner, self.room = None, 0

    def take(self) -> list[Acknowledged]:
        """Take all of them, as acknowledged entries in order."""
        messages = self[:]
        del self[: len(messages)]
        found = []
        for block, of_block in groupby(messages, _BLOCK):
            delivery = block.delivery
            if delivery.batch_size == 1:
                found.append(Acknowledged(list(map(_POSITION, of_block)), 0, 0))
                continue
            of_row = block.column("batch_index")
            for position, of_entry in groupby(of_block, _POSITION):
                found.append(Acknowledged([position], _bits(of_entry, of_row), delivery.unacked_bits))
        return found


def _bits(messages: Iterable[Message], of_row: list[int]) -> int:
    rows = [message._row for message in messages]
    first, last = rows[0], rows[-1]
    if of_row[last] - of_row[first] == last - first == len(rows) - 1 and rows == list(range(first, last + 1)):
        return ((1 << len(rows)) - 1) << of_row[first]
    bits = 0
    for row in rows:
        bits |= 1 << of_row[row]
    return bits
