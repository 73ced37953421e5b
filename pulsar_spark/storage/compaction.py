"""Joining the small files of a topic to larger ones, as Delta's OPTIMIZE does: the rows stay as they are, and so does
what readers hold of them at a time.

``deltalake`` cuts row groups at a number of rows, which of messages of some megabytes are as large as the file. Here
they are cut at their bytes of payload, as wherever else messages are written (see data_files); and as a row group is
read at a time, too, joining takes two of them of memory. A commit that takes one of the files out meanwhile, a DELETE
or a trimming, goes first: the files it was to be joined with stay, until the next time. A crash leaves a file that no
commit names, which ``maintain vacuum`` takes away.
"""

import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from pulsar_spark.storage.commits import commit
from pulsar_spark.storage.data_files import conform, file_add, partition_values, regrouped, removing, write_parts
from pulsar_spark.storage.scan import dataset_of, open_table
from pulsar_spark.storage.tables import append_lock

JOINED_BYTES = 100 << 20
"""What Delta makes files of, too."""


def join_files(table: Path, opened: DeltaTable) -> tuple[int, int]:
    """Join files of the topic's *table*, partition by partition, in commits that change no data; how many went and came
    to be."""
    schema, gone, made = _schema(opened), 0, 0
    for files in _small_ones(opened):
        if _join(table, files, schema):
            gone, made = gone + len(files), made + 1
    return gone, made


def _schema(opened: DeltaTable) -> pa.Schema:
    """That of the files, which have no partition columns."""
    partitioned = opened.metadata().partition_columns
    return pa.schema(
        [field.with_nullable(True) for field in dataset_of(opened).schema if field.name not in partitioned]
    )


def _small_ones(opened: DeltaTable) -> Iterator[list[dict]]:
    """``remove`` actions of files of one partition that make up a larger one, the oldest first."""
    files = pa.table(opened.get_add_actions(flatten=True)).select(["path", "size_bytes", "min.publish_id"])
    by_folder: dict[str, list[dict]] = defaultdict(list)
    for file in files.sort_by([("min.publish_id", "ascending"), ("path", "ascending")]).to_pylist():
        path, size = file["path"], file["size_bytes"]
        if size < JOINED_BYTES:
            remove = {"path": path, "size": size, "partitionValues": partition_values(path)}
            by_folder[_folder(path)].append(remove)
    for of_folder in by_folder.values():
        joined, size = [], 0
        for file in of_folder:
            if size + file["size"] > JOINED_BYTES:
                yield from [joined] if len(joined) > 1 else []
                joined, size = [], 0
            joined.append(file)
            size += file["size"]
        yield from [joined] if len(joined) > 1 else []


def _folder(path: str) -> str:
    return path[: path.rfind("/") + 1]


def _join(table: Path, files: Sequence[dict], schema: pa.Schema) -> bool:
    """Put one file in the place of several, unless one of them has left the table."""
    paths = [file["path"] for file in files]
    path = f"{_folder(paths[0])}part-00000-{uuid.uuid4()}-c000.snappy.parquet"

    def versions() -> Iterator[int]:
        while set(paths) <= set(pa.table((now := open_table(table)).get_add_actions())["path"].to_pylist()):
            yield now.version() + 1

    with removing(table, [{"path": path}]):
        write_parts(table, path, schema, regrouped(_rows(table, paths, schema)))
        add = file_add(table, path)
    return commit(table, versions(), [add], {}, files, changes_data=False, held=lambda: append_lock(table)) is not None


def _rows(table: Path, paths: Sequence[str], schema: pa.Schema) -> Iterator[pa.Table]:
    """A row group at a time."""
    for path in paths:
        with pq.ParquetFile(table / path) as file:
            for number in range(file.num_row_groups):
                yield conform(file.read_row_group(number), schema)
