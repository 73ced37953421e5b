"""Background work for a broker's delay index: index pending runs, rebuild on request, commit. One thread does it.
Spark, if there is a session, indexes publishes of :data:`BULK` entries and more."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np

from pulsar_spark.broker.delays.delay_commits import DelayCommits
from pulsar_spark.broker.delays.delay_head import LEAST
from pulsar_spark.broker.delays.delay_index import AT_ONCE, DelayIndex
from pulsar_spark.broker.delays.indexed_entries import Pending, earliest_due
from pulsar_spark.broker.upkeep.background import Background
from pulsar_spark.errors import BrokerFenced
from pulsar_spark.protocol.delays.delays import MAX_NUM_BUCKETS
from pulsar_spark.protocol.delays.instants import to_micros
from pulsar_spark.protocol.redelivery.redelivery import MultiplierRedeliveryBackoff
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.chunks.chunk_groups import ChunkGroups, chunks_of
from pulsar_spark.storage.delay_index.delay_buckets import EVER, BucketLost
from pulsar_spark.storage.delay_index.delay_merge import write_entries
from pulsar_spark.storage.delay_index.delay_notes import NewBucket
from pulsar_spark.storage.delay_index.delay_segments import NO_ENTRIES, Entries, together
from pulsar_spark.storage.delay_index.delayed import has_delayed, read_delayed
from pulsar_spark.storage.entries.stated_values import lower_bounds
from pulsar_spark.storage.ledgers.needed_runs import delayed_runs
from pulsar_spark.storage.store.store import AnyPath
from pulsar_spark.storage.topics.topics import Topic

BULK = 100_000
RUNS_AT_ONCE = 1 << 10
LOOK_SECONDS = 60.0
"""Time between two looks for something to remove."""
PAUSES = MultiplierRedeliveryBackoff(min_delay_ms=1_000, max_delay_ms=60_000)
log = logging.getLogger(__name__)


class Build(Protocol):
    """Writes a bucket with delayed entries of a topic's runs, by partition, without *parts* of chunked messages.
    Another thread may cancel it."""

    def __call__(
        self, topic: Topic, runs: dict[int, list[Run]], parts: Mapping[int, Sequence[tuple[int, int]]]
    ) -> NewBucket: ...

    def cancel(self) -> None: ...


class DelayUpkeep(DelayCommits):
    """The background work of one index; *build* writes buckets with Spark, None without a session."""

    def __init__(self, index: DelayIndex, build: Build | None = None, max_num_buckets: int = MAX_NUM_BUCKETS):
        super().__init__(index, max_num_buckets)
        self._build = build
        self._lock, self._background = threading.Lock(), Background("delay index")

    def start(self) -> None:
        self.index.table.remove_staged()
        self.retire(self.index.table.unnamed())
        self.index.is_wanted.set()
        self._background.start(self._run)

    def close(self) -> None:
        self._background.stopping.set()
        self.index.is_wanted.set()
        self._background.close(self._build.cancel if self._build else lambda: None)

    def _run(self) -> None:
        failures = 0
        while not self._background.stopping.is_set():
            self.index.is_wanted.wait(LOOK_SECONDS)
            self.index.is_wanted.clear()
            try:
                self.work()
                failures = 0
            except Exception as failure:  # any error: indexed entries stay usable, and the rest is tried again
                if self._background.stopping.is_set():
                    return
                (log.warning if failures else log.exception)(
                    "the delay index could not be written; the broker tries again: %s", failure
                )
                self.index.is_wanted.set()
                self._background.stopping.wait(PAUSES.delay_ms(failures) / 1000)
                failures += 1

    def work(self) -> None:
        with self._lock:
            try:
                while not self._background.stopping.is_set() and any(step() for step in self._steps()):
                    """One after the other, the first that is due first."""
            except (BrokerFenced, FileNotFoundError) as changed:
                if isinstance(changed, FileNotFoundError) and self.index.table.is_there:
                    raise
                log.error("delay index: %s; it is read again", changed)
                self.index.load()
                self.index.is_wanted.set()
            except BucketLost as lost:
                self.index.lose(lost)

    def _steps(self) -> Sequence[Callable[[], bool]]:
        pending = self._look_up, self._index_pending
        return *pending, self.seal, self._rebuild_next, self.drop, self.merge, self.remove

    # Pending runs

    def _look_up(self) -> bool:
        """Find the runs of pending stretches, and their earliest deliver time."""
        with self.index.lock:
            unknown = [(place, each) for place, each in self._all_pending() if each.runs is None]
        for place, each in unknown:
            topic_id, partition = self.index.places.known[place]
            runs = [*filter(has_delayed, delayed_runs(self.index.layout, topic_id, partition, each.first, each.last))]
            with self.index.lock:
                each.runs, each.earliest = runs, min(map(earliest_due, runs), default=EVER)
        with self.index.lock:
            found = [(place, each.runs, each) for place, each in self._all_pending() if not each.is_looked_at]
        for place, runs, each in ((place, runs, each) for place, runs, each in found if runs):
            earliest = earliest_delivery(self.index.known[place].topic.path, runs)
            with self.index.lock:
                each.earliest, each.is_looked_at = max(each.earliest, earliest), True
        return False

    def _all_pending(self) -> list[tuple[int, Pending]]:
        return [(place, each) for place, known in self.index.known.items() for each in known.pending]

    def _index_pending(self) -> bool:
        with self.index.lock:
            topics = {place: known for place, known in self.index.known.items() if known.pending}
            if any(each.runs is None for known in topics.values() for each in known.pending):
                self.index.is_wanted.set()  # they became pending since the last step, which looks them up
                return False
            if not topics:
                return False
            topic = next(iter(topics.values())).topic
            chosen = {place: list(known.pending) for place, known in topics.items() if known.topic == topic}
        runs = {
            self.index.places.known[place].partition: [run for each in of_place for run in each.runs or ()]
            for place, of_place in chosen.items()
        }
        if self._build and sum(run.entries for of in runs.values() for run in of) >= BULK:
            self.commit(self._build(topic, runs, self._parts(topic, runs)), chosen)
        else:
            for place, of_place in chosen.items():
                for each in of_place:
                    self._read(topic, place, each)
        return True

    def _read(self, topic: Topic, place: int, each: Pending) -> None:
        chunks = self._chunks(topic, self.index.places.known[place].partition, each.runs or ())
        while each.runs:
            runs = _some(each.runs)
            due = read_delayed(topic.path, runs, chunks)
            with self.index.lock:
                if place not in self.index.known:
                    return
                self.index.head.add_runs(place, runs, due)
                each.first, each.runs = runs[-1].last_position + 1, each.runs[len(runs) :]
            self.seal()
        with self.index.lock:
            self.index.done(place, [each])

    # Rebuild on request

    def _rebuild_next(self) -> bool:
        index = self.index
        with index.lock:
            if not index.rebuilding:
                return False
            topic_id = index.rebuilding[0]
            numbered = {
                place: [*index.outside_buckets(place), (known.end, EVER)]
                for place, known in index.known.items()
                if known.topic.topic_id == topic_id
            }
        if numbered:
            topic = index.known[next(iter(numbered))].topic
            partitions = {index.places.known[place].partition: stretches for place, stretches in numbered.items()}
            runs = {
                partition: [
                    run for run in delayed_runs(index.layout, topic_id, partition) if is_outside(run, stretches)
                ]
                for partition, stretches in partitions.items()
            }
            new = self._bucket_of(topic, runs)
            self.commit(new, dict.fromkeys(numbered, ()), since=new.number)
        with index.lock:
            index.rebuilding = [each for each in index.rebuilding if each != topic_id]
        return True

    def _bucket_of(self, topic: Topic, runs: dict[int, list[Run]]) -> NewBucket:
        if self._build and sum(run.entries for of in runs.values() for run in of) >= BULK:
            return self._build(topic, runs, self._parts(topic, runs))
        places, parts = self.index.places, [NO_ENTRIES]
        for partition, of in runs.items():
            due = read_delayed(topic.path, of, self._chunks(topic, partition, of))
            parts.append(Entries(due, np.full(len(due), places.number(topic.topic_id, partition), np.int32)))
        return write_entries(self.index.table, together(parts, places.ranks()), places)

    def _parts(self, topic: Topic, runs: dict[int, list[Run]]) -> dict[int, list[tuple[int, int]]]:
        """Parts of chunked messages in runs, as stretches of positions by partition."""
        found = {}
        for partition, of in runs.items():
            chunks, chunked = self._chunks(topic, partition, of), (run for run in of if run.may_have_chunks)
            found[partition] = [part for run in chunked for part in chunks.parts(run.first_position, run.last_position)]
        return found

    def _chunks(self, topic: Topic, partition: int, runs: Iterable[Run]) -> ChunkGroups:
        return chunks_of(self.index.layout, topic, partition, runs)


def _some(runs: Sequence[Run]) -> Sequence[Run]:
    entries = np.cumsum([run.entries for run in runs[:RUNS_AT_ONCE]])
    return runs[: max(1, int(np.searchsorted(entries, AT_ONCE, "right")))]


def is_outside(run: Run, stretches: Sequence[tuple[int, int]]) -> bool:
    """May the run have delayed entries, and lies in none of *stretches*?"""
    return has_delayed(run) and all(run.last_position < first or run.first_position > last for first, last in stretches)


def earliest_delivery(table: AnyPath, runs: Sequence[Run]) -> int:
    """An instant before which no delayed entry of *runs* is due, by their commits."""
    bounds = lower_bounds(table, runs, "deliver_at_time")
    return min(max(earliest_due(run), LEAST if least is None else to_micros(least)) for run, least in zip(runs, bounds))
