"""Commit a round: rows of ``ledgers`` first, then one commit of ``cursor_ledger``. Each append names its version, so a
replaced broker stops."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.committing.facts import housekeeping_row, round_row
from pulsar_spark.broker.committing.round_rows import RoundRows, rows_of_round
from pulsar_spark.broker.committing.snapshots import everything
from pulsar_spark.broker.requests.drafts import RoundDraft
from pulsar_spark.storage.cursor_ledger.client_rows import client_rows
from pulsar_spark.storage.cursor_ledger.cursor_ledger import concerned
from pulsar_spark.storage.delta.reader_rows import Readers, objects_of
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout

REQUESTS_UNSAID = 1000
"""Commits of requests without effect, such as signs of life, after which a round records them as consumed anyway, so
that they can be deleted."""


class RoundTables(NamedTuple):
    """The tables of a bundle that one broker's rounds append to."""

    ledgers: AppendTable
    cursor_ledger: AppendTable
    broker_id: str

    @classmethod
    def of(cls, layout: Layout, broker_id: str) -> "RoundTables":
        ledgers, cursor_ledger = (AppendTable(layout.broker_table(name)) for name in ("ledgers", "cursor_ledger"))
        return cls(ledgers, cursor_ledger, broker_id)


def is_worth_a_commit(bundle: Bundle, draft: RoundDraft, rows: RoundRows, requests_version: int) -> bool:
    """Did anything change? Also after the clock was set back, or many requests without effect."""
    is_far = requests_version >= bundle.requests_committed + REQUESTS_UNSAID
    return bool(rows.facts or rows.ranges or draft.was_set_back or is_far)


def round_table(
    bundle: Bundle,
    draft: RoundDraft,
    rows: RoundRows,
    *,
    requests_version: int,
    broker_id: str,
    is_snapshot: bool,
    housekept: Sequence[tuple[str, str, int]] = (),
    counts: Mapping[str, int] | None = None,
) -> pa.Table:
    """All rows of a round. A snapshot has the whole state; *housekept* are tables, what was done, and to how many;
    *counts* say what the round did, and how long it took."""
    rows.facts += [housekeeping_row(*done, draft.wall) for done in housekept]
    if is_snapshot:
        rows = everything(bundle, rows)
    rows.facts.append(
        round_row(
            wall=draft.wall,
            now=draft.now,
            requests_version=requests_version,
            epoch=bundle.epoch,
            broker_id=broker_id,
            is_snapshot=is_snapshot,
            served=bundle.served,
            counts=counts,
        )
    )
    return rows_of_round(draft.number, rows.facts, rows.ranges)


def commit_ledgers(tables: RoundTables, bundle: Bundle, rows: pa.Table) -> None:
    if rows.num_rows:
        topic_ids = pc.unique(rows["topic_id"]).to_pylist()
        readers = Readers(topic_ids, objects_of(rows))
        bundle.ledgers_version = tables.ledgers.append_fenced(rows, bundle.ledgers_version, readers)


def commit_round(
    tables: RoundTables, bundle: Bundle, number: int, rows: pa.Table, files: list[dict] | None = None
) -> None:
    """Commit the round, whose *files* may be written; from here on it is done."""
    of_clients = client_rows(rows)
    readers = Readers(concerned(rows, of_clients), objects_of(of_clients))
    bundle.version = tables.cursor_ledger.append_fenced(rows, bundle.version, readers, files)
    bundle.round = number
    bundle.outlived, bundle.has_lost_topics = [], False
