"""Trimming: taking out of a topic what every subscription has acknowledged and retention does not keep. It happens only
when it is asked for.

Whole ledgers go, the oldest first, as far as an unbroken run of them may; the newest ledger always stays, as Pulsar
keeps the one it writes to. One commit removes the files and says in a transaction per partition (:data:`TRIMMED`) up to
which ledger; so the broker knows in the same instant what is gone, moves cursors that were moved back meanwhile behind
it, and lets nobody seek before it. The files themselves stay until ``vacuum``.

What is refused is to take entries from under a subscription. Readers hold nothing, as those of Pulsar, whose cursors
are not durable: one that starts begins behind what was trimmed; one on its way, or a Spark job, reads on in the files
until ``vacuum``, an hour later at least, and a reader then passes over what is gone.

The commit is written here and not by ``deltalake``'s delete, because that would copy the rows that go into the change
feed; this reads and writes no row. Files that OPTIMIZE filled from several ledgers go when all of these may. Topics
that nobody subscribes to are left alone, unless a retention is set for them: dead letters wait there. Of a topic that
was ever compacted nothing goes that is not compacted yet (see compacted). Rules:
ManagedLedgerImpl.internalTrimLedgers; the guard is issue 4's.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa
from deltalake import DeltaTable

from pulsar_spark.errors import NotAllowedError
from pulsar_spark.protocol.expiry import Retention
from pulsar_spark.protocol.numbering import Run
from pulsar_spark.protocol.policies import policy_number, policy_text, set_policy_text
from pulsar_spark.storage.actions import TRIMMED
from pulsar_spark.storage.bundles import layout_of
from pulsar_spark.storage.commits import commit
from pulsar_spark.storage.compacted import CompactedView
from pulsar_spark.storage.cursor_ledger import LatestRows, read_latest
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers import ledgers_of_topic
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.partition_ledgers import PartitionLedgers
from pulsar_spark.storage.scan import open_table
from pulsar_spark.storage.tables import append_lock
from pulsar_spark.storage.topic_files import trimmed_ledgers
from pulsar_spark.storage.topics import Topic

COMPACTION = "__compaction"
"""Who needs what is not compacted yet, by the name of Pulsar's subscription."""
RETENTION = ("retention_seconds", "retention_bytes")
NEEDED = ("topic", "cursor", "policy", "letter", "waiting_letter")
"""Kinds of facts that say what may be trimmed."""


class Trim(NamedTuple):
    """What may go of one partition: everything below *first_position*, which are the ledgers up to *ledger_id*; and
    what keeps the rest."""

    partition: int
    ledger_id: int
    first_position: int
    kept_by: str


class Trimmed(NamedTuple):
    """A partition's :class:`Trim` with the files that go, or went."""

    trim: Trim
    files: int
    bytes: int


class _Ledger(NamedTuple):
    ledger_id: int
    publish_id: str
    first_position: int
    last_position: int
    bytes: int
    published: datetime | None


def plan_trim(
    topic: Topic,
    partition: int,
    ledgers: PartitionLedgers,
    latest: LatestRows,
    *,
    now: datetime,
    before: int | None = None,
    compacted_until: int | None = None,
) -> Trim:
    """What may go of a partition at *now*; with *before* all below that position, whatever retention says. Of a topic
    that was compacted, nothing behind the ledger *compacted_until*.

    :class:`NotAllowedError` if a subscription needs some of that."""
    held, holder = _held_from(topic, partition, ledgers, latest, compacted_until)
    if before is not None and before > held:
        raise NotAllowedError(
            f"topic {str(topic.name.partition(partition))!r}: subscription {holder or COMPACTION!r} needs "
            f"entries from position {held} on: "
            f"nothing from there on can go; trim before {held} or less, or move its cursor first"
        )
    retention = _retention(topic, latest)
    kept_by = f"subscription {holder}" if holder else "the newest ledger stays"
    if holder is None and retention is None and before is None:
        return Trim(partition, 0, 0, "nobody subscribes and no retention is set")
    whole = list(_whole_ledgers(ledgers.runs))[:-1]
    whole = [ledger for ledger in whole if ledger.last_position < (held if before is None else before)]
    newer = sum(ledger.bytes for ledger in whole)
    last: _Ledger | None = None
    for ledger in whole:
        age = (now - ledger.published).total_seconds() if ledger.published else float("inf")
        if before is None and not (retention or Retention(0, 0)).releases(age, newer):
            kept_by = "retention"
            break
        last, newer = ledger, newer - ledger.bytes
    if last is None:
        return Trim(partition, 0, 0, kept_by)
    return Trim(partition, last.ledger_id, last.last_position + 1, kept_by)


def trim_topic(
    layout: Layout,
    topic: Topic,
    partitions: list[int],
    *,
    now: datetime,
    before: int | None = None,
    dry_run: bool = False,
) -> list[Trimmed]:
    """Trim *partitions* of the topic in one commit; what went of each, or would go."""
    log = TableLog(topic.path)
    while True:
        with append_lock(topic.path):
            latest, view = read_latest(layout := layout_of(layout, topic.name), *NEEDED), CompactedView(topic.path)
            compacted = {each: view.horizon(each) if view.is_made else None for each in partitions}
            known = ledgers_of_topic(layout, topic.topic_id)
            table = open_table(topic.path)
            trims = [
                plan_trim(
                    topic,
                    partition,
                    known.get(partition, PartitionLedgers()),
                    latest,
                    now=now,
                    before=before,
                    compacted_until=compacted[partition],
                )
                for partition in partitions
            ]
            is_all_numbered = _is_all_numbered(log, topic, latest, table.version())
            found = {
                each.partition: _files(
                    table, topic, each, known.get(each.partition, PartitionLedgers()), is_all_numbered
                )
                for each in trims
            }
            removes = [remove for files in found.values() for remove in files]
            done = [
                Trimmed(each, len(found[each.partition]), sum(remove["size"] for remove in found[each.partition]))
                for each in trims
            ]
            gone = trimmed_ledgers(topic.path, partitions)
            transactions = {
                f"{TRIMMED}{each.partition}": max(each.ledger_id, gone[each.partition])
                for each in trims
                if each.ledger_id
            }
            if (
                dry_run
                or not removes
                or commit(topic.path, [table.version() + 1], [], transactions, removes) is not None
            ):
                return done


def _held_from(
    topic: Topic, partition: int, ledgers: PartitionLedgers, latest: LatestRows, compacted_until: int | None
) -> tuple[int, str | None]:
    """The first position that some subscription has not acknowledged, or has a letter to come of, and which, or that is
    to be compacted; that, or the end, and None where there is no subscription."""
    held = [
        (row["mark_delete_position"] + 1, key.subscription)
        for key, row in latest.cursors.items()
        if (key.topic_id, key.partition) == (topic.topic_id, partition)
    ]
    held += [
        (row["first"], f"{row['subscription']} (letters to be written)")
        for row in [*latest.letters, *latest.waiting_letters.values()]
        if (row["topic_id"], row["partition"]) == (topic.topic_id, partition)
    ]
    end = ledgers.end_position if compacted_until is None else ledgers.first_behind(compacted_until)
    return min([*held, (end, COMPACTION)] if held and end < ledgers.end_position else held, default=(end, None))


def _retention(topic: Topic, latest: LatestRows) -> Retention | None:
    """The topic's retention; None where none is set."""
    found = [set_policy_text(latest.policies, str(topic.name), name) for name in RETENTION]
    if found == [None, None]:
        return None
    return Retention(*(policy_number(name, policy_text(latest.policies, str(topic.name), name)) for name in RETENTION))


def _whole_ledgers(runs: list[Run]) -> Iterator[_Ledger]:
    """The publish commits of a partition, in order."""
    at = 0
    while at < len(runs):
        same = [run for run in runs[at : at + 1]]
        while at + len(same) < len(runs) and runs[at + len(same)].ledger_id == same[0].ledger_id:
            same.append(runs[at + len(same)])
        sizes = {run.path: run.bytes for run in same}
        published = max((run.max_publish_time for run in same if run.max_publish_time), default=None)
        yield _Ledger(
            same[0].ledger_id,
            same[0].publish_id,
            same[0].first_position,
            same[-1].last_position,
            sum(sizes.values()),
            published,
        )
        at += len(same)


def _is_all_numbered(log: TableLog, topic: Topic, latest: LatestRows, version: int) -> bool:
    """Has the broker seen every publish? Else a file of several ledgers may hold one it does not know."""
    return not any(each.added for each in log.commits(latest.numbered_until(topic.topic_id), version))


def _files(table: DeltaTable, topic: Topic, trim: Trim, ledgers: PartitionLedgers, is_all_numbered: bool) -> list[dict]:
    """The ``remove`` actions of the partition's files that hold nothing but trimmed ledgers."""
    if not trim.ledger_id:
        return []
    gone = {run.publish_id for run in ledgers.runs if run.ledger_id <= trim.ledger_id}
    kept = sorted({run.publish_id for run in ledgers.runs} - gone)
    columns = [
        "path",
        "size_bytes",
        "min.publish_id",
        "max.publish_id",
        *(["partition.partition"] if topic.partitions else []),
    ]
    removes = []
    for file in pa.table(table.get_add_actions(flatten=True)).select(columns).to_pylist():
        low, high = file["min.publish_id"], file["max.publish_id"]
        if topic.partitions and int(file["partition.partition"]) != trim.partition:
            continue
        is_whole = (
            low in gone
            and high in gone
            and (low == high or (is_all_numbered and not any(low <= publish_id <= high for publish_id in kept)))
        )
        if is_whole:
            removes.append(
                {
                    "path": file["path"],
                    "size": file["size_bytes"],
                    "partitionValues": {"partition": str(trim.partition)} if topic.partitions else {},
                }
            )
    return removes
