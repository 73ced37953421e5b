"""Views of entries in SQL say what the latest rows say, whatever rows said before."""

import random

import pyarrow as pa
import pytest

from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, PENDING, REPLAY
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, LatestRows
from pulsar_spark.storage.session import local_frame
from pulsar_spark.table_specs import CURSOR_LEDGER
from pulsar_spark.views.entries import entries_in

KEY = CursorKey("T", -1, "s")
CURSOR = {"topic": "t", **KEY._asdict()}


def rounds(seed: int, count: int, size: int) -> list[list[dict]]:
    """Rows of rounds that deal entries, give some back, and acknowledge some one by one or all of a delivery."""
    draw, states, found, mark_delete = random.Random(seed), {}, [], -1
    for number in range(1, count + 1):
        rows = [{**CURSOR, "kind": "cursor", "mark_delete_position": mark_delete}]
        if draw.random() < 0.15:
            states, mark_delete = {}, draw.randrange(size // 4) - 1
            rows.append({**CURSOR, "kind": "reset"})
        if draw.random() < 0.3:
            name, delivery_round = draw.choice("ab"), draw.randrange(1, number + 1)
            first, last = sorted(draw.sample(range(size), 2))
            answer = {"status": ACKNOWLEDGED, "consumer_id": name, "delivery_round": delivery_round}
            rows.append({**CURSOR, "kind": "range", "first": first, "last": last, **answer})
            answered = [at for at in range(first, last + 1) if states.get(at) == (PENDING, name, delivery_round)]
            states |= dict.fromkeys(answered, (ACKNOWLEDGED,))
        else:
            edges = sorted(draw.sample(range(size), 4))
            for first, last in (edges[:2], (edges[2], edges[3])):
                rows += _range(draw, states, number, first, last)
        if draw.random() < 0.2:
            states |= dict.fromkeys(range(mark_delete + 1 + size // 20), (ACKNOWLEDGED,))
        while states.get(mark_delete + 1) == (ACKNOWLEDGED,):
            mark_delete += 1
        rows[0]["mark_delete_position"] = mark_delete
        found.append([row | {"round": number} for row in [{"kind": "round"}, *rows]])
    return found


def _range(draw: random.Random, states: dict, number: int, first: int, last: int) -> list[dict]:
    status = draw.choice([PENDING, PENDING, REPLAY, ACKNOWLEDGED])
    is_whole = draw.random() < 0.5
    at = [
        each
        for each in range(first, last + 1)
        if states.get(each) != (ACKNOWLEDGED,) and (is_whole or draw.random() < 0.4)
    ]
    if not at:
        return []
    row = {**CURSOR, "kind": "range", "first": at[0], "last": at[-1], "status": status}
    if len(at) <= at[-1] - at[0]:
        row |= {"positions": at, "entries": len(at)}
    if status == PENDING:
        row |= {"consumer_id": draw.choice("ab"), "delivery_round": number, "batch_size": 1}
    elif status == REPLAY:
        row |= {"redelivery_count": draw.randrange(3), "batch_size": 1}
    states |= dict.fromkeys(at, (status, *(row[name] for name in ("consumer_id", "delivery_round") if name in row)))
    return [row]


@pytest.mark.parametrize("seed, count, size", [(1, 12, 300), (4, 20, 30_000)])
def test_the_latest_row_about_an_entry_wins(spark, seed, count, size):
    latest, tables = LatestRows(), []
    for rows in rounds(seed, count, size):
        tables.append(CURSOR_LEDGER.rows(rows))
        latest.apply(tables[-1])
    statuses = (PENDING, REPLAY, ACKNOWLEDGED)
    found = spark.sql(entries_in(*statuses), rows=local_frame(spark, pa.concat_tables(tables)))
    found = (
        found.select("first", "last", "status", "consumer_id", "delivery_round", "redelivery_count")
        .orderBy("first")
        .collect()
    )
    expected = []
    for range_ in latest.ranges(KEY):
        alike = range_[2:6]
        if expected and expected[-1][2:] == alike and expected[-1][1] + 1 == range_.first:
            expected[-1] = (expected[-1][0], range_.last, *alike)
        elif range_.first > latest.cursors[KEY]["mark_delete_position"]:
            expected.append((range_.first, range_.last, *alike))
    assert [tuple(row) for row in found] == expected and len({row.status for row in found}) == 3
