"""Who asks for some runs of a topic partition reads these, each once, and no others."""

import pytest

from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers import needed_runs
from pulsar_spark.storage.ledgers.needed_runs import delayed_runs, passed_paths, runs_from
from pulsar_spark.storage.topics.topics import prepare_root
from pulsar_spark.table_specs import LEDGERS


def run(number: int, *, topic_id: str = "a", partition: int = -1, delayed_after: int | None = 0) -> dict:
    return dict(
        topic="t",
        topic_id=topic_id,
        partition=partition,
        ledger_id=number + 1,
        publish_id=f"{number:032x}",
        first_position=10 * number,
        first_entry_id=0,
        entries=10,
        batch_size=1,
        bytes=1,
        path=f"{number}.parquet",
        has_delayed=delayed_after is not None,
        has_chunks=False,
        has_keys=False,
        delayed_after=delayed_after,
    )


@pytest.fixture
def layout(tmp_path) -> Layout:
    """Ten runs, of which every second has delayed entries; others' beside them, and one that was written twice."""
    layout = Layout(tmp_path / "root")
    prepare_root(layout)
    rows = [run(number, delayed_after=None if number % 2 else -5) for number in range(10)]
    others = [run(4, topic_id="b"), run(4, partition=2), run(4, delayed_after=-5)]
    AppendTable(layout.broker_table(LEDGERS.name)).append(LEDGERS.rows(rows + others))
    return layout


def firsts(runs: list[Run]) -> list[int]:
    return [each.first_position for each in runs]


@pytest.mark.parametrize(
    ("first", "last", "found"),
    [(0, 99, [0, 20, 40, 60, 80]), (9, 20, [0, 20]), (10, 19, []), (49, 60, [40, 60]), (50, 59, []), (90, 10**9, [])],
)
def test_delayed_runs_between_positions(layout, first, last, found):
    assert firsts(delayed_runs(layout, "a", -1, first, last)) == found


def test_delayed_runs_of_another_partition_and_topic(layout):
    assert [firsts(delayed_runs(layout, *place)) for place in [("a", -1), ("a", 2), ("b", -1), ("c", -1)]] == [
        [0, 20, 40, 60, 80],
        [40],
        [40],
        [],
    ]


def test_no_other_runs_are_read(layout, monkeypatch):
    read, runs_of = [], needed_runs.runs_of
    monkeypatch.setattr(needed_runs, "runs_of", lambda rows: read.append(rows.num_rows) or runs_of(rows))
    delayed_runs(layout, "a", -1, 40, 49)
    assert read == [2], "one, twice"


@pytest.mark.parametrize(("first", "found"), [(0, 0), (40, 4), (49, 4), (50, 5), (99, 9), (100, 10)])
def test_runs_from_a_position_on_are_in_order_and_others_are_not_known(layout, first, found):
    known = runs_from(layout.broker_table(LEDGERS.name), "a", -1, first)
    assert firsts(known.runs) == [10 * number for number in range(found, 10)]
    assert known.begins_at == (10 * found if found < 10 else 0)


def test_files_are_passed_of_which_every_run_is(layout):
    path, files = layout.broker_table(LEDGERS.name), {f"{number}.parquet" for number in range(3, 8)}

    def passed(firsts: dict[int, int]) -> set[str]:
        return passed_paths(path, "a", firsts, files)

    assert passed({-1: 60}) == passed({-1: 69}) == {"3.parquet", "4.parquet", "5.parquet"}
    assert passed({-1: 60, 2: 40}) == {"3.parquet", "5.parquet"}, "another partition needs the fourth"
    assert passed({-1: 0}) == passed({7: 60}) == passed({}) == set()
