"""Deduplication: a message is stored once, however often its producer sends it.

Rule: MessageDeduplication (PIP-6), per producer name and topic partition; a duplicate gets a message id that names no
entry. Messages stored before deduplication was last switched on do not count. Names are forgotten after
:data:`~pulsar_spark.protocol.policies.policies.INACTIVITY_TIMEOUT` minutes.

Ours: producers decide, not the broker. Each commit has the highest sequence ids as Delta's transaction identifiers
(``SetTransaction``), so a crash never separates a message from its number. Messages of a batch are judged one by one;
Pulsar judges the batch, and so may lose new messages."""

from collections.abc import Collection, Sequence
from hashlib import sha256
from itertools import islice
from operator import lt
from typing import NamedTuple
from urllib.parse import quote

PREFIX = "pulsar_spark.dedup/"
"""The prefix of all these transaction identifiers."""
_LONGEST_NAME = 200


def app_id(since: int, partition: int, producer_name: str) -> str:
    """The transaction identifier for the highest sequence id of a producer name; *since* identifies the period of
    deduplication.

    >>> app_id(7, -1, "orders/1")
    'pulsar_spark.dedup/7/-1/orders%2F1'
    """
    return f"{prefix_since(since)}{partition}/{encoded_name(producer_name)}"


def prefix_since(since: int) -> str:
    """The prefix of a period's transaction identifiers; partition and encoded name follow."""
    return f"{PREFIX}{since}/"


def encoded_name(producer_name: str) -> str:
    """A producer's name as short ASCII text without slashes."""
    name = quote(producer_name, safe="", errors="surrogatepass")
    return name if len(name) <= _LONGEST_NAME else f"sha256={sha256(name.encode()).hexdigest()}"


class Sent(NamedTuple):
    """A message or one of its chunks; a message without chunks both begins and ends."""

    sequence_id: int
    begins: bool = True
    ends: bool = True


def are_new(
    sent: Sequence[Sent], highest: int | None, begun: Collection[int] = (), *, is_interleaved: bool = False
) -> list[bool]:
    """Which messages of one producer, in order of sending, duplicate neither stored ones (up to *highest*) nor each
    other. The rest of a chunked message that has *begun* is new.

    In key-based batches (*is_interleaved*) ids are not in order of sending, so only repeated ones are duplicates.

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
    """Whether each id is above the one before, and the first above *highest*: unchunked messages are then all new."""
    is_above = highest is None or sequence_ids[0] > highest
    return is_above and all(map(lt, sequence_ids, islice(sequence_ids, 1, None)))


def begun_after(sent: Sequence[Sent], begun: Collection[int] = ()) -> set[int]:
    """Sequence ids of the chunked messages that have begun and not ended once *sent* is stored.

    >>> begun_after([Sent(4, ends=False), Sent(3, begins=False), Sent(5)], {3})
    {4}
    """
    left = set(begun)
    for sequence_id, _, ends in sent:
        (left.discard if ends else left.add)(sequence_id)
    return left
