"""Positions and message ids."""

import random

import pytest

import pulsar_spark as pulsar
from pulsar_spark.errors import CorruptState
from pulsar_spark.storage.chunks.chunk_runs import chunk_runs_of
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers import ledger_index, packed_runs
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex, shared_index
from pulsar_spark.storage.topics.topics import prepare_root
from pulsar_spark.table_specs import LEDGERS

TASK = 1 << 33


def run(
    ledger_id: int,
    first_entry_id: int,
    first_position: int,
    entries: int,
    *,
    topic_id: str = "T",
    partition: int = -1,
    batch_size: int = 1,
) -> dict:
    return dict(
        topic="t",
        topic_id=topic_id,
        partition=partition,
        ledger_id=ledger_id,
        publish_id=f"p{ledger_id}",
        first_entry_id=first_entry_id,
        first_position=first_position,
        entries=entries,
        batch_size=batch_size,
        path=f"{ledger_id}-{first_entry_id}.parquet",
    )


@pytest.fixture
def layout(tmp_path) -> Layout:
    layout = Layout(tmp_path / "root")
    prepare_root(layout)
    return layout


@pytest.fixture
def ledgers(layout):
    return AppendTable(layout.broker_table("ledgers"))


def cut(index: LedgerIndex, first: int, last: int, topic_id: str = "T", partition: int = -1) -> list[tuple]:
    return [
        (found.ledger_id, found.first_entry_id, found.first_position, found.entries)
        for found in index.runs(topic_id, partition, first, last)
    ]


def test_runs_are_cut_to_the_positions_asked_for(layout, ledgers):
    ledgers.append(
        LEDGERS.rows(
            [
                run(1, 0, 0, 10),
                run(2, 0, 10, 5),
                run(2, TASK, 15, 5),
                run(9, 0, 0, 99, topic_id="U"),
                run(9, 0, 0, 99, partition=3),
            ]
        )
    )
    index = LedgerIndex(layout)
    assert cut(index, 8, 16) == [(1, 8, 8, 2), (2, 0, 10, 5), (2, TASK, 15, 2)]
    assert cut(index, 12, 12) == [(2, 2, 12, 1)]
    assert cut(index, 98, 98, topic_id="U") == [(9, 98, 98, 1)]
    assert cut(index, 0, 0, partition=3) == [(9, 0, 0, 1)]


def test_later_commits_are_followed(layout, ledgers):
    ledgers.append(LEDGERS.rows([run(1, 0, 0, 2)]))
    index = LedgerIndex(layout)
    assert cut(index, 0, 1) == [(1, 0, 0, 2)]
    ledgers.append(LEDGERS.rows([run(2, 0, 2, 2), run(1, 0, 0, 7, topic_id="U")]))
    assert cut(index, 1, 3) == [(1, 1, 1, 1), (2, 0, 2, 2)]
    assert cut(index, 6, 6, topic_id="U") == [(1, 6, 6, 1)]


def test_rows_the_broker_wrote_twice_count_once(layout, ledgers):
    index = LedgerIndex(layout)
    ledgers.append(LEDGERS.rows([run(1, 0, 0, 2), run(2, 0, 2, 2)]))
    assert cut(index, 0, 3) == [(1, 0, 0, 2), (2, 0, 2, 2)]
    ledgers.append(LEDGERS.rows([run(2, 0, 2, 2), run(3, 0, 4, 1)]))
    assert cut(index, 3, 4) == [(2, 1, 3, 1), (3, 0, 4, 1)]


def test_ids_to_positions(layout, ledgers):
    ledgers.append(LEDGERS.rows([run(1, 0, 0, 10), run(4, 0, 10, 5, batch_size=3), run(4, TASK, 15, 5)]))
    index = LedgerIndex(layout)
    found = [
        index.find("T", -1, *entry)
        for entry in ((1, 9), (1, 10), (2, 0), (4, 4), (4, 5), (4, TASK + 1), (5, 0), (0, 0), (-1, -1))
    ]
    assert found == [(9, 1), None, None, (14, 3), None, (16, 1), None, None, None]
    assert [index.next_position("T", -1, *entry) for entry in ((0, 0), (1, 10), (2, 0), (4, 5), (5, 0))] == [
        0,
        10,
        10,
        15,
        20,
    ]
    assert (index.end("T", -1), index.last_ledger_id("T", -1)) == (20, 4)
    assert (index.end("T", 7), index.last_ledger_id("T", 7), index.find("T", 7, 1, 0)) == (0, -1, None)


def test_a_delivered_position_without_a_ledger_is_corrupt_state(layout, ledgers):
    ledgers.append(LEDGERS.rows([run(1, 0, 0, 2)]))
    with pytest.raises(pulsar.CorruptState, match="position 2"):
        cut(LedgerIndex(layout), 1, 2)


def test_a_small_part_of_many_runs_is_in_memory(layout, ledgers, monkeypatch):
    drawn, rows, end = random.Random(5), [], 0
    for number in range(100):
        entries = drawn.randint(1, 3)
        rows.append(run(number // 2 + 1, 10 * (number % 2), end, entries, batch_size=drawn.randint(1, 2)))
        end += entries
    for first in range(0, 80, 16):
        ledgers.append(LEDGERS.rows(rows[first : first + 16] + [run(first + 1, 0, 0, 9, topic_id="other")]))
    few, whole = LedgerIndex(layout), LedgerIndex(layout)
    monkeypatch.setattr(ledger_index, "STRETCH", 4)
    monkeypatch.setattr(packed_runs, "FEW", 1)
    for first in range(76, 100, 4):
        if first >= 80:
            ledgers.append(LEDGERS.rows(rows[first : first + 4]))
        assert few.end("T", -1) == rows[first + 3]["first_position"] + rows[first + 3]["entries"]
    with monkeypatch.context() as as_it_is:
        as_it_is.setattr(ledger_index, "STRETCH", 1000)
        assert whole.end("T", -1) == end and whole._topics["T"][-1].in_memory == 100
    for index in (few, LedgerIndex(layout)):
        assert index.end("T", -1) == end and index._topics["T"][-1].in_memory <= 12
        for _ in range(50):
            first = drawn.randrange(end)
            last = min(first + drawn.choice([0, 1, 5, 60]), end - 1)
            spans = [(at, min(at + 2, last)) for at in range(first, last + 1, drawn.choice([3, 7, 20]))]
            assert list(index.runs("T", -1, first, last)) == list(whole.runs("T", -1, first, last))
            assert index.spans_of("T", -1, spans) == whole.spans_of("T", -1, spans)
            assert index._topics["T"][-1].in_memory <= 12 and len(index._stretches["T", -1]) <= 4
        assert [index.find("T", -1, 3, entry_id) for entry_id in range(12)] == [
            whole.find("T", -1, 3, entry_id) for entry_id in range(12)
        ]
        assert index.next_position("T", -1, 7, 3) == whole.next_position("T", -1, 7, 3)
        with pytest.raises(CorruptState, match=f"position {end} "):
            list(index.runs("T", -1, 0, end))


@pytest.mark.parametrize("has_chunks", [False, True])
def test_for_chunks_nothing_else_of_what_is_past_is_loaded(layout, ledgers, monkeypatch, has_chunks):
    rows = [run(number + 1, 0, number, 1) for number in range(40)]
    if has_chunks:
        rows[3] |= dict(has_chunks=True, chunks_from=3)
    ledgers.append(LEDGERS.rows(rows))
    monkeypatch.setattr(ledger_index, "STRETCH", 4)
    index = LedgerIndex(layout)
    assert index.last_chunk_position("T", -1) == (3 if has_chunks else -1)
    assert [each.ledger_id for each in chunk_runs_of(layout, "T", -1).chunk_runs(0)] == ([4] if has_chunks else [])
    assert index._topics["T"][-1].in_memory == 4 and index.end("T", -1) == 40


def test_of_a_small_table_a_second_topic_reads_what_came_since_the_first(layout, ledgers, monkeypatch):
    opened, read = [], []
    open_table, read_added = ledger_index.open_table, ledger_index.read_added
    monkeypatch.setattr(ledger_index, "open_table", lambda *asked: opened.append(asked) or open_table(*asked))
    monkeypatch.setattr(ledger_index, "read_added", lambda *asked: read.append(asked[1].version) or read_added(*asked))
    ledgers.append(LEDGERS.rows([run(1, 0, 0, 10), run(1, 0, 0, 5, topic_id="U")]))
    index = LedgerIndex(layout)
    assert cut(index, 0, 0) == [(1, 0, 0, 1)] and len(opened) == 1
    ledgers.append(LEDGERS.rows([run(2, 0, 5, 5, topic_id="U")]))
    ledgers.append(LEDGERS.rows([run(3, 0, 10, 5, topic_id="U"), run(3, 0, 0, 5, topic_id="V")]))
    assert cut(index, 0, 14, topic_id="U") == [(1, 0, 0, 5), (2, 0, 5, 5), (3, 0, 10, 5)]
    read.clear()
    assert cut(index, 0, 4, topic_id="V") == [(3, 0, 0, 5)]
    assert len(opened) == 1 and read == []


def test_a_table_that_is_no_longer_small_is_opened_again(layout, ledgers, monkeypatch):
    monkeypatch.setattr(ledger_index, "STRETCH", 2)
    ledgers.append(LEDGERS.rows([run(1, 0, 0, 10)]))
    index = LedgerIndex(layout)
    assert cut(index, 0, 0) == [(1, 0, 0, 1)]
    ledgers.append(LEDGERS.rows([run(2, 0, 0, 5, topic_id=f"U{number}") for number in range(9)]))
    assert cut(index, 0, 4, topic_id="U1") == [(2, 0, 0, 5)]
    assert index._few is None


def test_of_many_topics_those_asked_about_first_are_loaded_again(layout, ledgers, monkeypatch):
    monkeypatch.setattr(ledger_index, "MOST_TOPICS", 2)
    ledgers.append(LEDGERS.rows([run(1, 0, 0, 10, topic_id=name) for name in "TUV"]))
    index = LedgerIndex(layout)
    for name in "TUVT":
        assert cut(index, 3, 4, topic_id=name) == [(1, 3, 3, 2)]
        assert len(index._topics) <= 2
    ledgers.append(LEDGERS.rows([run(2, 0, 10, 10, topic_id=name) for name in "TUV"]))
    for name in "UVT":
        assert cut(index, 12, 13, topic_id=name) == [(2, 2, 12, 2)]


def test_clients_of_a_process_share_what_they_know_until_the_last_is_closed(layout, ledgers):
    ledgers.append(LEDGERS.rows([run(1, 0, 0, 10)]))
    first, second = shared_index(layout), shared_index(layout)
    assert first is second and cut(first, 0, 0) == [(1, 0, 0, 1)]
    first.forget()
    assert list(second._topics) == ["T"]
    second.forget()
    assert not second._topics and second._few is None
    assert cut(shared_index(layout), 0, 0) == [(1, 0, 0, 1)]
