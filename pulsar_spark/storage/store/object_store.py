"""An object store for roots: calls (see store_folders), and the put-if-absent on which commits rest.

An unanswered put is repeated; if its bytes, which must be unique, are there, it succeeded. Without any answer
:class:`UnclearWrite` is raised.
"""

import errno
import time
from collections.abc import Iterable
from functools import lru_cache

from pulsar_spark.storage.store import store_bucket
from pulsar_spark.storage.store.faults import UnclearWrite
from pulsar_spark.storage.store.object_path import Decide, Lock, ObjectPath
from pulsar_spark.storage.store.store_bucket import check_bucket, open_bucket, place_of
from pulsar_spark.storage.store.store_folders import StoreFolders
from pulsar_spark.storage.store.store_kinds import Kind
from pulsar_spark.storage.store.volumes import volume_at

TRIES = 3
"""An unanswered put is repeated for this many times the duration of one call's tries."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 5.0
HELD_UP_SECONDS = 60.0
"""A writer that took longer from its look to its put looks again; removed commits are at least an hour old."""


def object_path_of(given: str) -> ObjectPath | None:
    """The path of a URL; None if it names no object store."""
    place = place_of(given)
    return None if place is None else ObjectPath(bucket_at(place.bucket), place.key)


@lru_cache
def bucket_at(url: str) -> "ObjectStore":
    return ObjectStore(url)


class ObjectStore(StoreFolders):
    """One bucket, with the operations that local_store describes, and conditional puts."""

    is_local = False
    look_seconds = 0.1
    """Seconds between looks for news: each look is a call, and calls cost."""

    def __init__(self, url: str):
        super().__init__(url)
        self._once = open_bucket(url, is_once=True)
        self.lists_from_a_name = self.kind.lists_from_a_name
        self._checked: set[str] = set()

    def delta(self, path: ObjectPath) -> tuple[str, dict[str, str] | None]:
        """The URL and options with which ``deltalake`` opens a table now; None if the environment has them."""
        return f"{self.location}/{path.key}", volume_at(self.url).for_delta() if self.is_lent else None

    @property
    def spark_kind(self) -> Kind | None:
        """The kind whose Hadoop client a session needs; None for a volume, which its platform reads."""
        return None if self.is_lent else self.kind

    @property
    def is_lent(self) -> bool:
        """Is it part of a bucket, lent by a catalog for an hour or less?"""
        return self.location != self.url

    def __reduce__(self) -> tuple:
        return bucket_at, (self.url,)

    def check(self, root: ObjectPath, folder: ObjectPath) -> None:
        """Check once per process that a root may lie there (:func:`check_bucket`)."""
        if str(root) not in self._checked:
            check_bucket(self.url, root, folder)
            self._checked.add(str(root))

    # Operations of a local disk, too

    def stamp(self, name: str | ObjectPath) -> tuple[str, ...]:
        found = self.head(name)
        return found["e_tag"] or "", str(found["last_modified"]), found["version"] or ""

    def read_small(self, name: str | ObjectPath, _most: int | None = None) -> bytes:
        return self.get(name)

    def touch(self, name: str) -> None:
        self.put(name, b"")

    def replace(self, path: ObjectPath, content: str, _ready: object = None, kept: ObjectPath | None = None) -> None:
        """Replace an object by unique *content*; OSError if another writer came first."""
        try:
            was, known = self.get_stamped(path)
        except FileNotFoundError:
            was, known = None, None
        if kept is not None and was is not None:
            self.put(kept, was)
        if not self.put_over(path, content.encode(), known):
            raise OSError(errno.EAGAIN, "another writer has put an object there meanwhile", str(path))

    def move(self, source: ObjectPath, target: ObjectPath) -> None:
        self.link(source, target)
        self.remove([source])

    def keep_as(self, source: ObjectPath, target: ObjectPath) -> None:
        """Copy *source* to *target*, until it stays the same."""
        if self.has(source):
            content = self.get(source)
            while True:
                self.put(target, content)
                content, before = self.get(source), content
                if content == before:
                    return

    # Conditional puts

    def put_if_absent(self, name: str | ObjectPath, content: bytes) -> bool:
        """Put unique *content* if nothing is there; else False."""
        return self._surely(name, content, "create")

    def put_over(self, name: str | ObjectPath, content: bytes, known: dict[str, str] | None) -> bool:
        """Put unique *content* if the object is still *known* (see :meth:`get_stamped`; None: absent); else False."""
        return self._surely(name, content, "create" if known is None else known)

    def _surely(self, name: str | ObjectPath, content: bytes, mode: str | dict[str, str]) -> bool:
        key, unclear, pause = self._key(name), None, FIRST_PAUSE_SECONDS
        until = time.monotonic() + TRIES * store_bucket.RETRY_SECONDS
        while unclear is None or time.monotonic() + pause < until:
            if unclear is not None:
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            try:
                return self._put_once(key, content, mode)
            except PermissionError as refused:
                if unclear is None:
                    raise
                raise UnclearWrite(*refused.args) from refused  # the earlier try may have succeeded
            except OSError as fault:
                unclear = fault
        raise UnclearWrite(*unclear.args) from unclear

    def _put_once(self, key: str, content: bytes, mode: str | dict[str, str]) -> bool:
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        is_ours = True
        try:
            self._ask("put", key, lambda obstore: obstore.put(self._once, key, content, mode=mode))
        except (AlreadyExistsError, PreconditionError):
            try:
                is_ours = self._holds(key, content)
            except OSError as unknown:  # the object may be ours
                raise UnclearWrite(*unknown.args) from unknown
        except FileNotFoundError:  # the object to replace is gone
            return False
        self._saw(key)
        return is_ours

    def _holds(self, key: str, content: bytes) -> bool:
        try:
            return self.get(ObjectPath(self, key)) == content
        except FileNotFoundError:
            return False

    def change(self, path: ObjectPath, decide: Decide, _lock: object = None, _write: object = None) -> bool:
        """Replace an object by what *decide*, perhaps called again, makes of it, which is unique."""
        while True:
            try:
                content, known = self.get_stamped(path)
            except FileNotFoundError:
                content, known = None, None
            changed = decide(content)
            if changed is None:
                return False
            if self.put_over(path, changed.encode(), known):
                return True

    def put_in_first_free(
        self, paths: Iterable[ObjectPath], content: str, _folder: ObjectPath, lock: Lock, _ready: object = None
    ) -> ObjectPath | None:
        """Put *content* at the first free one of *paths*; None if none is free.

        An object put late into the place of a removed commit is removed again.
        """
        for path in paths:
            looked_at = time.monotonic(), time.time()
            try:
                with lock():
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
        later = self.names_after(path.parent, path.name)
        commits = (name for name in later if len(name) == len(path.name) and name.endswith(".json"))
        return any((path.parent / name).stat().st_mtime < mine for name in commits)
