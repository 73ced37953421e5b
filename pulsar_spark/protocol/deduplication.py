"""Deduplication: a message is stored once, however often its producer sends it.

Rule: MessageDeduplication (PIP-6). Of each producer's name the highest sequence id is kept that is stored, on each
topic partition by itself. A message is a duplicate when its sequence id is not above that; sending it succeeds all the
same, with a message id that names no entry. The chunks of a message share a sequence id, and only the last of them
moves the highest. A producer without an initial sequence id goes on behind the highest of its name. What was stored
while deduplication was off does not count, nor what was stored before it was switched off; and a name that stored
nothing for :data:`INACTIVITY_TIMEOUT` minutes is forgotten.

**Who decides.** In Pulsar the broker does, because it writes what is published. Here every producer commits by itself,
and the highest sequence ids are part of its commit: Delta's transaction identifiers (``SetTransaction``), of which the
latest of each name counts. So a duplicate is never stored, no reader and no broker needs to know, no message without
its number or number without its message survives a crash, and checkpoints keep the state when the log is shortened.
Were it the broker's to leave duplicates out, each round would have to read the names and sequence ids of all that was
published, and who reads a topic without a broker would see them twice.

**Batches.** Each message of a batch is judged by itself, and the batch is stored without its duplicates. Pulsar judges
a batch as a whole: from Java by its first sequence id, which loses what is new behind a duplicate, from Python and C++
by its last, which stores duplicates again in front of what is new. Where whole batches are sent again all three agree.
"""

from collections.abc import Collection, Sequence
from hashlib import sha256
from itertools import islice
from operator import lt
from typing import NamedTuple
from urllib.parse import quote

PREFIX = "pulsar_spark.dedup/"
"""What the names of all these transactions begin with."""
_LONGEST_NAME = 200


def app_id(since: int, partition: int, producer_name: str) -> str:
    """The transaction that holds the highest sequence id of a name.

    *since* tells apart the times that deduplication was switched on.

    >>> app_id(7, -1, "orders/1")
    'pulsar_spark.dedup/7/-1/orders%2F1'
    """
    return f"{prefix_since(since)}{partition}/{encoded_name(producer_name)}"


def prefix_since(since: int) -> str:
    """What the transactions since then begin with; partition and encoded name follow."""
    return f"{PREFIX}{since}/"


def encoded_name(producer_name: str) -> str:
    """A producer's name in ASCII, without slashes, and short, whatever it is."""
    name = quote(producer_name, safe="", errors="surrogatepass")
    return name if len(name) <= _LONGEST_NAME else f"sha256={sha256(name.encode()).hexdigest()}"


class Sent(NamedTuple):
    """What counts of a message, or of a chunk of one: a message begins and ends with itself."""

    sequence_id: int
    begins: bool = True
    ends: bool = True


def are_new(
    sent: Sequence[Sent], highest: int | None, begun: Collection[int] = (), *, is_interleaved: bool = False
) -> list[bool]:
    """Which messages of one producer, in the order of sending, are no duplicates of what is stored, up to *highest*, or
    of each other. Of chunked messages that have *begun* before the rest is new, whatever was sent meanwhile.

    Those of key-based batches *are interleaved*: a lower sequence id behind a higher one was not sent after it, so it
    is a duplicate only where it is there twice. (Pulsar's clients lose such messages.)

    >>> are_new([Sent(each) for each in (3, 4, 4, 6, 5, 7)], 3)
    [False, True, False, True, False, True]
    >>> are_new([Sent(each) for each in (4, 6, 5, 5)], 3, is_interleaved=True)
    [True, True, True, False]
    >>> are_new([Sent(4, ends=False), Sent(5), Sent(4, begins=False), Sent(4)], 3)
    [True, True, True, False]
    """
    found, ended, least, begun = [], set(), highest, set(begun)
    for sequence_id, begins, ends in sent:
        is_above = (least is None or sequence_id > least) and sequence_id not in ended
        is_new = is_above if begins else is_above or sequence_id in begun
        found.append(is_new)
        if begins:
            begun.discard(sequence_id)
        if is_new and not ends:
            begun.add(sequence_id)
        elif is_new:
            begun.discard(sequence_id)
            ended.add(sequence_id)
            if not is_interleaved:
                least = sequence_id if least is None else max(least, sequence_id)
    return found


def are_rising(sequence_ids: Sequence[int], highest: int | None) -> bool:
    """Is each above the one before, and above *highest*, so that messages in one piece are all new?

    >>> are_rising([4, 6, 7], 3), are_rising([4, 6, 7], 4), are_rising([4, 4], None)
    (True, False, False)
    """
    is_above = highest is None or sequence_ids[0] > highest
    return is_above and all(map(lt, sequence_ids, islice(sequence_ids, 1, None)))


def begun_after(sent: Sequence[Sent], begun: Collection[int] = ()) -> set[int]:
    """The chunked messages, by sequence id, that have begun and not ended when these are stored too.

    >>> begun_after([Sent(4, ends=False), Sent(3, begins=False), Sent(5)], {3})
    {4}
    """
    left = set(begun)
    for sequence_id, _, ends in sent:
        (left.discard if ends else left.add)(sequence_id)
    return left
