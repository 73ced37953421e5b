"""Files that tasks write themselves: their rows in order, row groups that a reader can hold, and what a lost attempt
leaves."""

import pyarrow as pa
import pyarrow.parquet as pq

from pulsar_spark.storage.delta import task_files
from pulsar_spark.storage.delta.data_files import ROW_GROUP_BYTES
from pulsar_spark.storage.delta.task_files import ByTasks, _write_into


def batch(first: int, rows: int, size: int = 1, partitions: int = 1) -> pa.RecordBatch:
    numbers = range(first, first + rows)
    return pa.RecordBatch.from_pydict(
        {
            "payload": [number.to_bytes(4, "big").rjust(size, b"x") for number in numbers],
            "partition": pa.array([number % partitions for number in numbers], pa.int32()),
        }
    )


def written(folder, batches, partition_by=("partition",), at_once=4, **constants) -> list[str]:
    (told,) = _write_into(str(folder), partition_by, ByTasks(at_once, constants))(iter(batches))
    return told["file"].to_pylist()


def numbers(file) -> list[int]:
    return [int.from_bytes(each[-4:], "big") for each in pq.read_table(file)["payload"].to_pylist()]


def test_each_partition_has_a_file_with_its_rows_in_order(tmp_path):
    files = written(tmp_path, [batch(0, 100, partitions=3), batch(100, 50, partitions=4)])
    assert [file.split("/")[0] for file in files] == [f"partition={value}" for value in range(4)]
    found = [numbers(tmp_path / file) for file in files]
    of_both = [number % 3 for number in range(100)] + [number % 4 for number in range(100, 150)]
    assert found == [[number for number, value in enumerate(of_both) if value == each] for each in range(4)]


def test_without_partitions_all_rows_of_a_task_are_one_file(tmp_path):
    (file,) = written(tmp_path, [batch(0, 10), batch(10, 10)], partition_by=())
    assert (
        numbers(tmp_path / file) == list(range(20))
        and pq.read_table(tmp_path / file)["partition"].to_pylist() == [0] * 20
    )


def test_what_is_constant_is_in_all_rows(tmp_path):
    files = written(
        tmp_path, [batch(0, 4, partitions=2)], publish_id=pa.scalar("p"), batch_size=pa.scalar(1, pa.int32())
    )
    for file in files:
        rows = pq.read_table(tmp_path / file, partitioning=None)
        assert rows.select(["publish_id", "batch_size"]).to_pylist() == [{"publish_id": "p", "batch_size": 1}] * 2


def test_a_task_without_rows_writes_nothing(tmp_path):
    assert written(tmp_path, []) == [] and not list(tmp_path.iterdir())


def test_row_groups_have_the_payload_that_they_may_have(tmp_path):
    """Of batches that are smaller, and of one that is larger; rows of a row group as well."""
    (file,) = written(tmp_path, [batch(10 * each, 10, 1000) for each in range(10)], at_once=ROW_GROUP_BYTES // 20_000)
    footer = pq.read_metadata(tmp_path / file)
    assert [footer.row_group(each).num_rows for each in range(footer.num_row_groups)] == [20] * 5


def test_readers_are_told_what_lies_in_which_page(tmp_path):
    (file,) = written(tmp_path, [batch(0, 50_000)])
    column = pq.read_metadata(tmp_path / file).row_group(0).column(0)
    assert column.has_column_index and column.has_offset_index


def test_rows_of_a_row_group_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(task_files, "ROW_GROUP_ROWS", 15)
    (file,) = written(tmp_path, [batch(10 * each, 10) for each in range(4)])
    footer = pq.read_metadata(tmp_path / file)
    assert [footer.row_group(each).num_rows for each in range(footer.num_row_groups)] == [15, 5, 15, 5]


def test_files_that_no_attempt_told_of_are_not_taken_in(spark, tmp_path):
    """Each task's first attempt leaves a file and is lost."""

    def twice(batches):
        batches = list(batches)
        list(_write_into(str(tmp_path), ("partition",), ByTasks(2, {}))(iter(batches)))
        yield from batches

    rows = spark.range(0, 20, 1, 2).selectExpr(
        "cast(cast(id as string) as binary) payload", "cast(id % 2 as int) partition"
    )
    found = task_files.write_task_files(rows.mapInArrow(twice, rows.schema), tmp_path, ("partition",), ByTasks(2, {}))
    assert len(found) == len(set(found)) == 4 and len(list(tmp_path.rglob("*.parquet"))) == 8
    assert sum(pq.read_metadata(tmp_path / file).num_rows for file in found) == 20
