"""Compaction of small topics without Spark, in memory."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.broker.compaction.compaction_plan import Compaction, Written
from pulsar_spark.errors import UnreadableMessage
from pulsar_spark.protocol.policies.compaction import Keyed, payload_size, survivors
from pulsar_spark.storage.chunks.chunk_groups import ChunkGroups
from pulsar_spark.storage.chunks.chunks import ChunkedMessages
from pulsar_spark.storage.delta.data_files import conform, sync_files, write_files
from pulsar_spark.storage.entries.entries import EntryReader
from pulsar_spark.table_specs import CHUNK_COLUMNS, COMPACTED


def write_small(compaction: Compaction) -> Written:
    rows = pa.concat_tables([COMPACTED.schema.empty_table(), *_rows(compaction)])
    judged: dict[int, list[Keyed]] = {}
    at: dict[tuple[int, int, int], int] = {}
    for number, (partition, message) in enumerate(_judged(rows)):
        judged.setdefault(partition, []).append(message)
        at[partition, message.position, message.batch_index] = number
    stay = [
        at[partition, *place]
        for partition, messages in sorted(judged.items())
        for place in survivors(messages, retain_null_key=compaction.retain_null_key)
    ]
    found = rows.take(pa.array(stay, pa.int64()))
    adds = write_files(compaction.view.path, found, bool(compaction.topic.partitions)) if stay else []
    sync_files(compaction.view.path, adds)
    return Written(adds, len(stay))


def _judged(rows: pa.Table) -> Iterator[tuple[int, Keyed]]:
    """Partition and place of each row, and what decides its survival."""
    places = (rows[name].to_pylist() for name in ("partition", "position", "batch_index", "partition_key"))
    stored, uncompressed = pc.binary_length(rows["payload"]).to_pylist(), rows["uncompressed_size"].to_pylist()
    are_encrypted = rows["encryption_keys"].is_valid().to_pylist()
    for partition, position, index, key, *sizes in zip(*places, stored, uncompressed, are_encrypted):
        size = payload_size(sizes[0], uncompressed=sizes[1], is_encrypted=sizes[2])
        yield partition, Keyed(position, index or 0, key, size)


def _rows(compaction: Compaction) -> Iterator[pa.Table]:
    entries, table = EntryReader(), compaction.topic.path
    for partition, first in compaction.firsts.items():
        yield from compaction.view.rows_after(partition, 0)
        ledgers = compaction.ledgers[partition]
        chunked = _Chunked(compaction, partition, first, entries) if ledgers.last_chunk_position >= first else None
        for run in ledgers.parts(first, ledgers.end_position - 1):
            for rows in entries.rows_of(table, run):
                same = {"partition": partition, "ledger_id": run.ledger_id, "publish_id": run.publish_id}
                found = conform(rows, COMPACTED.schema, {name: str(value) for name, value in same.items()})
                yield chunked.in_one_piece(found) if chunked and run.may_have_chunks else found


class _Chunked:
    def __init__(self, compaction: Compaction, partition: int, first: int, entries: EntryReader):
        ledgers = compaction.ledgers[partition]
        self._messages = ChunkedMessages(compaction.topic.path, entries, ledgers.spans_of)
        firsts, lasts = ChunkGroups(compaction.topic.path, ledgers).units(first, ledgers.end_position - 1)
        self._parts = self._messages.parts(dict(zip(lasts.tolist(), firsts.tolist())))

    def in_one_piece(self, rows: pa.Table) -> pa.Table:
        """*rows* with chunked messages joined; incomplete ones are left out."""
        is_chunk = pc.and_(rows["uuid"].is_valid(), rows["batch_index"].is_null())
        chunks = rows.filter(is_chunk)
        joined = (self._joined(chunks.slice(number, 1)) for number in range(chunks.num_rows))
        return pa.concat_tables([rows.filter(pc.invert(is_chunk)), *joined])

    def _joined(self, last: pa.Table) -> pa.Table:
        """The message whose last chunk is this row, if any."""
        parts = self._parts.get(last["position"][0].as_py())
        try:
            payload = None if parts is None or not len(parts) else self._messages.joined(parts)
        except UnreadableMessage:
            payload = None
        if payload is None:
            return last.slice(0, 0)
        rest = last.drop_columns(["payload", *CHUNK_COLUMNS])
        return conform(rest.append_column("payload", pa.array([payload], pa.binary())), COMPACTED.schema)
