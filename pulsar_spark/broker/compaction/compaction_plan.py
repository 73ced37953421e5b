"""What a compaction covers."""

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.compaction.compacted import CompactedView, make_view
from pulsar_spark.storage.compaction.compaction_policies import retains_null_key
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledgers import ledgers_until
from pulsar_spark.storage.ledgers.partition_ledgers import PartitionLedgers
from pulsar_spark.storage.topics.topics import Topic

SMALL_MESSAGES, SMALL_BYTES = 100_000, 64 * 1024 * 1024


class Compaction(NamedTuple):
    """What to compact of *topic*: messages after the horizons of *view*, up to table version *until*, and the view's
    own. *firsts* has the partitions with new ones."""

    topic: Topic
    view: CompactedView
    until: int
    ledgers: dict[int, PartitionLedgers]
    firsts: dict[int, int]
    """The first position after the horizon, by partition."""
    retain_null_key: bool

    def new_runs(self) -> Iterator[tuple[int, Run]]:
        for partition, first in self.firsts.items():
            ledgers = self.ledgers[partition]
            yield from ((partition, run) for run in ledgers.parts(first, ledgers.end_position - 1))

    @property
    def messages(self) -> int:
        """The number of messages before compaction; chunks count singly."""
        return sum(run.entries * run.batch_size for _, run in self.new_runs()) + self.view.messages(self.firsts)

    @property
    def size(self) -> int:
        files = {run.path: run.bytes for _, run in self.new_runs()}
        return sum(files.values()) + self.view.size(self.firsts)

    @property
    def is_small(self) -> bool:
        return self.messages <= SMALL_MESSAGES and self.size <= SMALL_BYTES


class Written(NamedTuple):
    """Uncommitted files of the new view, and its number of messages."""

    adds: list[dict]
    messages: int


Write = Callable[[Compaction], Written]


def plan_compaction(layout: Layout, topic: Topic, partitions: Collection[int]) -> Compaction:
    """What to compact of these partitions now; creates a missing view."""
    view, until = make_view(topic), TableLog(topic.path).latest()
    ledgers = ledgers_until(layout, topic, until)
    firsts = {}
    for partition in partitions:
        known = ledgers.get(partition)
        first = known.first_after(view.horizon(partition)) if known else 0
        if known and first < known.end_position:
            firsts[partition] = first
    return Compaction(topic, view, until, ledgers, firsts, retains_null_key(layout, topic))
