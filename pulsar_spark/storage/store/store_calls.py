"""Calls to a bucket by ``obstore``, whose faults become ``OSError``; objects just seen are not looked up again."""

import contextlib
import errno
import io
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from pulsar_spark.storage.processes import forks
from pulsar_spark.storage.processes.threads import Threads
from pulsar_spark.storage.store.object_path import ObjectPath
from pulsar_spark.storage.store.store_bucket import open_bucket
from pulsar_spark.storage.store.store_kinds import kind_of
from pulsar_spark.storage.store.volumes import location_of

WHOLE_BYTES = 16 * 1024 * 1024
"""Parquet files up to this size are read in one call, larger ones in parts."""
THERE_SECONDS, MOST_THERE = 5.0, 10_000
"""How long an object that was seen counts as existing, without another look, and how many such objects are remembered:
nothing that a program still uses is removed so soon. A missing object is looked up each time."""
MOST_SIZES = 1000
"""Files written here whose sizes are remembered until they are asked for."""
CALLS_AT_ONCE = 16
Answer = TypeVar("Answer")


class StoreCalls:
    """One bucket. Safe for threads; ``calls`` counts requests by kind."""

    def __init__(self, url: str):
        forks.use()
        self.url, self._raw, self.location = url, open_bucket(url), location_of(url)
        self.kind = kind_of(self.location)
        self.calls: Counter[str] = Counter()
        self._seen_until: OrderedDict[str, float] = OrderedDict()
        """Until when an object counts as existing, by key."""
        self._sizes: OrderedDict[str, int] = OrderedDict()
        """Sizes of files written here, by key."""
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def has(self, name: str | ObjectPath) -> bool:
        """Does the object exist, or did it a moment ago?"""
        key = self._key(name)
        with self._lock:
            if self._seen_until.get(key, 0.0) > time.monotonic():
                return True
        try:
            self.head(name)
        except FileNotFoundError:
            return False
        return True

    def head(self, name: str | ObjectPath) -> dict[str, Any]:
        """``size``, ``last_modified`` and ``e_tag``; FileNotFoundError if missing."""
        key = self._key(name)
        found = self._ask("head", key, lambda obstore: obstore.head(self._raw, key))
        self._saw(key)
        return found

    def size(self, name: str | ObjectPath) -> int:
        """How many bytes the object has; the first time without a call, if it is a file that was just written here."""
        with self._lock:
            size = self._sizes.pop(self._key(name), None)
        return self.head(name)["size"] if size is None else size

    def get(self, name: str | ObjectPath) -> bytes:
        return self.get_stamped(name)[0]

    def get_stamped(self, name: str | ObjectPath) -> tuple[bytes, dict[str, str]]:
        """The bytes, and the stamp that ``put_over`` of object_store compares; FileNotFoundError if missing."""
        key = self._key(name)

        def read(obstore: Any) -> tuple[bytes, dict[str, str]]:
            found = obstore.get(self._raw, key)
            stamp = {part: found.meta[part] for part in ("e_tag", "version") if found.meta[part] is not None}
            return bytes(found.bytes()), stamp

        return self._ask("get", key, read)

    def last_bytes(self, name: str | ObjectPath, count: int) -> bytes:
        key = self._key(name)

        def read(obstore: Any) -> bytes:
            return bytes(obstore.get(self._raw, key, options={"range": {"suffix": count}}).bytes())

        if self.kind.has_last_bytes:
            return self._ask("get", key, read)
        size = self.head(name)["size"]
        return self._part(key, max(0, size - count), min(size, count))

    def footer(self, name: str | ObjectPath) -> pq.FileMetaData:
        return pq.read_metadata(self._in_parts(self._key(name), self.size(name)))

    def parquet(self, name: str | ObjectPath) -> pa.NativeFile:
        key = self._key(name)

        def read(obstore: Any) -> pa.NativeFile:
            found = obstore.get(self._raw, key)
            if found.meta["size"] <= WHOLE_BYTES:
                return pa.BufferReader(pa.py_buffer(found.bytes()))
            return self._in_parts(key, found.meta["size"])

        return self._ask("get", key, read)

    def _in_parts(self, key: str, size: int) -> pa.NativeFile:
        return pa.PythonFile(RangedFile(size, partial(self._part, key)), mode="r")

    def _part(self, key: str, start: int, count: int) -> bytes:
        return self._ask(
            "get", key, lambda obstore: bytes(obstore.get_range(self._raw, key, start=start, length=count))
        )

    @contextlib.contextmanager
    def create(self, name: str | ObjectPath) -> Iterator[pa.NativeFile]:
        """A new file to write; the object appears after the block, if that raised nothing."""
        sink = pa.BufferOutputStream()
        yield sink
        content = sink.getvalue()
        self.put(name, content)
        with self._lock:
            self._sizes[self._key(name)] = content.size
            while len(self._sizes) > MOST_SIZES:
                self._sizes.popitem(last=False)

    def put(self, name: str | ObjectPath, content: bytes | pa.Buffer) -> None:
        key = self._key(name)
        self._ask("put", key, lambda obstore: obstore.put(self._raw, key, memoryview(content).cast("B")))
        self._saw(key)

    def link(self, source: ObjectPath, target: ObjectPath) -> None:
        """Copy *source* to *target* within the store, which has no links."""
        self._ask("copy", target.key, lambda obstore: obstore.copy(self._raw, source.key, target.key))
        self._saw(target.key)

    def remove(self, names: Iterable[str | ObjectPath]) -> None:
        keys, most = [self._key(name) for name in names], self.kind.removed_a_call
        with self._lock:
            for key in keys:
                self._seen_until.pop(key, None)
        calls = [keys[first : first + most] for first in range(0, len(keys), most)]
        if len(calls) > 1:
            with Threads(CALLS_AT_ONCE) as pool:
                list(pool.map(self._remove, calls))
        elif calls:
            self._remove(calls[0])

    def _remove(self, keys: list[str]) -> None:
        """Remove objects in one call; missing ones are no error (see ``removed_a_call`` of store_kinds)."""
        with contextlib.suppress(FileNotFoundError):
            self._ask("delete", keys[0], lambda obstore: obstore.delete(self._raw, keys))

    def _key(self, name: str | ObjectPath) -> str:
        return name.key if isinstance(name, ObjectPath) else name[len(self.url) + 1 :]

    def _saw(self, key: str) -> None:
        with self._lock:
            self._seen_until[key] = time.monotonic() + THERE_SECONDS
            self._seen_until.move_to_end(key)
            if len(self._seen_until) > MOST_THERE:
                self._seen_until.popitem(last=False)

    def _ask(self, kind: str, key: str, call: Callable[[Any], Answer]) -> Answer:
        """Make one call; AlreadyExistsError and PreconditionError pass, others become OSError."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        from pulsar_spark.storage.store.store_errors import as_fault

        forks.use()
        self.calls[kind] += 1
        try:
            return call(obstore)
        except FileNotFoundError:
            raise missing(f"{self.url}/{key}") from None
        except (AlreadyExistsError, PreconditionError):
            raise
        except BaseError as error:
            raise as_fault(error, f"{self.url}/{key}") from None


def missing(name: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "the store has no object of that name", name)


class RangedFile(io.RawIOBase):
    """A file of *size* bytes; each read calls *read* with first byte and count."""

    def __init__(self, size: int, read: Callable[[int, int], bytes]):
        self._size, self._read, self._at = size, read, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        rest = max(0, self._size - self._at)
        count = rest if size is None or size < 0 else min(size, rest)
        found = self._read(self._at, count) if count else b""
        self._at += len(found)
        return found
