"""Files that Spark staged, without their duplicates: against one row after the other, and what is left of the files."""

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulsar_spark.protocol.policies.deduplication import app_id
from pulsar_spark.storage.delta.file_statistics import staged_statistics
from pulsar_spark.storage.delta.staged_files import StagedFile, staging_folder
from pulsar_spark.storage.topics.new_rows import new_rows

SCHEMA = pa.schema(
    [
        ("publish_id", pa.string()),
        ("entry_id", pa.int64()),
        ("payload", pa.binary()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("publish_time", pa.timestamp("us", tz="UTC")),
        ("producer_name", pa.string()),
        ("sequence_id", pa.int64()),
        ("chunk_id", pa.int32()),
    ]
)


def staged(table: Path, task: int, rows: list[tuple], partition: int | None = None) -> StagedFile:
    """A file with rows of (name, sequence id) or (name, sequence id, chunk id), in row groups of three."""
    folder = "" if partition is None else f"partition={partition}/"
    path = staging_folder(table) / "by-spark" / f"{folder}part-{task:05}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    filled = [
        ("id", (task << 33) + number, b"%d" % number, [("a", name or "")], number, name, each, *(rest or (None,)))
        for number, (name, each, *rest) in enumerate(rows)
    ]
    columns = [pa.array(values, field.type) for values, field in zip(zip(*filled), SCHEMA)]
    pq.write_table(pa.table(columns, SCHEMA), path, row_group_size=3)
    return StagedFile(path, str(path.relative_to(staging_folder(table) / "by-spark")), _statistics(path))


def _statistics(path: Path) -> dict:
    return staged_statistics(pq.read_metadata(path))


def left(table: Path, files: list[StagedFile], highest: dict[str, int] | None = None):
    """By file name the rows that are new, as (name, sequence id, payload), and the transactions."""
    with new_rows(table, files, highest or {}, 3) as new:
        found = {}
        for file in new.files:
            rows = pq.ParquetFile(file.source).read()
            assert file.statistics == _statistics(file.source)
            assert rows.schema.remove_metadata() == SCHEMA
            ids = rows["entry_id"].to_pylist()
            assert ids == list(range(ids[0], ids[0] + len(ids))), "dense, so that they can be numbered"
            assert [dict(each) for each in rows["properties"].to_pylist()] == [
                {"a": name or ""} for name in rows["producer_name"].to_pylist()
            ]
            columns = (rows[name].to_pylist() for name in ("producer_name", "sequence_id", "payload"))
            found[file.name] = list(zip(*columns))
        transactions = new.transactions
    assert all(file.source.exists() for file in files), "for another try"
    assert [each.name for each in staging_folder(table).iterdir()] == ["by-spark"]
    return found, transactions


def test_what_is_stored_and_what_is_there_twice_is_left_out(tmp_path):
    table = tmp_path / "t"
    files = [
        staged(table, 0, [("p", 1), ("p", 5), ("q", 5), ("p", 5), ("p", 3), (None, 1), ("p", None)]),
        staged(table, 1, [("p", 1), ("q", 2), ("p", 3)]),
        staged(table, 2, [("p", 9), ("q", 5), ("p", 4)]),
        staged(table, 3, [("q", 7), ("r", 1)]),
    ]
    highest = {app_id(3, -1, "p"): 2, app_id(3, -1, "q"): 2, app_id(3, 0, "q"): 99, app_id(2, -1, "q"): 99}
    found, transactions = left(table, files, highest)
    assert found == {
        "part-00000.parquet": [("p", 5, b"1"), ("q", 5, b"2"), ("p", 3, b"4"), (None, 1, b"5"), ("p", None, b"6")],
        "part-00002.parquet": [("p", 9, b"0"), ("p", 4, b"2")],
        "part-00003.parquet": [("q", 7, b"0"), ("r", 1, b"1")],
    }
    assert transactions == {app_id(3, -1, name): each for name, each in {"p": 9, "q": 7, "r": 1}.items()}


def test_a_file_without_duplicates_is_linked(tmp_path):
    file = staged(tmp_path / "t", 0, [("p", 1)])
    with new_rows(tmp_path / "t", [file], {}, 3) as new:
        assert new.files[0].source.samefile(file.source)
    assert left(tmp_path / "t", [file], {app_id(3, -1, "p"): 1}) == ({}, {})


def test_each_partition_by_itself(tmp_path):
    files = [staged(tmp_path / "t", task, [("p", 1), ("p", 2)], partition) for task, partition in ((0, 0), (1, 1))]
    found, transactions = left(tmp_path / "t", files, {app_id(3, 1, "p"): 1})
    assert [len(rows) for rows in found.values()] == [2, 1]
    assert transactions == {app_id(3, partition, "p"): 2 for partition in (0, 1)}


def test_the_chunks_of_a_message_go_together(tmp_path):
    file = staged(
        tmp_path / "t",
        0,
        [("p", 1, 0), ("p", 1, 1), ("p", 2, 0), ("p", 2, 1), ("p", 2, 2), ("p", 2, 0), ("p", 2, 1), ("p", 3, None)],
    )
    found, _ = left(tmp_path / "t", [file], {app_id(3, -1, "p"): 1})
    assert found == {"part-00000.parquet": [("p", 2, b"2"), ("p", 2, b"3"), ("p", 2, b"4"), ("p", 3, b"7")]}


@pytest.mark.parametrize("seed", range(20))
def test_against_one_row_after_the_other(tmp_path, seed):
    drawn = random.Random(seed)
    names = ["p", "q", "r"]
    tasks = [
        [(drawn.choice([*names, None]), drawn.choice([None, *range(12)])) for _ in range(drawn.randrange(1, 12))]
        for _ in range(drawn.randrange(1, 5))
    ]
    highest = {name: drawn.randrange(6) for name in drawn.sample(names, drawn.randrange(4))}
    seen, expected, most = set(), [], {}
    for task in tasks:
        for number, (name, each) in enumerate(task):
            if name is not None and each is not None:
                if (name, each) in seen or each <= highest.get(name, -1):
                    continue
                seen.add((name, each))
                most[name] = max(most.get(name, each), each)
            expected.append((name, each, b"%d" % number))
    files = [staged(tmp_path / "t", number, rows) for number, rows in enumerate(tasks)]
    found, transactions = left(tmp_path / "t", files, {app_id(3, -1, name): each for name, each in highest.items()})
    assert [row for name in sorted(found) for row in found[name]] == expected
    assert transactions == {app_id(3, -1, name): each for name, each in most.items()}
