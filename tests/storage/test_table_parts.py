"""Reading a table in parts: what comes is what holds, and what cannot hold it is not read."""

import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import WriterProperties, write_deltalake
from deltalake.exceptions import DeltaProtocolError

from pulsar_spark.errors import CorruptState
from pulsar_spark.storage.delta import table_parts
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import open_table
from pulsar_spark.storage.delta.table_parts import read_parts, term

SCHEMA = pa.schema(
    [("text", pa.string()), ("number", pa.int64()), ("count", pa.int32()), ("part", pa.int32()), ("new", pa.bool_())]
)
HOLDS = {
    "==": lambda found, value: found == value,
    ">": lambda found, value: found > value,
    ">=": lambda found, value: found >= value,
    "<": lambda found, value: found < value,
    "<=": lambda found, value: found <= value,
    "in": lambda found, values: found in values,
}


@pytest.fixture
def rows() -> list[dict]:
    rng = random.Random(7)
    texts = [None, "", "a", "ab", "ä", "z" * 100]
    return [
        {"text": rng.choice(texts), "number": rng.choice([None, *range(at // 10)]), "count": at % 7, "part": at % 3}
        for at in range(400)
    ]


@pytest.fixture
def table(tmp_path, rows) -> Path:
    """Of several files, each with several row groups; none has the column ``new``."""
    path = tmp_path / "a table of 100 %"
    for first in range(0, len(rows), 100):
        given = pa.Table.from_pylist(rows[first : first + 100], SCHEMA.remove(4))
        properties = WriterProperties(max_row_group_size=9)
        write_deltalake(path, given, mode="append", partition_by=["part"], writer_properties=properties)
    return path


def read(path: Path, columns: list[str], wanted=()) -> list[dict]:
    return [row for part in read_parts(open_table(path), SCHEMA, columns, wanted) for row in part.to_pylist()]


def random_term(rng: random.Random) -> tuple:
    columns = rng.choice(["text", "number", "count", "part", ("number", "count")])
    is_ = rng.choice(list(HOLDS))
    values = ["", "a", "aa", "z" * 100] if columns == "text" else range(-1, 50)
    return columns, is_, rng.sample(values, 3) if is_ == "in" else rng.choice(values)


def holds(row: dict, columns: str | tuple[str, ...], is_: str, value: object) -> bool:
    found = [row[name] for name in ((columns,) if isinstance(columns, str) else columns)]
    return None not in found and HOLDS[is_](found[0] if len(found) == 1 else sum(found), value)


@pytest.mark.parametrize("seed", range(60))
def test_the_rows_of_which_all_terms_hold(table, rows, seed):
    rng = random.Random(seed)
    terms = [random_term(rng) for _ in range(rng.randrange(4))]
    expected = [row | {"new": None} for row in rows if all(holds(row, *each) for each in terms)]
    found = read(table, SCHEMA.names, [term(*each) for each in terms])
    assert sorted(map(str, found)) == sorted(map(str, expected)), terms


def test_a_column_that_is_asked_for_alone(table, rows):
    found = read(table, ["count"], [term("number", ">", 30)])
    assert sorted(row["count"] for row in found) == sorted(row["count"] for row in rows if (row["number"] or 0) > 30)
    assert found[0].keys() == {"count"}


def test_so_many_rows_at_a_time(table, monkeypatch):
    monkeypatch.setattr(table_parts, "PART_ROWS", 8)
    sizes = [part.num_rows for part in read_parts(open_table(table), SCHEMA, ["text"])]
    assert sum(sizes) == 400 and max(sizes) <= 8


def test_files_that_cannot_hold_what_is_wanted_are_not_opened(tmp_path):
    for first in (0, 100):
        write_deltalake(tmp_path / "t", pa.table({"number": range(first, first + 100)}), mode="append")
    first, last = (file.path for commit in TableLog(tmp_path / "t").commits(-1) for file in commit.added)
    (tmp_path / "t" / first).unlink()
    assert len(read(tmp_path / "t", ["number"], [term("number", ">=", 150)])) == 50
    with pytest.raises(CorruptState, match=f"{first}.* is missing"):
        read(tmp_path / "t", ["number"], [term("number", ">", 98)])


def test_row_groups_that_cannot_hold_what_is_wanted_are_not_read(tmp_path, monkeypatch):
    rows, properties = pa.table({"number": range(100)}), WriterProperties(max_row_group_size=10)
    write_deltalake(tmp_path / "t", rows, writer_properties=properties)
    asked = []

    class Counting(pq.ParquetFile):
        def iter_batches(self, *args, row_groups, **kwargs):
            asked.append((row_groups, self.metadata.num_row_groups))
            return super().iter_batches(*args, row_groups=row_groups, **kwargs)

    monkeypatch.setattr(table_parts.pq, "ParquetFile", Counting)
    assert read(tmp_path / "t", ["number"], [term("number", "==", 39)]) == [{"number": 39}]
    assert asked == [([3], 10)]


@pytest.mark.parametrize("numbers, is_read", [(range(5, 15), False), ([5, None, 6], True), (range(4, 15), True)])
def test_a_column_of_which_all_rows_are_wanted_is_not_read(tmp_path, monkeypatch, numbers, is_read):
    asked = []

    class Counting(pq.ParquetFile):
        def iter_batches(self, *args, columns, **kwargs):
            asked.append(columns)
            return super().iter_batches(*args, columns=columns, **kwargs)

    rows = pa.table({"text": [str(number) for number in numbers], "number": pa.array(numbers, pa.int64())})
    write_deltalake(tmp_path / "t", rows)
    monkeypatch.setattr(table_parts.pq, "ParquetFile", Counting)
    found = read(tmp_path / "t", ["text"], [term("number", ">=", 5)])
    assert [row["text"] for row in found] == [str(number) for number in numbers if number is not None and number >= 5]
    assert asked == [["text", "number"] if is_read else ["text"]]


@pytest.mark.parametrize(
    "protocol, name",
    [
        ({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}, "deletionVectors"),
        ({"minReaderVersion": 2, "minWriterVersion": 5}, "columnMapping"),
    ],
)
def test_a_table_whose_files_are_not_its_rows_is_refused(table, protocol, name):
    if "readerFeatures" in protocol:
        protocol["writerFeatures"] = protocol["readerFeatures"]
    log = TableLog(table)
    log.file(log.latest() + 1).write_text(json.dumps({"protocol": protocol}) + "\n")
    with pytest.raises(DeltaProtocolError, match=name):
        read(table, ["text"])
