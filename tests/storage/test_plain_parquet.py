"""Files of few rows that Arrow did not write: it reads what was written, notices what changed on the disk, and finds
the footer that it would have written."""

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulsar_spark.storage.delta.file_statistics import file_statistics
from pulsar_spark.storage.delta.reader_rows import few_columns
from pulsar_spark.storage.store.plain_parquet import plain_parquet

KINDS = {
    "text": pa.string(),
    "bytes": pa.binary(),
    "number": pa.int64(),
    "small number": pa.int32(),
    "instant": pa.timestamp("us", tz="UTC"),
}
RUNS = 40


def _values(drawn: random.Random, kind: pa.DataType, rows: int) -> list:
    bits = 31 if kind == pa.int32() else 50
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        texts = ["".join(drawn.choices("a\0ß€😀", k=drawn.choice((0, 1, 130, 700)))) for _ in range(rows)]
        return texts if pa.types.is_string(kind) else [text.encode() for text in texts]
    return [drawn.choice((0, -(2**bits), 2**bits - 1, drawn.randrange(-1000, 1000))) for _ in range(rows)]


def _footer(rows: pa.Table, path) -> pq.FileMetaData:
    content = plain_parquet(rows.schema, few_columns(rows))
    assert content is not None
    path.write_bytes(content)
    return pq.read_metadata(path)


@pytest.mark.parametrize("seed", range(RUNS))
def test_what_is_read_is_what_was_written(tmp_path, seed):
    drawn, file, by_arrow = random.Random(seed), tmp_path / "plain", tmp_path / "arrow"
    count = drawn.choice((1, 1, 2, 16))
    names = [f"{drawn.choice(list(KINDS))} {number}" for number in range(drawn.choice((1, 3, 14, 15, 20)))]
    kinds = [KINDS[name.rsplit(" ", 1)[0]] for name in names]
    columns = [pa.array(_values(drawn, kind, count), kind) for kind in kinds]
    rows = pa.table(columns, names)
    if rows.nbytes > 8 * 1024:
        rows = rows.slice(0, 1).select(names[:2])
    footer = _footer(rows, file)
    pq.write_table(rows, by_arrow, store_schema=False)
    read = pq.read_table(file, page_checksum_verification=True)
    assert read.equals(rows) and read.schema.equals(rows.schema)
    assert footer.schema.equals(pq.read_metadata(by_arrow).schema)
    assert file_statistics(footer) == file_statistics(pq.read_metadata(by_arrow))


def test_a_byte_that_changes_on_the_disk_is_noticed(tmp_path):
    file = tmp_path / "plain"
    _footer(pa.table({"bytes": pa.array([b"payload"])}), file)
    file.write_bytes(file.read_bytes().replace(b"payload", b"pay1oad"))
    with pytest.raises(OSError, match="CRC"):
        pq.read_table(file, page_checksum_verification=True)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, None], pa.int64()),
        pa.array([[1], [2]], pa.list_(pa.int64())),
        pa.array([True, False]),
        pa.array([], pa.int64()),
        pa.array([1, 2], pa.timestamp("ms", tz="UTC")),
        pa.array(["x" * 5000] * 2),
    ],
    ids=["null", "list", "truth", "no rows", "milliseconds", "large"],
)
def test_what_it_cannot_write_is_left_to_arrow(column):
    rows = pa.table({"column": column})
    few = few_columns(rows)
    assert not few or plain_parquet(rows.schema, few) is None
