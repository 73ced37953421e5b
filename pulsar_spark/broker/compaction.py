"""Compacting a topic: its compacted view is made anew from the view there was and what was published behind its horizon
(see storage.compacted, and protocol.compaction for what stays).

Spark does it, as frames (compaction_job), in whatever process asks: the broker's, for a topic above its
``compaction_threshold`` (compaction_upkeep), a command's, a job's. What is small, at most :data:`SMALL_MESSAGES` and
:data:`SMALL_BYTES`, is done here, where it is, without a JVM, by the pure rule. Nobody decides anything and no cursor
moves, so no round takes part; a broker need not run.

Of a topic one compaction runs at a time (storage.compaction_status). One that finds nothing new since the last changes
nothing. A crash anywhere before its commit leaves the view that was, and the next takes the same rows again.
"""

import time
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.errors import NotAllowedError
from pulsar_spark.protocol.compaction import Keyed, payload_size, survivors
from pulsar_spark.protocol.numbering import Run
from pulsar_spark.protocol.policies import COMPACTION_RETAIN_NULL_KEY, policy_number, policy_text
from pulsar_spark.storage.compacted import CompactedView, Facts, make_view, replace_rows
from pulsar_spark.storage.compaction_status import compacting
from pulsar_spark.storage.cursor_ledger import read_latest
from pulsar_spark.storage.data_files import conform, write_files
from pulsar_spark.storage.entries import EntryReader
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers import ledgers_until
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.partition_ledgers import PartitionLedgers
from pulsar_spark.storage.topics import Topic
from pulsar_spark.table_specs import COMPACTED

SMALL_MESSAGES, SMALL_BYTES = 100_000, 64 * 1024 * 1024
_JUDGED = ("position", "batch_index", "partition_key")


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
    def is_small(self) -> bool:
        """May it be done without Spark? Chunked messages it puts together."""
        runs = [run for _, run in self.new_runs()]
        messages = sum(run.entries * run.batch_size for run in runs) + self.view.messages(self.behind)
        stored = sum({run.path: run.bytes for run in runs}.values()) + self.view.size(self.behind)
        return messages <= SMALL_MESSAGES and stored <= SMALL_BYTES and not any(run.may_have_chunks for run in runs)


class Written(NamedTuple):
    """Files of the new view, which no commit names yet, and how many messages are not in it that were read for it."""

    adds: list[dict]
    removed: int


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
    policies = read_latest(layout, "policy").policies
    retains = policy_number(
        COMPACTION_RETAIN_NULL_KEY, policy_text(policies, str(topic.name), COMPACTION_RETAIN_NULL_KEY)
    )
    return Compaction(topic, view, until, ledgers, behind, bool(retains))


def compact(layout: Layout, topic: Topic, partitions: Collection[int], by_spark: Write | None = None) -> bool:
    """Compact these partitions of the topic, with what Spark writes where it is much; False where there was nothing
    new. :class:`NotAllowedError` while another compaction of it runs, and without Spark where it takes one."""
    with compacting(topic):
        started = time.monotonic()
        asked = plan_compaction(layout, topic, partitions)
        if not asked.behind and asked.view.is_made:
            return False
        if asked.is_small:
            write = write_small
        elif by_spark is not None:
            write = by_spark
        else:
            raise NotAllowedError(
                f"topic {str(topic.name)!r}: to compact more than {SMALL_MESSAGES} messages or {SMALL_BYTES} bytes, or "
                f"chunked messages, takes Spark: 'pulsar-spark compact {topic.name}' starts it"
            )
        written = write(asked)
        facts = Facts(written.removed, round(1000 * (time.monotonic() - started)))
        replace_rows(asked.view, dict.fromkeys(asked.behind, asked.until), written.adds, facts)
        return bool(asked.behind)


def bytes_behind(layout: Layout, topic: Topic) -> int:
    """What was published to a topic behind its horizons, as far as its log goes."""
    view = CompactedView(topic.path)
    found: dict[str, int] = {}
    for partition, ledgers in ledgers_until(layout, topic, TableLog(topic.path).latest()).items():
        first = ledgers.first_behind(view.horizon(partition))
        if first < ledgers.end_position:
            found |= {run.path: run.bytes for run in ledgers.parts(first, ledgers.end_position - 1)}
    return sum(found.values())


def write_small(asked: Compaction) -> Written:
    """What stays, without Spark."""
    rows = pa.concat_tables([COMPACTED.schema.empty_table(), *_rows(asked)])
    sizes = zip(
        pc.binary_length(rows["payload"]).to_pylist(),
        rows["uncompressed_size"].to_pylist(),
        rows["encryption_keys"].is_valid().to_pylist(),
    )
    judged: dict[int, list[Keyed]] = {}
    at: dict[tuple[int, int, int], int] = {}
    places = zip(rows["partition"].to_pylist(), *(rows[name].to_pylist() for name in _JUDGED), sizes)
    for number, (partition, position, index, key, (stored, uncompressed, is_encrypted)) in enumerate(places):
        size = payload_size(stored, uncompressed=uncompressed, is_encrypted=is_encrypted)
        judged.setdefault(partition, []).append(Keyed(position, index or 0, key, size))
        at[partition, position, index or 0] = number
    stay = [
        at[partition, *place]
        for partition, messages in sorted(judged.items())
        for place in survivors(messages, retain_null_key=asked.retain_null_key)
    ]
    found = rows.take(pa.array(stay, pa.int64()))
    adds = write_files(asked.view.path, found, bool(asked.topic.partitions)) if stay else []
    return Written(adds, rows.num_rows - len(stay))


def _rows(asked: Compaction) -> Iterator[pa.Table]:
    """The view's rows and the new ones, in the view's columns."""
    entries = EntryReader()
    for partition in asked.behind:
        yield from asked.view.rows_behind(partition, 0)
    for partition, run in asked.new_runs():
        for rows in entries.rows_of(asked.topic.path, run):
            same = {"partition": partition, "ledger_id": run.ledger_id, "publish_id": run.publish_id}
            yield conform(rows, COMPACTED.schema, {name: str(value) for name, value in same.items()})
