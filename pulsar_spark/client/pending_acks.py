"""Messages that the application acknowledged one by one, until somebody has to know what that comes to.

To acknowledge a message is to append it to a list; what is acknowledged of which entries is made out for many at once
(see acknowledgement_tracker). Who appends looks at :attr:`room` afterwards, never before: who takes what is in the list
leaves no room first, so that a message that comes too late is noticed by who appended it.
"""

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from pulsar_spark.client.message import Message

_BLOCK, _POSITION = attrgetter("_block"), attrgetter("_position")


class Acknowledged(NamedTuple):
    """Entries of no batch, at *positions*; or of one entry, which is a batch, the indexes that are set in *indexes*, of
    those it was delivered with."""

    positions: list[int]
    indexes: int
    delivered: int


class PendingAcks(list):
    """Messages of one subscription on a topic partition. ``owner`` is the consumer who may append; None where each
    acknowledgement has to be looked at by itself. With as many as ``room`` they are to be made out."""

    __slots__ = ("owner", "room")

    def __init__(self):
        super().__init__()
        self.owner, self.room = None, 0

    def take(self) -> list[Acknowledged]:
        """What all of them come to, in order; none is left."""
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
