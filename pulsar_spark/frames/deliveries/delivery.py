"""What a consumer's function gets beside the messages, and how it may answer.

Without a returned frame the whole delivery is acknowledged. A frame has ``position``, ``outcome``, ``partition`` on a
partitioned topic, and perhaps ``batch_index`` and ``delay_ms``. The outcome ``negative_acknowledge`` gives an entry
back. ``reconsume_later`` delivers a message again after ``delay_ms`` (default 0). ``acknowledge`` and a missing row
acknowledge; any other outcome is an error. Without ``batch_index`` a row decides about the whole entry."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsar_spark.described import Described
from pulsar_spark.errors import InvalidMessage
from pulsar_spark.frames.deliveries.named_entries import Delivered, NamedEntries, exact, exact_in
from pulsar_spark.frames.given_frames import is_other_frame, shown
from pulsar_spark.protocol.acknowledgement import ack_set as ack_sets
from pulsar_spark.protocol.acknowledgement.positions import Positions, as_array, ranges_of
from pulsar_spark.storage.entries.slices import PositionRange

ACKNOWLEDGE, NEGATIVE_ACKNOWLEDGE, RECONSUME_LATER = OUTCOMES = (
    "acknowledge",
    "negative_acknowledge",
    "reconsume_later",
)


@dataclass(frozen=True, slots=True, repr=False)
class Delivery(Described):
    """Entries that the broker sent to one consumer, in one round or in several that were merged.

    ``round`` is the last of these rounds. This round had read the table ``requests`` up to ``requests_version``.
    ``ranges`` also has entries that are named one by one (see named_entries). The position of a chunked message is that
    of its last chunk; ``chunked`` has (partition, first position, last position) of each such message."""

    topic: str
    topic_id: str
    subscription: str
    consumer_id: str
    round: int
    ranges: tuple[Delivered, ...]
    requests_version: int = -1
    chunked: tuple[tuple[int, int, int], ...] = ()

    @property
    def messages(self) -> int:
        """The number of messages; each message of a batch counts."""
        return sum(range_.messages for range_ in self.ranges)

    def _facts(self) -> dict[str, object]:
        return {
            "topic": self.topic,
            "subscription": self.subscription,
            "round": self.round,
            "messages": self.messages,
            "partitions": sorted({range_.partition for range_ in self.ranges}),
        }

    def exact(self, partitions: Container[int] | None = None) -> "Delivery":
        """This delivery with ranges of positions instead of named entries, everywhere or in some *partitions*."""
        return replace(self, ranges=(*exact(self.ranges),) if partitions is None else exact_in(partitions, self.ranges))

    def merged(self, later: "Delivery") -> "Delivery":
        """This delivery and a later one of the same consumer as one."""
        return replace(later, ranges=self.ranges + later.ranges, chunked=self.chunked + later.chunked)


def messages_by_partition(ranges: Iterable[Delivered]) -> Counter[int]:
    found: Counter[int] = Counter()
    for range_ in ranges:
        found[range_.partition] += range_.messages
    return found


class Acknowledged(NamedTuple):
    """Positions to acknowledge. With ``ack_set``, a single entry, of which the messages in the set stay unacknowledged.
    With ``delivery_round``, only entries that this round delivered."""

    partition: int
    first: int
    last: int
    ack_set: ack_sets.AckSet | None = None
    delivery_round: int | None = None


class PutOff(NamedTuple):
    """A message to deliver again later, as a retry letter; ``batch_index`` is None outside a batch."""

    partition: int
    position: int
    batch_index: int | None
    delay_ms: int


class Answer(NamedTuple):
    """The reply to the broker about a delivery.

    The requests that put messages off are sent first; ``acknowledged`` covers these messages too. Entries of ``unseen``
    come again, and their redelivery counts do not rise."""

    acknowledged: list[Acknowledged]
    given_back: list[PositionRange]
    put_off: tuple[PutOff, ...] = ()
    unseen: Sequence[PositionRange] = ()


def answer(delivery: Delivery, result: object) -> Answer:
    """Turn a function's *result* into an answer; :class:`InvalidMessage` for an invalid frame."""
    if is_other_frame(result):
        raise InvalidMessage(
            f"the function returned {shown(result)}: return a Spark DataFrame of outcomes, or "
            "None to acknowledge everything"
        )
    rows = _decided(delivery, result) if isinstance(result, DataFrame) else []
    delivery = delivery.exact({row["partition"] for row in rows})  # rows decide about single entries
    to_give_back, to_put_off = _by_place(rows, NEGATIVE_ACKNOWLEDGE), _by_place(rows, RECONSUME_LATER)
    back_in_order, off_in_order = (
        {partition: list(each) for partition, each in places.items()} for places in (to_give_back, to_put_off)
    )
    acknowledged, decided = _of_rounds(delivery), 0
    given_back: list[PositionRange] = []
    put_off: list[PutOff] = []
    for range_ in delivery.ranges:
        if isinstance(range_, NamedEntries):
            continue
        back = between(back_in_order.get(range_.partition, []), range_.first, range_.last)
        off = between(off_in_order.get(range_.partition, []), range_.first, range_.last)
        for position in off:
            put_off += _put_off(range_, position, to_put_off[range_.partition][position])
        decided += len(back) + len(off)
        stretches = ranges_of(back)
        given_back += [range_._replace(first=first, last=last) for first, last in stretches]
        acknowledged += [Acknowledged(*part[:3]) for part in left_of([range_], stretches)]
        for position in back if range_.batch_size > 1 else ():
            named = to_give_back[range_.partition][position]
            indexes = [index for index in named if index is not None]
            if len(indexes) == len(named):  # of a batch given back in part, the other messages are acknowledged
                full = range_.ack_set or ack_sets.full(range_.batch_size)
                left = ack_sets.intersect(full, ack_sets.of_indexes(indexes))
                acknowledged.append(Acknowledged(range_.partition, position, position, left))
    if decided < sum(map(len, (*to_give_back.values(), *to_put_off.values()))):
        raise InvalidMessage("the outcomes name a position that was not delivered: return rows of this delivery only")
    return Answer(acknowledged, given_back, tuple(put_off))


def _of_rounds(delivery: Delivery) -> list[Acknowledged]:
    """What acknowledges named entries: one request for each partition and round."""
    found: dict[tuple[int, int], Acknowledged] = {}
    for range_ in delivery.ranges:
        if isinstance(range_, NamedEntries):
            known = found.setdefault(
                (range_.partition, range_.round), Acknowledged(*range_.position_range[:3], None, range_.round)
            )
            found[range_.partition, range_.round] = known._replace(
                first=min(known.first, range_.first), last=max(known.last, range_.last)
            )
    return list(found.values())


def _decided(delivery: Delivery, result: DataFrame) -> list[dict]:
    """The rows of *result* that do not acknowledge, by partition and position."""
    partitions = {range_.partition for range_ in delivery.ranges}
    needed = {"position", "outcome"} | ({"partition"} if len(partitions) > 1 else set())
    if needed - set(result.columns):
        raise InvalidMessage(
            f"the returned frame lacks {sorted(needed - set(result.columns))}: it has {result.columns}; "
            "return None to acknowledge everything"
        )
    partition = F.col("partition") if "partition" in result.columns else F.lit(min(partitions))
    batch_index = F.col("batch_index") if "batch_index" in result.columns else F.lit(None).cast("int")
    delay_ms = F.coalesce(F.col("delay_ms").cast("bigint"), F.lit(0)) if "delay_ms" in result.columns else F.lit(0)
    others = (
        result.filter(~F.col("outcome").eqNullSafe(ACKNOWLEDGE))
        .select(
            partition.alias("partition"),
            "position",
            batch_index.alias("batch_index"),
            "outcome",
            delay_ms.alias("delay_ms"),
        )
        .toArrow()
    )
    rows = others.sort_by([("partition", "ascending"), ("position", "ascending")]).to_pylist()
    for row in rows:
        if row["outcome"] not in OUTCOMES:
            raise InvalidMessage(
                f"outcome {row['outcome']!r} of position {row['position']} is unknown: give one of {OUTCOMES}"
            )
    return rows


def _by_place(rows: list[dict], outcome: str) -> dict[int, dict[int, dict[int | None, int]]]:
    """Delays of rows with *outcome*, by partition, ascending position and batch index (None: the whole entry)."""
    found: dict[int, dict[int, dict[int | None, int]]] = {}
    for row in rows:
        if row["outcome"] == outcome:
            found.setdefault(row["partition"], {}).setdefault(row["position"], {})[row["batch_index"]] = row["delay_ms"]
    return found


def _put_off(range_: PositionRange, position: int, delays: dict[int | None, int]) -> Iterator[PutOff]:
    """The messages of an entry that are put off, by *delays* of batch indexes (None: of all its messages)."""
    if range_.batch_size == 1:
        yield PutOff(range_.partition, position, None, next(iter(delays.values())))
        return
    for index in ack_sets.indexes(range_.ack_set or ack_sets.full(range_.batch_size)):
        if index in delays or None in delays:
            yield PutOff(range_.partition, position, index, delays[index if index in delays else None])


def between(ascending: list[int], first: int, last: int) -> list[int]:
    """Those of *ascending* positions that lie in *first*..*last*."""
    return ascending[bisect_left(ascending, first) : bisect_right(ascending, last)]


def without(ranges: Iterable[Delivered], holes: Mapping[int, Iterable[tuple[int, int]]]) -> tuple[Delivered, ...]:
    """What is left of *ranges* without *holes*, which are given by partition and may overlap. Named entries of a
    partition with holes become ranges.

    >>> [(left.first, left.last) for left in without([PositionRange(0, 0, 9), PositionRange(1, 0, 0)], {0: [(2, 20)]})]
    [(0, 1), (0, 0)]
    """
    found: list[Delivered] = []
    for partition, of_partition in groupby(ranges, key=attrgetter("partition")):
        there = list(of_partition)
        found += left_of(exact(there), holes[partition]) if holes.get(partition) else there
    return tuple(found)


def left_of(ranges: Sequence[PositionRange], holes: Iterable[tuple[int, int]]) -> list[PositionRange]:
    """What is left of *ranges* of one partition without *holes*, which may overlap.

    >>> [(left.first, left.last) for left in left_of([PositionRange(0, 0, 9)], [(7, 20), (2, 3), (3, 4)])]
    [(0, 1), (5, 6)]
    """
    positions, found = Positions(sorted(holes)), []
    firsts, lasts = as_array(positions)
    holes_before = np.searchsorted(lasts, [range_.first for range_ in ranges])
    are_cut = holes_before < np.searchsorted(firsts, [range_.last for range_ in ranges], "right")
    for range_, is_cut in zip(ranges, are_cut.tolist()):
        gaps = positions.gaps(range_.first, range_.last) if is_cut else [(range_.first, range_.last)]
        found += [range_._replace(first=first, last=last) for first, last in gaps]
    return found
