"""The runs of a topic partition take little memory and are what they were."""

import random
import tracemalloc
from datetime import UTC, datetime, timedelta, timezone
from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from pulsar_spark.errors import CorruptState
from pulsar_spark.protocol.delays.instants import from_micros, to_micros
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.delta.actions import AddedFile, Commit
from pulsar_spark.storage.ledgers import packed_runs, publish_ids
from pulsar_spark.storage.ledgers.ledger_rows import ledger_rows, note_rows
from pulsar_spark.storage.ledgers.ledgers import by_partition, runs_of
from pulsar_spark.storage.ledgers.packed_columns import Flags, Optional, Texts
from pulsar_spark.storage.ledgers.partition_ledgers import PartitionLedgers
from pulsar_spark.storage.ledgers.publish_ids import PublishIds
from pulsar_spark.table_specs import LEDGERS

INSTANTS = partial(Optional, to_micros, from_micros)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "made, values",
    [
        (Texts, ["", "partition=1/a", "ü" * 40, "", "z"]),
        (Flags, [True, False, True]),
        (Optional, [None, 0, -(2**63), 2**63 - 1, None]),
        (
            partial(Optional, to_micros, from_micros),
            [None, NOON, datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)],
        ),
    ],
)
def test_what_was_appended_is_found(made, values):
    column = made()
    for value in values:
        column.append(value)
    assert [column[index] for index in range(len(values))] == values and column[-1] == values[-1]
    with pytest.raises(IndexError):
        column[len(values)]


def run(position: int) -> Run:
    there = NOON + timedelta(seconds=position), NOON.astimezone(timezone(timedelta(hours=2)))
    path = f"part-00000-{position:032d}-c000.snappy.parquet"
    return Run(
        position, 1, 1, position + 1, f"{position:032x}", 0, path, *there, 900, False, False, True, None, 7, False
    )


def test_runs_come_back_as_they_were_and_take_few_bytes():
    ledgers, count = PartitionLedgers(), 20_000
    tracemalloc.start()
    for position in range(count):
        ledgers.add(run(position))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken / count < 300
    assert list(ledgers.runs[:3]) == [run(position) for position in range(3)] and ledgers[count - 1] == run(count - 1)


def stored(runs: list[Run]) -> pa.Table:
    rows = ledger_rows("t", "id", {-1: runs[::2], 3: runs[1::2]})
    random.Random(1).shuffle(rows)
    return LEDGERS.rows(rows)


def facts(ledgers: PartitionLedgers) -> tuple:
    sums = [ledgers.messages_before(position) for position in range(ledgers.end_position + 1)]
    chunks = list(ledgers.chunk_runs(0))
    return (
        list(ledgers.runs),
        sums,
        ledgers.end_position,
        ledgers.last_delayed_position,
        ledgers.last_chunk_position,
        chunks,
    )


@pytest.mark.parametrize("harm", [None, "twice", "known before", "missing"])
def test_many_rows_at_once_are_taken_in_as_one_by_one(harm):
    runs, ends = [], {-1: 0, 3: 0}
    for number in range(40):
        partition = -1 if number % 2 == 0 else 3
        size, entries = number % 3 + 1, number % 5 + 1
        run = Run(ends[partition], entries, size, number + 1, f"{number:032x}", 0, f"p/{number}", NOON, None, 9, False,
                  number % 4 == 0, True, 5 if number % 7 == 0 else None, None, number % 2 == 0)  # fmt: skip
        ends[partition] += entries
        runs.append(run)
    rows = stored(runs if harm != "missing" else runs[:10] + runs[12:])
    rows = pa.concat_tables([rows, rows.slice(3, 9)]) if harm == "twice" else rows
    for topic_id, _, of_partition in by_partition(rows):
        at_once, one_by_one, failures = PartitionLedgers(), PartitionLedgers(), []
        if harm == "known before":
            at_once.add(min(run for _, _, run in runs_of(of_partition)))
        for take_in in (
            lambda: at_once.extend(of_partition),  # noqa: B023
            lambda: [one_by_one.add(run) for _, _, run in runs_of(of_partition)],  # noqa: B023
        ):
            try:
                take_in()
            except CorruptState as missing:
                failures.append(str(missing))
        assert topic_id == "id" and facts(at_once) == facts(one_by_one)
        assert len(set(failures)) == len(failures) // 2 == (harm == "missing"), failures


def test_rows_without_runs_are_no_partition():
    assert list(by_partition(LEDGERS.schema.empty_table())) == []
    assert list(by_partition(LEDGERS.rows(note_rows("t", "id", Commit(3, (), removed=1), [])))) == []


@pytest.mark.parametrize(
    "folder, partition", [("3", 3), ("", -1), (None, -1), ("\u00b2", -1), ("x", -1), ("9" * 9, -1)]
)
def test_a_foreign_file_may_lie_in_a_folder_of_any_name(folder, partition):
    foreign = AddedFile("f.parquet", 1, 1, {"partition": folder}, {}, {}, {})
    assert [row["partition"] for row in note_rows("t", "id", Commit(3, (), removed=0), [foreign])] == [partition]


def test_what_is_let_go_of_is_read_again_for_who_asks(monkeypatch):
    monkeypatch.setattr(packed_runs, "FEW", 1)
    drawn, runs, end = random.Random(3), [], 0
    for number in range(60):
        entries = drawn.randint(1, 4)
        runs.append(
            run(end)._replace(
                entries=entries,
                ledger_id=number // 2,
                batch_size=drawn.randint(1, 2),
                first_entry_id=5 * (number % 2),
                has_chunks=drawn.random() < 0.3,
                delayed_after=drawn.choice([None, 7]),
            )
        )
        end += entries
    whole = PartitionLedgers()
    for each in runs:
        whole.add(each)
    positions = range(-1, end + 1)
    asked = {
        "runs": lambda ledgers, at: list(ledgers.runs),
        "a run": lambda ledgers, at: ledgers[max(at, 0) % len(ledgers)],
        "index": lambda ledgers, at: ledgers.index_of(at),
        "entry": lambda ledgers, at: ledgers.index_of_entry(at // 5, at % 7),
        "behind": lambda ledgers, at: ledgers.first_after(at // 5),
        "messages": lambda ledgers, at: ledgers.messages_before(at),
        "overlapping": lambda ledgers, at: list(ledgers.overlapping(at, at + 9)),
        "chunks": lambda ledgers, at: list(ledgers.chunk_runs(at)),
        "sizes": lambda ledgers, at: ledgers.batch_sizes(np.array([max(at, 0) % end])).tolist(),
        "ends": lambda ledgers, at: (
            len(ledgers),
            ledgers.end_position,
            ledgers.last_ledger_id,
            ledgers.last_chunk_position,
            ledgers.last_delayed_position,
        ),
    }

    def read(below: int) -> pa.Table:
        return LEDGERS.rows(ledger_rows("t", "id", {-1: [each for each in runs if each.first_position < below]}))

    for _ in range(40):
        ledgers, known = PartitionLedgers(), 0
        while known < len(runs):
            more = drawn.randint(1, 20)
            for each in runs[known : known + more]:
                ledgers.add(each)
            known = min(known + more, len(runs))
            ledgers.drop_before(drawn.randint(0, end), read)
        for name in drawn.choices(list(asked), k=6):
            at = drawn.choice(positions)
            assert asked[name](ledgers, at) == asked[name](whole, at), (name, at)
    ledgers.drop_before(end, read)
    assert len(ledgers) == 60 and not ledgers._firsts and ledgers.end_position == end
    ledgers.add(run(end)._replace(ledger_id=31))
    assert ledgers.messages_before(end + 1) == whole.messages_before(end) + 1 and len(ledgers._firsts) == 1
    with pytest.raises(CorruptState, match="60"):
        PartitionLedgers(ledgers._past, lambda below: read(below - 4))[0]


def test_a_publish_id_is_known_by_its_hash_and_the_table(monkeypatch):
    monkeypatch.setattr(publish_ids, "FEW", 10)
    stored = {f"{number:032x}" for number in range(100)}
    known, asked = PublishIds(lambda each: asked.append(each) or each in stored), []
    known.add_stored(stored)
    assert f"{7:032x}" in known and asked == [f"{7:032x}"] and "new" not in known
    known.update(["new"])
    assert "new" in known and len(asked) == 1
    known.update(f"more {number}" for number in range(20))
    known.note_stored()
    assert not known._new and "new" not in known and asked[-1] == "new"
    stored.add("new")
    assert "new" in known
