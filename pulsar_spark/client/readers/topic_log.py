"""The publish commits of a topic's log, in order, without a broker.

Of a repeated publish id the first commit counts. ``ledgers`` replaces lost commits. Trimmed ledgers and foreign rows
are skipped.
"""

import heapq
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from datetime import datetime
from types import MappingProxyType

from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.delta.actions import Commit
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.entries.entries import EntryReader
from pulsar_spark.storage.entries.topic_files import trimmed_ledgers
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.ledgers.needed_runs import first_position_from
from pulsar_spark.storage.ledgers.publishes import published_files
from pulsar_spark.storage.topics.topics import Topic

_REMEMBERED = 1000
_LOOK_BACK = 100
_POSITIONS_A_STEP = 1024


class TopicLog:
    """Walks through a topic's publish commits; with *is_whole* also through added partitions. *ledgers* may be of any
    bundle."""

    def __init__(self, topic: Topic, partitions: list[int], ledgers: LedgerIndex, *, is_whole: bool = False):
        self._topic = topic
        self._partitions, self._is_whole = partitions, is_whole
        self._ledgers = ledgers
        self._log = TableLog(topic.path)
        self._publish_ids: OrderedDict[str, int] = OrderedDict()
        self._seen = 0
        self._gone: dict[int, int] = {}
        self._passed: Mapping[int, int] = {}

    def start_at(
        self, ledger_id: int, passed: Mapping[int, int] = MappingProxyType({}), published_since: datetime | None = None
    ) -> Iterator[tuple[int, Run]]:
        """Start at publish commit *ledger_id*, or after the commit up to which a partition was *passed*. Return the
        runs, by partition, that only ``ledgers`` has, from the first with a message *published_since*."""
        self._publish_ids.clear()
        self._gone = trimmed_ledgers(self._topic.path, self._partitions)
        self._gone |= {partition: max(last, self._gone.get(partition, 0)) for partition, last in passed.items()}
        self._passed = passed
        first = max(1, ledger_id)
        earliest = max(1, self._log.earliest())
        past = self._partitions if first < earliest else ()
        known = [self._known_runs(partition, first, earliest, published_since) for partition in past]
        self._seen = max(earliest, first - _LOOK_BACK) - 1
        for commit in self._log.commits(after=self._seen, until=first - 1):
            self._runs(commit)
        self._seen = max(first, earliest) - 1
        return heapq.merge(*known, key=lambda each: (each[1].ledger_id, each[0], each[1].first_entry_id))

    def start_at_end(self) -> None:
        self._seen = max(0, self._log.latest())

    def latest(self) -> int:
        return self._log.latest()

    def next_runs(self) -> Iterator[tuple[int, Run]]:
        """The runs, by partition, of the commits since, one per file, in order."""
        if self._log.is_shortened(self._seen):
            yield from self.start_at(self._seen + 1, self._passed)
        for commit in self._log.commits(after=self._seen):
            runs = self._runs(commit)
            self._seen = commit.version
            yield from runs

    def has_more(self) -> bool:
        return self._log.has_news(self._seen)

    def _runs(self, commit: Commit) -> list[tuple[int, Run]]:
        runs = []
        for file in published_files(self._topic.path, commit, self._topic.partitions):
            is_first = self._publish_ids.setdefault(file.publish_id, commit.version) == commit.version
            is_wanted = file.partition in self._partitions or (
                self._is_whole and file.partition >= self._topic.partitions
            )
            if is_first and is_wanted and commit.version > self._gone.get(file.partition, 0):
                runs.append((file.partition, file.as_run(commit.version)))
        while len(self._publish_ids) > _REMEMBERED:
            self._publish_ids.popitem(last=False)
        return sorted(runs, key=lambda each: (each[0], each[1].first_entry_id))

    def _known_runs(
        self, partition: int, first: int, before: int, published_since: datetime | None
    ) -> Iterator[tuple[int, Run]]:
        """Numbered runs of publish commits from *first* to below *before*."""
        topic_id, first = self._topic.topic_id, max(first, self._gone.get(partition, 0) + 1)
        ledgers = self._ledgers.of(self._topic)
        end = ledgers.end(topic_id, partition)
        at = first_position_from(ledgers.layout, topic_id, partition, first, published_since)
        return self._walk(partition, end if at is None else at, end, before)

    def _walk(self, partition: int, at: int, end: int, before: int) -> Iterator[tuple[int, Run]]:
        while at < end:
            step = at, min(at + _POSITIONS_A_STEP, end) - 1
            for run, _ in self._ledgers.of(self._topic).spans_of(self._topic.topic_id, partition, [step]):
                if run.ledger_id >= before:
                    return
                yield partition, run
                at = run.last_position + 1


def last_message_id(topic: Topic, partition: int, ledgers: LedgerIndex) -> MessageId:
    """The id of a partition's last message; ``MessageId.earliest`` without one."""
    for run in _runs_from_the_end(topic, partition, ledgers):
        last = run._replace(first_entry_id=run.last_entry_id, entries=1)
        for part in (last, run):  # the rest of the file, if the last entry was deleted
            blocks = list(EntryReader().rows_of(topic.path, part, columns=[]))
            if blocks:
                entry_id, batch_index = (blocks[-1][name][-1].as_py() for name in ("entry_id", "batch_index"))
                place = MessageId(partition, run.ledger_id, entry_id, -1 if batch_index is None else batch_index)
                return place.of_topic(str(topic.name.partition(partition)))
    return MessageId.earliest


def _runs_from_the_end(topic: Topic, partition: int, ledgers: LedgerIndex) -> Iterator[Run]:
    """The runs of a partition from the last on; those of lost commits from ``ledgers``."""
    log = TableLog(topic.path)
    for commit in log.commits_from_the_end():
        files = published_files(topic.path, commit, topic.partitions)
        runs = [file.as_run(commit.version) for file in files if file.partition == partition]
        yield from sorted(runs, key=lambda run: -run.first_entry_id)
    earliest = log.earliest()  # read last: commits deleted meanwhile are seen twice, not missed
    last = ledgers.end(topic.topic_id, partition) - 1 if earliest > 1 else -1
    while last >= 0:
        step = max(0, last + 1 - _POSITIONS_A_STEP), last
        for run, _ in reversed(ledgers.spans_of(topic.topic_id, partition, [step])):
            if run.ledger_id < earliest:
                yield run
            last = run.first_position - 1
