"""Trimming: on request, remove from a topic what every subscription has acknowledged and retention does not keep.

Whole ledgers go, oldest first; the newest stays, as in Pulsar. One commit removes the files and states the last ledger
that is gone. Without subscriptions a retention must be set, because dead letters wait there. Rules:
ManagedLedgerImpl.internalTrimLedgers.
"""

from bisect import bisect_left
from datetime import datetime
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from pulsar_spark.errors import NotAllowedError
from pulsar_spark.protocol.policies.expiry import Retention
from pulsar_spark.protocol.policies.policies import policy_number, policy_text, set_policy_text
from pulsar_spark.storage.compaction.compacted import CompactedView
from pulsar_spark.storage.cursor_ledger.cursor_ledger import LatestRows, read_latest
from pulsar_spark.storage.delta.actions import TRIMMED
from pulsar_spark.storage.delta.commits import commit
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import open_table
from pulsar_spark.storage.delta.table_lock import lock_where_there_is_one
from pulsar_spark.storage.entries.topic_files import trimmed_ledgers
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.whole_ledgers import NOTHING, WholeLedgers, whole_ledgers
from pulsar_spark.storage.topics.bundles import layout_of
from pulsar_spark.storage.topics.topics import Topic

COMPACTION = "__compaction"
"""Named like Pulsar's subscription, it needs what is not yet compacted."""
RETENTION = ("retention_seconds", "retention_bytes")
NEEDED = ("topic", "cursor", "policy", "letter", "waiting_letter")


class Trim(NamedTuple):
    """What may go from a partition: ledgers up to *ledger_id*, below *first_position*; and what keeps the rest."""

    partition: int
    ledger_id: int
    first_position: int
    kept_by: str


class Trimmed(NamedTuple):
    """A partition's :class:`Trim` with the files that are (or would be) removed."""

    trim: Trim
    files: int
    bytes: int


def plan_trim(
    topic: Topic,
    partition: int,
    ledgers: WholeLedgers,
    latest: LatestRows,
    *,
    now: datetime,
    before: int | None = None,
    compacted_until: int | None = None,
) -> Trim:
    """Decide what to trim of a partition at *now*; *before* overrides retention, up to that position.

    In a compacted topic nothing after ledger *compacted_until* goes. :class:`NotAllowedError` if a subscription needs
    some of that.
    """
    needed, holder = _needed_from(topic, partition, ledgers, latest, compacted_until)
    if before is not None and before > needed:
        raise NotAllowedError(
            f"topic {str(topic.name.partition(partition))!r}: subscription {holder or COMPACTION!r} needs the "
            f"entries from position {needed} on: trim before {needed} or less, or move its cursor first"
        )
    retention = _retention(topic, latest)
    kept_by = f"subscription {holder}" if holder else "the newest ledger stays"
    if holder is None and retention is None and before is None:
        return Trim(partition, 0, 0, "nobody subscribes and no retention is set")
    until = needed if before is None else before
    count, most = int(np.searchsorted(ledgers.last_positions, until)), max(len(ledgers.ledger_ids) - 1, 0)
    if count > most:
        count, kept_by = most, "the newest ledger stays"
    if before is None and count > (released := _released(ledgers, count, retention or Retention(0, 0), now)):
        count, kept_by = released, "retention"
    if not count:
        return Trim(partition, 0, 0, kept_by)
    return Trim(partition, int(ledgers.ledger_ids[count - 1]), int(ledgers.last_positions[count - 1]) + 1, kept_by)


def _released(ledgers: WholeLedgers, count: int, retention: Retention, now: datetime) -> int:
    """How many of the first *count* ledgers, all acknowledged, *retention* does not keep."""
    if retention == Retention(0, 0):
        return count
    ages = now.timestamp() - ledgers.published[:count] / 1e6
    newer = np.cumsum(ledgers.bytes[:count][::-1])[::-1]
    each = enumerate(zip(ages.tolist(), newer.tolist()))
    return next((at for at, (age, size) in each if not retention.releases(age, size)), count)


def trim_topic(
    layout: Layout,
    topic: Topic,
    partitions: list[int],
    *,
    now: datetime,
    before: int | None = None,
    dry_run: bool = False,
) -> list[Trimmed]:
    """Trim *partitions* in one commit, for which publishers wait; returns what was (or would be) removed."""
    layout = layout_of(layout, topic.name)
    log, numbered = TableLog(topic.path), read_latest(layout, "topic").numbered_until(topic.topic_id)
    known = whole_ledgers(layout, topic.topic_id)  # at least those numbered by then
    while True:
        with lock_where_there_is_one(topic.path):
            latest, view, table = read_latest(layout, *NEEDED), CompactedView(topic.path), open_table(topic.path)
            is_all_numbered = not any(each.added for each in log.commits(numbered, table.version()))
            gone = trimmed_ledgers(topic.path, partitions)
            done, removes, transactions = list[Trimmed](), list[dict](), dict[str, int]()
            for partition in partitions:
                ledgers, compacted = known.get(partition, NOTHING), view.horizon(partition) if view.is_made else None
                trim = plan_trim(topic, partition, ledgers, latest, now=now, before=before, compacted_until=compacted)
                files = _files(table, topic, trim, ledgers, is_all_numbered)
                removes += files
                done.append(Trimmed(trim, len(files), sum(file["size"] for file in files)))
                if trim.ledger_id:
                    transactions[f"{TRIMMED}{partition}"] = max(trim.ledger_id, gone[partition])
            if dry_run or not removes:
                return done
            if commit(topic.path, [table.version() + 1], [], transactions, removes) is not None:
                return done


def _needed_from(
    topic: Topic, partition: int, ledgers: WholeLedgers, latest: LatestRows, compacted_until: int | None
) -> tuple[int, str | None]:
    """The first position that a subscription, its letters or compaction need, with its holder; else the end, None."""
    needed = [
        (row["mark_delete_position"] + 1, key.subscription)
        for key, row in latest.cursors.items()
        if (key.topic_id, key.partition) == (topic.topic_id, partition)
    ]
    needed += [
        (row["first"], f"{row['subscription']} (letters to be written)")
        for row in [*latest.letters, *latest.waiting_letters.values()]
        if (row["topic_id"], row["partition"]) == (topic.topic_id, partition)
    ]
    end = ledgers.end_position if compacted_until is None else ledgers.first_after(compacted_until)
    if needed and end < ledgers.end_position:
        needed.append((end, COMPACTION))
    return min(needed, default=(end, None))


def _retention(topic: Topic, latest: LatestRows) -> Retention | None:
    found = [set_policy_text(latest.policies, str(topic.name), name) for name in RETENTION]
    if found == [None, None]:
        return None
    return Retention(*(policy_number(name, policy_text(latest.policies, str(topic.name), name)) for name in RETENTION))


def _files(table: DeltaTable, topic: Topic, trim: Trim, ledgers: WholeLedgers, is_all_numbered: bool) -> list[dict]:
    if not trim.ledger_id:
        return []
    columns = {"path": "path", "size": "size_bytes", "low": "min.publish_id", "high": "max.publish_id"}
    actions = pa.table(table.get_add_actions(flatten=True))
    if topic.partitions:
        actions = actions.filter(pc.equal(actions["partition.partition"].cast(pa.int64()), trim.partition))
    files = pa.table({name: actions[column] for name, column in columns.items()})
    is_gone = pa.array(ledgers.run_ledger_ids <= trim.ledger_id)
    gone, kept = ledgers.publish_ids.filter(is_gone), ledgers.publish_ids.filter(pc.invert(is_gone))
    files = files.filter(pc.and_(pc.is_in(files["low"], gone), pc.is_in(files["high"], gone)))
    is_one = pc.equal(files["low"], files["high"])
    whole = files.filter(is_one).to_pylist()
    if is_all_numbered:
        of_several = files.filter(pc.invert(is_one)).to_pylist()
        whole += _without(of_several, kept.filter(pc.invert(pc.is_in(kept, gone)))) if of_several else []
    values = {"partition": str(trim.partition)} if topic.partitions else {}
    return [{"path": file["path"], "size": file["size"], "partitionValues": values} for file in whole]


def _without(files: list[dict], kept: pa.Array) -> list[dict]:
    """Those of *files* between whose lowest and highest publish id none is *kept*."""
    kept = kept.take(pc.sort_indices(kept))

    def holds(file: dict) -> bool:
        at = bisect_left(range(len(kept)), file["low"], key=lambda index: kept[index].as_py())
        return at < len(kept) and kept[at].as_py() <= file["high"]

    return [file for file in files if not holds(file)]
