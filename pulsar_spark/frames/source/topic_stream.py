"""A stream without a subscription: micro-batches of what topics have between two offsets. It acknowledges nothing.

An offset has the id of each topic and the next position of each of its partitions. A topic or partition that appears
later is read from its first message."""

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pulsar_spark.errors import MessagesTrimmed, TopicNotFound
from pulsar_spark.frames.source.batch_reader import SliceReader
from pulsar_spark.frames.source.followed_topic import FollowedTopic, full_name, topic_names
from pulsar_spark.frames.source.message_slices import slices_of
from pulsar_spark.frames.source.options import SourceOptions
from pulsar_spark.frames.source.positions import Positions
from pulsar_spark.frames.source.worker_errors import in_one_line
from pulsar_spark.protocol.delays.instants import EPOCH
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.protocol.topics.topic_name import TopicName
from pulsar_spark.storage.clock import monotonic
from pulsar_spark.storage.entries.slices import PositionRange
from pulsar_spark.storage.layout import Layout

_ID, _PARTITIONS = "topic_id", "partitions"
Offset = dict[str, dict[str, Any]]
Place = tuple[str, int]
"""A topic's name, as :attr:`FollowedTopic.name`, and one of its partitions."""


class TopicStream(SliceReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in one process of the driver, and reads their slices in tasks."""

    def __init__(self, schema: StructType, options: SourceOptions):
        super().__init__(schema, options)
        self._options = options
        self._topics: dict[str, FollowedTopic] = {}
        self._discover_at = -math.inf
        self._target: dict[Place, int] | None = None
        """With Trigger.AvailableNow, the ends of the partitions when the query started."""

    @in_one_line
    def initialOffset(self) -> Offset:
        """Where a new query starts: at the starting position."""
        starting = Positions.starting(self._options)
        self._look()
        starting.check(self._topics.values())
        return self._offset(
            {
                (name, partition): starting.find(topic, partition)
                for name, topic in self._topics.items()
                for partition in topic.partitions
            }
        )

    @in_one_line
    def prepareForTriggerAvailableNow(self) -> None:
        self._look()
        self._target = self._ends()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of the options; where both are given, the bytes count beside the messages."""
        messages, size = self._options.max_messages_per_trigger, self._options.max_bytes_per_trigger
        if messages is not None:
            return ReadMaxRows(messages)
        return ReadAllAvailable() if size is None else ReadMaxBytes(size)

    @in_one_line
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Where the next micro-batch ends: at the ends of the partitions, or where *limit* is reached."""
        self._look(start)
        begins, ends = self._positions(start), self._ends()
        if self._target is not None:
            known = self._target.keys() | begins.keys()
            ends = {place: min(end, self._target.get(place, 0)) for place, end in ends.items() if place in known}
        ends = {place: max(end, begins.get(place, 0)) for place, end in ends.items()}
        if isinstance(limit, ReadMaxRows):
            room = _Room(limit.max_rows, self._options.max_bytes_per_trigger)
        elif isinstance(limit, ReadMaxBytes):
            room = _Room(None, limit.max_bytes)
        else:
            return self._offset(ends)
        return self._offset(self._limited(begins, ends, room))

    @in_one_line
    def reportLatestOffset(self) -> Offset | None:
        """The ends of the partitions, for the query's progress."""
        self._look()
        return self._offset(self._ends())

    @in_one_line
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The slices between two offsets."""
        self._look(end)
        begins, found = self._positions(start), list[InputPartition]()
        for place, last in self._positions(end).items():
            name, partition = place
            if place in begins:
                self._check_kept(self._topics[name], partition, begins[place], last)
            found += slices_of(self._topics[name], [PositionRange(partition, begins.get(place, 0), last - 1)])
        return found

    def _look(self, offset: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """Follow the topics of the options, and those of *offset*, to their ends; :class:`TopicNotFound` if one of
        *offset* is not the same any more."""
        layout = Layout(self._options.root)
        for known in self._topics.values():
            known.look()
        if monotonic() >= self._discover_at:
            self._add(layout, topic_names(self._options, layout))
            is_pattern = self._options.topics_pattern is not None
            period = self._options.pattern_auto_discovery_period if is_pattern else math.inf
            self._discover_at = monotonic() + period
        self._add(layout, offset or {})
        for name, place in (offset or {}).items():
            if place[_ID] != self._topics[name].topic.topic_id:
                raise TopicNotFound(
                    f"topic {name!r} was deleted and created again since the checkpoint: begin with a new checkpoint"
                )

    def _add(self, layout: Layout, names: Iterable[TopicName | str]) -> None:
        for name in names:
            if full_name(name) not in self._topics:
                self._topics[full_name(name)] = FollowedTopic(layout, name)

    def _ends(self) -> dict[Place, int]:
        return {
            (name, partition): topic.ledgers(partition).end_position
            for name, topic in self._topics.items()
            for partition in topic.partitions
        }

    def _offset(self, positions: Mapping[Place, int]) -> Offset:
        found: Offset = {}
        for (name, partition), position in sorted(positions.items()):
            of_topic = found.setdefault(name, {_ID: self._topics[name].topic.topic_id, _PARTITIONS: {}})
            of_topic[_PARTITIONS][str(partition)] = position
        return found

    def _positions(self, offset: Offset) -> dict[Place, int]:
        return {
            (name, int(partition)): position
            for name, of_topic in offset.items()
            for partition, position in of_topic[_PARTITIONS].items()
        }

    def _check_kept(self, topic: FollowedTopic, partition: int, first: int, end: int) -> None:
        kept = topic.first_position(partition)
        if first < min(kept, end):
            raise MessagesTrimmed(
                f"positions {first} to {min(kept, end) - 1} of partition {partition} of topic {topic.name!r} were "
                "trimmed before this stream read them: begin with a new checkpoint; with the option 'subscription', "
                "trimming waits for the stream"
            )

    def _limited(self, begins: Mapping[Place, int], ends: Mapping[Place, int], room: "_Room") -> dict[Place, int]:
        """The positions up to which messages in the order of their publish times fit into *room*."""
        reached = {place: begins.get(place, self._first(place)) for place in ends}
        merged = heapq.merge(
            *(self._runs(place, reached[place], end) for place, end in ends.items() if reached[place] < end),
            key=attrgetter("published"),
        )
        for place, _, run in merged:
            entries = room.take(run)
            reached[place] = run.first_position + entries
            if entries < run.entries:
                break
        return reached

    def _first(self, place: Place) -> int:
        return self._topics[place[0]].first_position(place[1])

    def _runs(self, place: Place, first: int, end: int) -> "Iterator[_PlacedRun]":
        name, partition = place
        for run in self._topics[name].ledgers(partition).parts(first, end - 1):
            yield _PlacedRun(place, run.min_publish_time or EPOCH, run)


class _PlacedRun(NamedTuple):
    place: Place
    published: Any
    run: Run


class _Room:
    """How many messages and bytes a micro-batch has left (None: no limit); its first entry always fits."""

    def __init__(self, messages: int | None, size: int | None):
        self._messages, self._size, self._is_empty = messages, size, True

    def take(self, run: Run) -> int:
        """Take as many entries of *run* as fit; their number."""
        entries, size = run.entries, run.bytes / run.entries
        if self._messages is not None:
            entries = min(entries, self._messages // max(1, run.batch_size))
        if self._size is not None:
            entries = min(entries, int(self._size / size)) if size else entries
        entries = max(entries, 1 if self._is_empty else 0)
        self._is_empty = False
        if self._messages is not None:
            self._messages -= entries * run.batch_size
        if self._size is not None:
            self._size -= int(entries * size)
        return entries
