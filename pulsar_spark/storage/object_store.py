"""An object store, by ``obstore``: get, list from a name on, remove, put, and put if nothing is there, on which all
commits rest.

A put that got no answer may have taken place, or may take place later, so it is said again, with the same bytes, until
the store says what became of it: where these bytes are there already, it was ours. So whatever is put if absent has
bytes that nobody else's has. Who gets no answer at all meets :class:`UnclearWrite`, after which nothing is known.

Who asks, and where the store is, is said by the environment (``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``,
``AWS_REGION``, ``AWS_ENDPOINT_URL``...), which ``deltalake`` goes by, too; none of it is kept, written or printed.
"""

import contextlib
import errno
import os
import threading
import time
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from pulsar_spark.errors import InvalidUrl, NotARoot
from pulsar_spark.storage import forks
from pulsar_spark.storage.faults import UnclearWrite
from pulsar_spark.storage.object_path import ObjectPath, Stat
from pulsar_spark.storage.ranged_file import RangedFile

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Raw

SCHEMES = ("s3://",)
ANSWER_SECONDS, CONNECT_SECONDS, RETRY_SECONDS = 20, 5, 30
"""How long one request may take, a connection of it, and all tries of one."""
TRIES = 3
"""So often is said again what got no answer in all that time."""
WHOLE_BYTES = 16 * 1024 * 1024
"""A file for Parquet up to this size comes whole, in one call; of a larger one what is asked for."""
THERE_SECONDS, MOST_THERE = 5.0, 10_000
"""So long what was there counts as there: nothing that is asked for again and again is ever written anew, and what is
removed is asked for by few. That something is *not* there is never remembered."""
MOST_MADE = 1000
HELD_UP_SECONDS = 60.0
"""Whoever took longer from a look to the end of a put looks again: what goes from a log is an hour old at least."""
FOLDER = ".folder"
"""What lies in a folder that is to be there with nothing in it."""
Answer = TypeVar("Answer")


def object_path_of(given: str) -> ObjectPath | None:
    """The path that a URL says; None for what is no URL of an object store."""
    if not given.startswith(SCHEMES):
        return None
    scheme, _, rest = given.partition("://")
    bucket, _, key = rest.partition("/")
    return ObjectPath(bucket_at(f"{scheme}://{bucket}"), key)


@lru_cache
def bucket_at(url: str) -> "ObjectStore":
    """The store of a bucket, one for each process."""
    return ObjectStore(url)


class ObjectStore:
    """One bucket. Safe for threads; ``calls`` counts what was asked of it, by kind."""

    is_local = False
    look_seconds = 0.1
    """So long who looks whether something has come waits between two looks: each is a call, and calls cost."""

    def __init__(self, url: str):
        forks.use()
        self.url, self._raw = url, _open(url)
        self.calls: Counter[str] = Counter()
        self._there: OrderedDict[str, float] = OrderedDict()
        self._made: OrderedDict[str, int] = OrderedDict()
        self._checked: set[str] = set()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"ObjectStore({self.url!r})"

    def __reduce__(self) -> tuple:
        return bucket_at, (self.url,)

    def check(self, root: ObjectPath, folder: ObjectPath) -> None:
        """Once for each process: may a root lie there, by what can be done in a *folder* of it? A named error says what
        is missing: the bucket, a right, a region, credentials, or that the store puts things where something is."""
        if str(root) in self._checked:
            return
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError

        from pulsar_spark.storage.store_errors import what_is_wrong

        raw, probe = _open(self.url, is_hasty=True), f"{folder.key}/.probe-{uuid.uuid4().hex}"
        try:
            next(iter(obstore.list(raw, prefix=root.key, chunk_size=1)), None)
            obstore.put(raw, probe, b"first", mode="create")
            with contextlib.suppress(AlreadyExistsError):
                obstore.put(raw, probe, b"second", mode="create")
                raise NotARoot(
                    f"root {str(root)!r}: the store replaces what is there though it is told to put only if nothing is "
                    "(If-None-Match), on which every commit rests: give a root in a store that knows conditional puts"
                )
            obstore.delete(raw, [probe])
        except (BaseError, FileNotFoundError) as error:
            raise what_is_wrong(error, self.url, str(root)) from None
        self._checked.add(str(root))

    # What is there.

    def has(self, name: str | ObjectPath) -> bool:
        """Is there something of just this name, or was a moment ago? For what is written once, and asked for again and
        again."""
        key = self._key(name)
        with self._lock:
            if self._there.get(key, 0.0) > time.monotonic():
                return True
        try:
            self.head(name)
        except FileNotFoundError:
            return False
        return True

    def head(self, name: str | ObjectPath) -> dict[str, Any]:
        """What the store says of it: ``size``, ``last_modified``, ``e_tag``; FileNotFoundError without it."""
        key = self._key(name)
        found = self._ask("head", key, lambda obstore: obstore.head(self._raw, key))
        self._is_there(key)
        return found

    def stamp(self, name: str | ObjectPath) -> tuple[str, ...]:
        """What tells it from another that is put in its place; FileNotFoundError without it."""
        found = self.head(name)
        return found["e_tag"] or "", str(found["last_modified"]), found["version"] or ""

    def size(self, name: str | ObjectPath) -> int:
        """Its bytes; of what was just made here without a call."""
        with self._lock:
            made = self._made.pop(self._key(name), None)
        return self.head(name)["size"] if made is None else made

    def has_below(self, folder: ObjectPath) -> bool:
        """Is there anything whose name begins with the folder's?"""
        key = folder.key
        chunks = self._ask("list", key, lambda obstore: next(iter(obstore.list(self._raw, key, chunk_size=1)), ()))
        return len(chunks) > 0

    def names(self, folder: ObjectPath) -> list[str]:
        """The names in a folder, those of folders among them; FileNotFoundError where there are none."""
        found = self._listed(folder)
        names = [*found["common_prefixes"], *(each["path"] for each in found["objects"])]
        if not names:
            raise _missing(str(folder))
        return _last_parts(names)

    def make_folder(self, folder: ObjectPath) -> None:
        """Let something lie in it, whatever else does."""
        self.put(folder / FOLDER, b"")

    def touch(self, name: str) -> None:
        """Let something empty be there."""
        self.put(name, b"")

    def take_names(self, folder: str) -> list[str]:
        """The names in a folder, which are removed: those that come behind are there again."""
        path = ObjectPath(self, self._key(folder))
        names = self.names_behind(path, "")
        self.remove(path / name for name in names)
        return names

    def folders(self, folder: ObjectPath) -> list[str]:
        """The names of folders in a folder."""
        return _last_parts(self._listed(folder)["common_prefixes"])

    def _listed(self, folder: ObjectPath) -> dict[str, Any]:
        """What lies in a folder: ``objects``, and the ``common_prefixes`` that are its folders."""
        key = folder.key
        return self._ask("list", key, lambda obstore: obstore.list_with_delimiter(self._raw, key))

    def names_behind(self, folder: ObjectPath, name: str) -> list[str]:
        """The names in a folder that come behind *name*, in order, for the price of one call where they are few."""
        key, found = folder.key, []
        chunks = self._ask(
            "list", key, lambda obstore: list(obstore.list(self._raw, key, offset=f"{key}/{name}", chunk_size=1000))
        )
        for chunk in chunks:
            found += [each["path"][len(key) + 1 :] for each in chunk]
        return found

    # Bytes.

    def get(self, name: str | ObjectPath) -> bytes:
        """FileNotFoundError without it."""
        return self.get_stamped(name)[0]

    def get_stamped(self, name: str | ObjectPath) -> tuple[bytes, dict[str, str]]:
        """The bytes, and by what :meth:`put_over` knows them again."""
        key = self._key(name)

        def read(obstore: Any) -> tuple[bytes, dict[str, str]]:
            found = obstore.get(self._raw, key)
            return bytes(found.bytes()), _known_by(found.meta)

        return self._ask("get", key, read)

    def last_bytes(self, name: str | ObjectPath, count: int) -> bytes:
        """Its last *count* bytes, fewer where it is shorter; FileNotFoundError without it."""
        key = self._key(name)

        def read(obstore: Any) -> bytes:
            return bytes(obstore.get(self._raw, key, options={"range": {"suffix": count}}).bytes())

        return self._ask("get", key, read)

    def known(self, name: str | ObjectPath) -> dict[str, str]:
        """By what :meth:`put_over` knows again what is there now."""
        return _known_by(self.head(name))

    def stamps(self, folder: ObjectPath) -> dict[str, str]:
        """What tells each that lies in a folder from itself when it has changed, by name, in one call for a
        thousand."""
        return {each["path"][len(folder.key) + 1 :]: each["e_tag"] or "" for each in self._all_below(folder)}

    def below(self, folder: ObjectPath, *, without: str | None = None) -> dict[str, Stat]:
        """All that lies below a folder, by its name from there on, with its bytes and when it was written, but for what
        lies in folders whose names begin with *without*; by one call for a thousand."""
        found = {
            each["path"][len(folder.key) + 1 :]: Stat(each["size"], each["last_modified"].timestamp())
            for each in self._all_below(folder)
        }
        if without is None:
            return found
        return {name: seen for name, seen in found.items() if f"/{without}" not in f"/{name.rpartition('/')[0]}"}

    def _all_below(self, folder: ObjectPath) -> list[Mapping[str, Any]]:
        key = folder.key
        chunks = self._ask("list", key, lambda obstore: list(obstore.list(self._raw, key)))
        return [each for chunk in chunks for each in chunk]

    def footer(self, name: str | ObjectPath) -> pq.FileMetaData:
        """What the end of a Parquet file says; FileNotFoundError without it."""
        return pq.read_metadata(self._in_parts(self._key(name), self.size(name)))

    def parquet(self, name: str | ObjectPath) -> pa.NativeFile:
        """What Arrow reads a file from; FileNotFoundError without it."""
        key = self._key(name)

        def read(obstore: Any) -> pa.NativeFile:
            found = obstore.get(self._raw, key)
            if found.meta["size"] <= WHOLE_BYTES:
                return pa.BufferReader(pa.py_buffer(found.bytes()))
            return self._in_parts(key, found.meta["size"])

        return self._ask("get", key, read)

    def _in_parts(self, key: str, size: int) -> pa.NativeFile:
        def part(start: int, count: int) -> bytes:
            return self._ask(
                "get", key, lambda obstore: bytes(obstore.get_range(self._raw, key, start=start, length=count))
            )

        return pa.PythonFile(RangedFile(size, part), mode="r")

    @contextlib.contextmanager
    def create(self, name: str | ObjectPath) -> Iterator[pa.NativeFile]:
        """A new file to write to, which is there, whole, behind the block, if that raised nothing."""
        sink = pa.BufferOutputStream()
        yield sink
        content = sink.getvalue()
        self.put(name, content)
        with self._lock:
            self._made[self._key(name)] = content.size
            while len(self._made) > MOST_MADE:
                self._made.popitem(last=False)

    def put(self, name: str | ObjectPath, content: bytes | pa.Buffer) -> None:
        """Put it there, whatever was."""
        key = self._key(name)
        self._ask("put", key, lambda obstore: obstore.put(self._raw, key, memoryview(content).cast("B")))
        self._is_there(key)

    def replace(self, path: ObjectPath, content: str, _ready: object = None) -> None:
        """The same, as a local disk has it."""
        self.put(path, content.encode())

    def put_if_absent(self, name: str | ObjectPath, content: bytes) -> bool:
        """Put it there if nothing is; False where something else is. *content* is like nobody else's."""
        return self._surely(name, content, "create")

    def put_over(self, name: str | ObjectPath, content: bytes, known: dict[str, str] | None) -> bool:
        """Put it there if what is there is still what was *known* (see :meth:`get_stamped`), or, with None, if nothing
        is; False where it is not. *content* is like nobody else's."""
        return self._surely(name, content, "create" if known is None else known)

    def _surely(self, name: str | ObjectPath, content: bytes, mode: str | dict[str, str]) -> bool:
        key, unclear = self._key(name), None
        for _ in range(TRIES):
            try:
                return self._put_once(key, content, mode)
            except PermissionError as refused:
                if unclear is None:
                    raise
                raise UnclearWrite(*refused.args) from refused  # the try before may have taken place
            except OSError as fault:
                unclear = fault
        raise UnclearWrite(*unclear.args) from unclear

    def _put_once(self, key: str, content: bytes, mode: str | dict[str, str]) -> bool:
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        is_ours = True
        try:
            self._ask("put", key, lambda obstore: obstore.put(self._raw, key, content, mode=mode))
        except (AlreadyExistsError, PreconditionError):
            try:
                is_ours = self._holds(key, content)
            except OSError as unknown:  # whatever it is: what is there may be ours
                raise UnclearWrite(*unknown.args) from unknown
        except FileNotFoundError:  # what was to be replaced is gone
            return False
        self._is_there(key)
        return is_ours

    def _holds(self, key: str, content: bytes) -> bool:
        try:
            return self.get(ObjectPath(self, key)) == content
        except FileNotFoundError:
            return False

    def change(
        self,
        path: ObjectPath,
        decide: Callable[[bytes | None], str | None],
        _held: object = None,
        _write: object = None,
    ) -> bool:
        """The same as on a local disk, by put if it still says what was read; *decide* is asked again where it does
        not, and what it makes is like nobody else's."""
        while True:
            try:
                content, known = self.get_stamped(path)
            except FileNotFoundError:
                content, known = None, None
            said = decide(content)
            if said is None:
                return False
            if self.put_over(path, said.encode(), known):
                return True

    def put_in_first_free(
        self,
        paths: Iterable[ObjectPath],
        content: str,
        _folder: ObjectPath,
        held: Callable[[], AbstractContextManager],
        _ready: object = None,
    ) -> ObjectPath | None:
        """Put *content* in the first of *paths* that nobody has taken, each asked for when the one before is; that
        path, None where there is none. What is raised inside *held* says that nothing was put there.

        Who was held up for long behind that look, stopped or by a store that did not answer, may have put it where
        something lay that is gone by now: then it is taken away again. What lies behind it is older."""
        for path in paths:
            looked_at = time.monotonic(), time.time()
            try:
                with held():
                    pass
            except FileExistsError:
                continue
            if self.put_if_absent(path, content.encode()):
                late = max(time.monotonic() - looked_at[0], time.time() - looked_at[1]) > HELD_UP_SECONDS
                if not (late and self._is_stray(path)):
                    return path
                self.remove([path])
        return None

    def _is_stray(self, path: ObjectPath) -> bool:
        mine = path.stat().st_mtime
        behind = self.names_behind(path.parent, path.name)
        commits = (name for name in behind if len(name) == len(path.name) and name.endswith(".json"))
        return any((path.parent / name).stat().st_mtime < mine for name in commits)

    def remove(self, names: Iterable[str | ObjectPath]) -> None:
        """Remove them, in one call or a few; what is not there is passed over."""
        keys = [self._key(name) for name in names]
        if keys:
            with self._lock:
                for key in keys:
                    self._there.pop(key, None)
            with contextlib.suppress(FileNotFoundError):
                self._ask("delete", keys[0], lambda obstore: obstore.delete(self._raw, keys))

    def remove_folder(self, folder: ObjectPath, but: Collection[ObjectPath] = ()) -> None:
        """Remove what lies below it, all but some."""
        self.remove(path for name in self.below(folder) if (path := folder / name) not in but)

    def link(self, source: ObjectPath, target: ObjectPath) -> None:
        """Let the same be there, too; the store copies it by itself."""
        self._ask("copy", target.key, lambda obstore: obstore.copy(self._raw, source.key, target.key))
        self._is_there(target.key)

    def keep_as(self, source: ObjectPath, target: ObjectPath) -> None:
        """The same before *source* goes, as it is in the end."""
        if self.has(source):
            content = self.get(source)
            while True:
                self.put(target, content)
                content, before = self.get(source), content
                if content == before:
                    return

    def move(self, source: ObjectPath, target: ObjectPath) -> None:
        """Let it be there instead."""
        self.link(source, target)
        self.remove([source])

    def _key(self, name: str | ObjectPath) -> str:
        return name.key if isinstance(name, ObjectPath) else name[len(self.url) + 1 :]

    def _is_there(self, key: str) -> None:
        with self._lock:
            self._there[key] = time.monotonic() + THERE_SECONDS
            self._there.move_to_end(key)
            if len(self._there) > MOST_THERE:
                self._there.popitem(last=False)

    def _ask(self, kind: str, key: str, call: Callable[[Any], Answer]) -> Answer:
        """One call; what the store refuses because of what is there is raised as it is, all else as OSError."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        from pulsar_spark.storage.store_errors import as_fault

        forks.use()
        self.calls[kind] += 1
        try:
            return call(obstore)
        except FileNotFoundError:
            raise _missing(f"{self.url}/{key}") from None
        except (AlreadyExistsError, PreconditionError):
            raise
        except BaseError as error:
            raise as_fault(error, f"{self.url}/{key}") from None


def _known_by(found: Mapping[str, Any]) -> dict[str, str]:
    """By what a conditional put knows again what the store says this of."""
    return {part: found[part] for part in ("e_tag", "version") if found[part] is not None}


def _last_parts(names: Iterable[str]) -> list[str]:
    return [name.rstrip("/").rpartition("/")[2] for name in names]


def _missing(name: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "nothing of that name is in the store", name)


def _open(url: str, *, is_hasty: bool = False) -> "Raw":
    """:class:`InvalidUrl` for a bucket of no such name, or without the library."""
    try:
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ImportError as missing:
        raise InvalidUrl(
            f"root {url!r} is in an object store, for which a library is missing: pip install 'pulsar_spark[s3]'"
        ) from missing
    retries = {"max_retries": 1, "retry_timeout": timedelta(seconds=2 * CONNECT_SECONDS)}
    if not is_hasty:
        retries = {"max_retries": 10, "retry_timeout": timedelta(seconds=RETRY_SECONDS)}
    try:
        return from_url(
            url,
            client_options={
                "allow_http": os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("true", "1"),
                "timeout": f"{ANSWER_SECONDS}s",
                "connect_timeout": f"{min(2, CONNECT_SECONDS) if is_hasty else CONNECT_SECONDS}s",
            },
            retry_config=retries,
        )
    except (BaseError, ValueError) as error:
        raise InvalidUrl(f"root {url!r}: {str(error).partition(chr(10))[0]}: give s3://bucket/folder") from None
