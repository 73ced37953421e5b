"""Messages that were sent one at a time, as a client's producer leaves them, a commit each, but many a second: what a
publish commit is made of is written by hand, without syncs, locks and announcements."""

import json
import uuid
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pulsar_spark.client.sending.publish_rows import Entry, Outgoing, publish_rows
from pulsar_spark.storage.delta.commits import commit_text
from pulsar_spark.storage.delta.data_files import partition_values
from pulsar_spark.storage.delta.file_statistics import statistics
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.reader_rows import STATED, few_columns, stated_columns
from pulsar_spark.storage.topics.topics import Topic

PUBLISHED_MS = 1_700_000_000_000


def outgoing(payload: bytes = b"x", key: str | None = None, deliver_at_ms: int | None = None, **columns) -> Outgoing:
    """A message as its producer hands it to its publisher; *columns* say what a chunk says."""
    return Outgoing(payload, key, None, None, None, deliver_at_ms, PUBLISHED_MS, 0, 0.0, None, columns or None)


def send_singly(topic: Topic, entries: Sequence[Sequence[Outgoing]], producer: str = "single") -> None:
    """Publish each of *entries*, which are messages or batches of them, by a commit of its own."""
    log = TableLog(topic.path)
    first = log.latest() + 1
    partition = topic.partition_indexes[0]
    folder = "" if partition < 0 else f"partition={partition}/"
    Path(topic.path, folder).mkdir(exist_ok=True)
    for version, messages in enumerate(entries, first):
        rows, _ = publish_rows([Entry(partition, list(messages))], f"{version:032x}", producer)
        add = _written(Path(topic.path), folder, rows if partition < 0 else rows.drop_columns(["partition"]))
        fresh = log.folder / ".fresh"
        fresh.write_text(commit_text([add], {}))
        fresh.rename(log.file(version))


def _written(table: Path, folder: str, rows: pa.Table) -> dict:
    path = f"{folder}part-00000-{uuid.uuid4()}-c000.snappy.parquet"
    written = rows.select([name for name in rows.column_names if rows[name].null_count < rows.num_rows])
    pq.write_table(written, table / path, store_schema=False)
    return {
        "path": path,
        "partitionValues": partition_values(path),
        "size": (table / path).stat().st_size,
        "modificationTime": PUBLISHED_MS,
        "stats": json.dumps(statistics(rows)),
        STATED: stated_columns(written.schema, few_columns(written)),
    }
