"""What a compaction is about: which messages there are behind the horizons of a topic's compacted view."""

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from pulsar_spark.protocol.numbering import Run
from pulsar_spark.storage.compacted import CompactedView, make_view
from pulsar_spark.storage.compaction_policies import retains_null_key
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers import ledgers_until
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.partition_ledgers import PartitionLedgers
from pulsar_spark.storage.topics import Topic

SMALL_MESSAGES, SMALL_BYTES = 100_000, 64 * 1024 * 1024


class Compaction(NamedTuple):
    """What is to be compacted: the messages of *topic* behind the horizons of the *view*, up to version *until* of its
    table, and those of the view, of each of the partitions of *behind*: there is something new in each."""

    topic: Topic
    view: CompactedView
    until: int
    ledgers: dict[int, PartitionLedgers]
    behind: dict[int, int]
    """The first position behind the horizon, by partition."""
    retain_null_key: bool

    def new_runs(self) -> Iterator[tuple[int, Run]]:
        """What was published behind the horizons."""
        for partition, first in self.behind.items():
            ledgers = self.ledgers[partition]
            yield from ((partition, run) for run in ledgers.parts(first, ledgers.end_position - 1))

    @property
    def messages(self) -> int:
        """How many it begins with; of chunked ones the chunks."""
        return sum(run.entries * run.batch_size for _, run in self.new_runs()) + self.view.messages(self.behind)

    @property
    def size(self) -> int:
        """Bytes of the files that they are in."""
        files = {run.path: run.bytes for _, run in self.new_runs()}
        return sum(files.values()) + self.view.size(self.behind)

    @property
    def is_small(self) -> bool:
        """May it be done without Spark?"""
        return self.messages <= SMALL_MESSAGES and self.size <= SMALL_BYTES


class Written(NamedTuple):
    """Files of the new view, which no commit names yet, and how many messages it has."""

    adds: list[dict]
    messages: int


Write = Callable[[Compaction], Written]


def plan_compaction(layout: Layout, topic: Topic, partitions: Collection[int]) -> Compaction:
    """What there is to compact of these partitions now. Makes the view's table, where there is none."""
    view, until = make_view(topic), TableLog(topic.path).latest()
    ledgers = ledgers_until(layout, topic, until)
    behind = {}
    for partition in partitions:
        known = ledgers.get(partition)
        first = known.first_behind(view.horizon(partition)) if known else 0
        if known and first < known.end_position:
            behind[partition] = first
    return Compaction(topic, view, until, ledgers, behind, retains_null_key(layout, topic))
