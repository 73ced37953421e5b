"""Reading entries: the one door."""

import gc
from collections import Counter
from datetime import datetime, timezone

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import pulsar_spark as pulsar
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.delta.file_statistics import file_statistics
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.entries import message_files
from pulsar_spark.storage.entries.entries import EntryReader
from pulsar_spark.storage.entries.run_slices import read_slice
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import Topic, create_topic
from pulsar_spark.table_specs import MESSAGES


def rows(entries: list[tuple[int, int | None]], publish_id: str = "p", partition: int = -1) -> pa.Table:
    """Messages of (entry id, batch index); the payload says both."""
    sizes = Counter(entry for entry, _ in entries)
    return MESSAGES.rows(
        [
            dict(
                publish_id=publish_id,
                entry_id=entry,
                batch_index=index,
                batch_size=sizes[entry],
                partition=partition,
                payload=f"{entry}/{index}".encode(),
                publish_time=datetime(2024, 1, 1, tzinfo=timezone.utc),
            )
            for entry, index in entries
        ]
    )


def run(ledger_id, publish_id, first_entry_id, first_position, entries, batch_size, path) -> Run:
    return Run(
        first_position,
        entries,
        batch_size,
        ledger_id,
        publish_id,
        first_entry_id,
        path,
        None,
        None,
        0,
        False,
        False,
        True,
    )


def published(topic: Topic, table: pa.Table) -> tuple[int, str]:
    """Version and file of a publish commit with these rows."""
    version = AppendTable(topic.path).append(table)
    return version, TableLog(topic.path).commit(version).added[0].path


@pytest.fixture
def topic(tmp_path) -> Topic:
    return create_topic(Layout(tmp_path / "root"), "t")


def payloads(blocks) -> list[str]:
    return [payload.decode() for block in blocks for payload in block.column("payload").to_pylist()]


def test_a_part_of_a_file(topic):
    version, path = published(topic, rows([(number, None) for number in range(10)]))
    held = run(version, "p", 3, 103, 4, 1, path)
    assert payloads(EntryReader().rows_of(topic.path, held)) == ["3/None", "4/None", "5/None", "6/None"]


def test_rows_that_lie_in_any_order_come_in_order(topic):
    version, path = published(topic, rows([(2, 1), (1, 0), (2, 0), (0, 1), (1, 1), (0, 0)]))
    held = run(version, "p", 0, 0, 3, 2, path)
    assert payloads(EntryReader().rows_of(topic.path, held)) == ["0/0", "0/1", "1/0", "1/1", "2/0", "2/1"]


def test_batches_out_of_order_inside_an_entry(topic):
    version, path = published(topic, rows([(0, 1), (0, 0)]))
    assert payloads(EntryReader().rows_of(topic.path, run(version, "p", 0, 0, 1, 2, path))) == ["0/0", "0/1"]


def test_what_stays_decoded_of_many_small_files_is_bounded(topic):
    """A row of its own takes a hundred times the memory of its values."""
    kept, commits = 3, [published(topic, rows([(0, None)], f"p{number}")) for number in range(10)]
    files = EntryReader((kept + 1) * message_files._OF_A_GROUP)
    for number, (version, path) in enumerate(commits):
        assert payloads(files.rows_of(topic.path, run(version, f"p{number}", 0, number, 1, 1, path))) == ["0/None"]
    assert [path.rpartition("/")[2] for path, _, _ in files._groups._groups] == [path for _, path in commits[-kept:]]


def test_only_row_groups_that_hold_the_entries_are_read(topic, monkeypatch):
    version, path = published(topic, rows([(number, None) for number in range(10)]))
    pq.write_table(pq.read_table(f"{topic.path}/{path}"), f"{topic.path}/{path}", row_group_size=2)
    read, read_row_group = [], pq.ParquetFile.read_row_group

    def counting(self, group, *arguments, **options):
        read.append(group)
        return read_row_group(self, group, *arguments, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counting)
    files = EntryReader(1 << 20)
    for _ in range(2):
        assert payloads(files.rows_of(topic.path, run(version, "p", 3, 3, 4, 1, path))) == [
            "3/None",
            "4/None",
            "5/None",
            "6/None",
        ]
    assert read == [1, 2, 3]


def test_the_cache_is_bounded(topic):
    runs = []
    for number in range(5):
        version, path = published(topic, rows([(0, None)], f"p{number}"))
        runs.append(run(version, f"p{number}", 0, number, 1, 1, path))
    files = EntryReader(cached_bytes=1)
    for held in runs:
        assert payloads(files.rows_of(topic.path, held)) == ["0/None"]
    assert len(files._groups._groups) == 1


def test_a_large_group_is_handed_out_in_copied_blocks(topic):
    version, path = published(topic, rows([(number, None) for number in range(20_000)]))
    blocks = list(EntryReader().rows_of(topic.path, run(version, "p", 0, 0, 20_000, 1, path)))
    assert sum(block.num_rows for block in blocks) == 20_000 and max(block.num_rows for block in blocks) <= 2048
    assert all(block.get_total_buffer_size() < 2 * block.nbytes for block in blocks)


def test_a_file_that_was_rewritten_is_found_in_the_table(topic):
    version, path = published(topic, rows([(number, None) for number in range(3)], "p1"))
    published(topic, rows([(number, None) for number in range(3)], "p2"))
    table = DeltaTable(str(topic.path))
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert payloads(EntryReader().rows_of(topic.path, run(version, "p1", 1, 1, 2, 1, path))) == ["1/None", "2/None"]


def joined(topic: Topic, commits: int) -> list[Run]:
    """So many publishes of two messages, of which one file has become in any order; their runs."""
    runs = []
    for number in range(commits):
        version, path = published(topic, rows([(0, None), (1, None)], f"p{number * 7 % commits}"))
        runs.append(run(version, f"p{number * 7 % commits}", 0, 2 * number, 2, 1, path))
    table = DeltaTable(str(topic.path))
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    return runs


def test_a_file_of_many_publishes_is_decoded_once_for_who_reads_on(topic, monkeypatch):
    runs, read, read_row_group = joined(topic, 10), [], pq.ParquetFile.read_row_group

    def counting(self, group, *arguments, **options):
        read.append(group)
        return read_row_group(self, group, *arguments, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counting)
    files = EntryReader(1 << 20)
    for held in [*runs, runs[3]]:
        (block,) = files.rows_of(topic.path, held)
        assert payloads([block]) == ["0/None", "1/None"]
        assert block.get_total_buffer_size() < 2 * block.nbytes, "one kept message does not keep the file's others"
    assert read == [0]
    assert payloads(EntryReader().rows_of(topic.path, runs[3])) == ["0/None", "1/None"] and read == [0, 0]


def test_a_file_of_many_publishes_that_goes_while_it_is_read_is_found_again(topic):
    runs, files = joined(topic, 10), EntryReader(cached_bytes=1)
    published(topic, rows([(0, None)], "later"))
    assert payloads(files.rows_of(topic.path, runs[3])) == ["0/None", "1/None"]
    table = DeltaTable(str(topic.path))
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    files._groups._groups.clear()
    assert payloads(files.rows_of(topic.path, runs[4])) == ["0/None", "1/None"]


def test_footers_that_were_read_leave_nothing_for_the_collector(topic):
    """In a cycle they would stay for thousands of messages, 40 KB each."""
    commits = [published(topic, rows([(0, None)], f"p{number}")) for number in range(5)]

    def footers() -> int:
        return sum(isinstance(found, pq.FileMetaData) for found in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = footers()  # which others keep
        for number, (version, path) in enumerate(commits):
            file_statistics(pq.read_metadata(f"{topic.path}/{path}"))
            assert payloads(EntryReader().rows_of(topic.path, run(version, f"p{number}", 0, 0, 1, 1, path)))
        assert footers() == before
    finally:
        gc.enable()


def test_missing_messages_are_corrupt_state(topic):
    version, path = published(topic, rows([(0, None), (2, None)]))
    with pytest.raises(pulsar.CorruptState, match="found 2"):
        list(EntryReader().rows_of(topic.path, run(version, "p", 0, 0, 3, 1, path)))


def test_a_deleted_topic(topic):
    with pytest.raises(pulsar.TopicNotFound):
        list(EntryReader().rows_of(topic.path.with_name("gone"), run(1, "p", 0, 0, 1, 1, "part-0.parquet")))


def test_columns_that_another_writer_left_out_or_typed_otherwise(topic):
    table = rows([(0, None)]).drop_columns(["properties", "uuid"])
    write_deltalake(
        str(topic.path),
        table.set_column(0, "publish_id", pa.array(["p"], pa.large_string())),
        mode="append",
        schema_mode="merge",
    )
    path = TableLog(topic.path).commit(1).added[0].path
    (block,) = EntryReader().rows_of(topic.path, run(1, "p", 0, 0, 1, 1, path))
    assert block.column("properties").to_pylist() == [None] and block.column("payload").to_pylist() == [b"0/None"]


def in_groups(topic: Topic, groups: int, rows_each: int, payload: int) -> Run:
    """A publish in row groups of so many rows, with payloads of so many bytes."""
    table = rows([(number, None) for number in range(groups * rows_each)])
    payloads = pa.array([bytes([number % 251]) * payload for number in range(table.num_rows)], pa.binary())
    table = table.set_column(table.schema.get_field_index("payload"), "payload", payloads)
    version, path = published(topic, table)
    pq.write_table(pq.read_table(f"{topic.path}/{path}"), f"{topic.path}/{path}", row_group_size=rows_each)
    return run(version, "p", 0, 100, table.num_rows, 1, path)


def test_positions_here_and_there_cost_their_row_groups(topic, monkeypatch):
    held, read, read_row_group = in_groups(topic, 8, 4, 10), [], pq.ParquetFile.read_row_group

    def counting(self, group, *arguments, **options):
        read.append(group)
        return read_row_group(self, group, *arguments, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counting)
    spans = [(101, 101), (103, 104), (120, 120), (122, 122), (131, 131)]
    blocks = list(EntryReader().read(topic.path, held, spans, ["payload"]))
    positions = [position for block in blocks for position in block["position"].to_pylist()]
    assert positions == [101, 103, 104, 120, 122, 131] and read == [0, 1, 5, 7]
    assert {tuple(block.column_names) for block in blocks} == {("entry_id", "batch_index", "payload", "position")}


def test_no_more_than_a_row_group_is_held(topic):
    held = in_groups(topic, 16, 64, 16 * 1024)
    before, most = pa.total_allocated_bytes(), 0
    for _ in EntryReader().read(topic.path, held):
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < 6 * 64 * 16 * 1024, "of 16 MB"


def test_a_slice_has_every_position(topic):
    """An entry's first message speaks for it; one that is deleted says nothing."""
    version, path = published(topic, rows([(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]))
    held = run(version, "p", 0, 10, 3, 2, path)
    DeltaTable(str(topic.path)).delete("entry_id = 1")
    found = read_slice(topic.path, [held, held.part(12, 12)], ["payload"])
    assert found.to_pylist() == [
        {"position": 10, "payload": b"0/0"},
        {"position": 11, "payload": None},
        {"position": 12, "payload": b"2/0"},
        {"position": 12, "payload": b"2/0"},
    ]
