"""The table ``delay_index`` of a bundle: load its buckets, and commit changes.

A bucket has files with entries and one with its segments' statistics. One more file, replaced by each commit, has the
indexed positions. A bucket's number is the version after the one known when it was written.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError

from pulsar_spark.errors import BrokerFenced, CorruptState, NotAllowedError
from pulsar_spark.storage.delay_index.delay_buckets import Bucket
from pulsar_spark.storage.delay_index.delay_files import check_name, write_named
from pulsar_spark.storage.delay_index.delay_notes import (
    ENTRY,
    INDEXED,
    NO_BUCKET,
    SEGMENT,
    Indexed,
    NewBucket,
    indexed_from,
    indexed_rows,
    schema_of,
    segment_rows,
    statistics_from,
)
from pulsar_spark.storage.delay_index.delay_segments import Places
from pulsar_spark.storage.delta.commits import commit
from pulsar_spark.storage.delta.data_files import conform, file_add, partition_values, removing
from pulsar_spark.storage.delta.definitions import create_table
from pulsar_spark.storage.delta.dropped import drop_table
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import open_table
from pulsar_spark.storage.delta.staged_files import remove_staged
from pulsar_spark.storage.entries.topic_files import READ_ERRORS, raise_unless_damage
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes.lease import BundleLease
from pulsar_spark.storage.store.away import check_there
from pulsar_spark.storage.store.durability import is_durable, sync_file, sync_folder
from pulsar_spark.storage.store.faults import is_fault_of_disk
from pulsar_spark.storage.store.store import AnyPath, store_of
from pulsar_spark.table_specs import DELAY_INDEX

_PATH = re.compile(rf"bucket=-?\d+/kind=({ENTRY}|{SEGMENT}|{INDEXED})/[^/]+")


class LostBucket(NamedTuple):
    """A bucket with a missing or damaged file, its places (None: unknown), and the cause."""

    number: int
    places: set[int] | None
    why: str


class Loaded(NamedTuple):
    """The table's buckets, indexed positions by number of the place, and lost buckets."""

    buckets: list[Bucket]
    indexed: dict[int, Indexed]
    lost: list[LostBucket]


class DelayTable:
    """The table of one bundle, which may not exist."""

    def __init__(self, layout: Layout):
        self.path = layout.broker_table(DELAY_INDEX.name)
        self._log = TableLog(self.path)
        self._live: dict[tuple[int, str], dict[str, int]] = {}
        """The files that the table has, with their sizes, by bucket and kind."""
        self.version = -1

    @property
    def is_there(self) -> bool:
        return self._log.latest() >= 0

    def folder(self, bucket: int, kind: str = ENTRY) -> AnyPath:
        return self.path / f"bucket={bucket}" / f"kind={kind}"

    def new_folder(self) -> tuple[int, AnyPath]:
        """The next bucket's number and folder; creates the table if necessary."""
        if self.version < 0:
            create_table(self.path, DELAY_INDEX, partition_by=("bucket", "kind"))
            self.version = max(0, self._log.latest())
        number = self.version + 1
        folder = self.folder(number)
        check_there(folder)
        folder.mkdir(parents=True, exist_ok=True)
        return number, folder

    def remove(self) -> None:
        with suppress(FileNotFoundError):
            drop_table(self.path)
        self._live, self.version = {}, -1

    def remove_staged(self) -> None:
        remove_staged(self.path)

    def unnamed(self) -> list[AnyPath]:
        """Files in the table's folders that are not part of it."""
        live = {self._relative(*key, name) for key, files in self._live.items() for name in files}
        there = store_of(self.path).below(self.path, without="_")
        return [self.path / name for name in there if name.endswith(".parquet") and name not in live]

    def paths_of(self, numbers: Iterable[int]) -> list[AnyPath]:
        keys = [(number, kind) for number in numbers for kind in (ENTRY, SEGMENT)]
        return [self.folder(*key) / name for key in keys for name in self._live.get(key, {})]

    def load(self, places: Places) -> Loaded:
        """Load the table's content; empty without a table."""
        self.version, self._live = self._log.latest(), {}
        if self.version < 0:
            return Loaded([], {}, [])
        try:
            table = open_table(self.path)
            rows = pa.table(table.get_add_actions())
        except (CorruptState, DeltaError) as error:
            if is_fault_of_disk(error):
                raise
            return Loaded([], {}, [LostBucket(NO_BUCKET, None, str(error).splitlines()[0])])
        self.version = table.version()
        for path, size in zip(rows["path"].to_pylist(), rows["size_bytes"].to_pylist()):
            if not _PATH.fullmatch(unquote(path)):
                return Loaded([], {}, [LostBucket(NO_BUCKET, None, f"{path!r} is not one of its files")])
            self._note_live(unquote(path), size)
        indexed, expected, lost = self._indexed(places)
        buckets: list[Bucket] = []
        there = {number for number, _ in self._live} - {NO_BUCKET}
        if there != expected and not lost:
            lost.append(LostBucket(NO_BUCKET, None, f"buckets {sorted(there ^ expected)} differ from the log"))
        for number in sorted(there):
            bucket = self._bucket(number, places)
            if isinstance(bucket, LostBucket):
                lost.append(bucket)
            else:
                buckets.append(bucket)
        return Loaded(buckets, indexed, lost)

    def _note_live(self, path: str, size: int) -> None:
        values, name = partition_values(path), path.rpartition("/")[2]
        self._live.setdefault((int(values["bucket"]), values["kind"]), {})[name] = size

    def _indexed(self, places: Places) -> tuple[dict[int, Indexed], set[int], list[LostBucket]]:
        """Indexed positions, the numbers of all buckets, and lost buckets."""
        files = list(self._live.get((NO_BUCKET, INDEXED), {}))
        if not self.version:
            return {}, set(), []
        if len(files) != 1:
            return {}, set(), [LostBucket(NO_BUCKET, None, f"it has {len(files)} files that say what is indexed")]
        try:
            return *indexed_from(self._notes(NO_BUCKET, INDEXED, files[0]), places), []
        except READ_ERRORS as error:
            raise_unless_damage(error)
            return {}, set(), [LostBucket(NO_BUCKET, None, str(error))]

    def _bucket(self, number: int, places: Places) -> Bucket | LostBucket:
        sizes, folder = dict(sorted(self._live.get((number, ENTRY), {}).items())), self.folder(number)
        notes = list(self._live.get((number, SEGMENT), {}))
        if len(notes) != 1:
            return LostBucket(number, None, f"it has {len(notes)} files that say what is in its segments")
        try:
            rows = self._notes(number, SEGMENT, notes[0])
        except READ_ERRORS as error:
            raise_unless_damage(error)
            return LostBucket(number, None, str(error))
        for name in sorted(sizes.keys() | set(rows["path"].to_pylist())):
            if name not in sizes or not _has_size(folder / name, sizes[name]):
                of = {places.number(*of) for of in zip(rows["topic_id"].to_pylist(), rows["partition"].to_pylist())}
                return LostBucket(number, of, f"{str(folder / name)!r} is missing or was changed")
        return Bucket(number, folder, sizes, statistics_from(rows, {name: at for at, name in enumerate(sizes)}, places))

    def _notes(self, bucket: int, kind: str, name: str) -> pa.Table:
        path = self.folder(bucket, kind) / name
        content = path.read_bytes()
        check_name(path, content)
        return conform(pq.ParquetFile(pa.BufferReader(content)).read(), schema_of(kind))

    def commit(
        self, new: NewBucket | None, gone: Iterable[int], indexed: dict[int, Indexed], places: Places
    ) -> Bucket | None:
        """Add *new*, remove the buckets *gone* and set what is *indexed*, in one commit; the new bucket, None if empty.

        :class:`BrokerFenced` if another writer changed the table since it was loaded.
        """
        new = new if new is not None and new.files else None
        there = {number for number, _ in self._live} - {NO_BUCKET, *gone} | ({new.number} if new else set())
        files = [self._relative(new.number, ENTRY, name) for name in new.files] if new else []
        written = [{"path": path} for path in files]
        with removing(self.path, written):
            if new is not None:
                files.append(self._write(new.number, SEGMENT, segment_rows(new, places), written))
            files.append(self._write(NO_BUCKET, INDEXED, indexed_rows(indexed, there, places), written))
            adds = [file_add(self.path, path) for path in files]
            self._sync(files)
        doomed = [(NO_BUCKET, INDEXED), *((number, kind) for number in gone for kind in (ENTRY, SEGMENT))]
        removes = [
            {"path": path, "size": size, "partitionValues": partition_values(path)}
            for number, kind in doomed
            for name, size in self._live.get((number, kind), {}).items()
            for path in [self._relative(number, kind, name)]
        ]
        version = commit(self.path, self._versions(), adds, {}, removes)
        assert version is not None  # versions without end, or an error
        self.version = version
        for key in doomed:
            self._live.pop(key, None)
        for add in adds:
            self._note_live(add["path"], add["size"])
        if new is None:
            return None
        sizes = self._live[new.number, ENTRY]
        return Bucket(new.number, new.folder, {name: sizes[name] for name in new.files}, new.statistics)

    def _sync(self, files: list[str]) -> None:
        if is_durable(self.path):
            for path in files:
                sync_file(self.path / path)
            folders = {(self.path / path).parent for path in files}
            for folder in [*folders, *{folder.parent for folder in folders}, self.path]:
                sync_folder(folder)

    def _versions(self) -> Iterator[int]:
        """The next version, or one after other writers' commits that changed no data."""
        version = self.version + 1
        while True:
            is_taken_long_ago = self._log.is_shortened(version - 1)
            if not is_taken_long_ago:
                yield version
            if is_taken_long_ago or self._log.commit(version).is_fencing:
                raise BrokerFenced(
                    f"{str(self.path)!r} was changed by another writer in version {version}: another broker "
                    "serves this bundle, or someone wrote to the table by hand"
                )
            version += 1

    def _write(self, bucket: int, kind: str, rows: pa.Table, written: list[dict]) -> str:
        folder = self.folder(bucket, kind)
        check_there(folder)
        folder.mkdir(parents=True, exist_ok=True)
        name, _ = write_named(
            folder,
            lambda draft: pq.write_table(rows, draft, compression="zstd", store_schema=False),
            lambda name: written.append({"path": self._relative(bucket, kind, name)}),
        )
        return self._relative(bucket, kind, name)

    def _relative(self, bucket: int, kind: str, name: str) -> str:
        return f"bucket={bucket}/kind={kind}/{name}"


def _has_size(path: AnyPath, size: int) -> bool:
    try:
        return store_of(path).size(path) == size
    except FileNotFoundError:
        return False


def remove_index(layout: Layout) -> None:
    """Remove the delay index, which the next broker rebuilds; :class:`NotAllowedError` while one serves."""
    lease = BundleLease(layout, f"repair-{os.getpid()}")
    if lease.sure_holder() is not None or not lease.take():
        raise NotAllowedError(f"a broker began to serve {str(layout.root)!r} meanwhile: try again")
    try:
        DelayTable(layout).remove()
    finally:
        lease.release()
