"""An object store as roots lie in it: calls (see store_calls), and put if nothing is there, on which all commits rest.

A put that got no answer may have taken place, or may take place later, so it is said again, with the same bytes, until
the store says what became of it: where these bytes are there already, it was ours. So whatever is put if absent has
bytes that nobody else's has. Who gets no answer at all meets :class:`UnclearWrite`, after which nothing is known.
"""

import errno
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import lru_cache

from pulsar_spark.storage import store_bucket
from pulsar_spark.storage.faults import UnclearWrite
from pulsar_spark.storage.object_path import ObjectPath
from pulsar_spark.storage.store_bucket import check_bucket, open_bucket, place_of
from pulsar_spark.storage.store_calls import CALLS_AT_ONCE, StoreCalls
from pulsar_spark.storage.store_kinds import Kind
from pulsar_spark.storage.volumes import volume_at

TRIES = 3
"""So many times all tries of a call's may take what got no answer is said again."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 5.0
HELD_UP_SECONDS = 60.0
"""Whoever took longer from a look to the end of a put looks again: what goes from a log is an hour old at least."""
FOLDER = ".folder"
"""What lies in a folder that is to be there with nothing in it."""


def object_path_of(given: str) -> ObjectPath | None:
    """The path that a URL says; None for what is no URL of an object store."""
    place = place_of(given)
    return None if place is None else ObjectPath(bucket_at(place.bucket), place.key)


@lru_cache
def bucket_at(url: str) -> "ObjectStore":
    """The store of a bucket, one for each process."""
    return ObjectStore(url)


class ObjectStore(StoreCalls):
    """One bucket, for roots."""

    is_local = False
    look_seconds = 0.1
    """So long who looks whether something has come waits between two looks: each is a call, and calls cost."""

    def __init__(self, url: str):
        super().__init__(url)
        self._once = open_bucket(url, is_once=True)
        self.lists_from_a_name = self.kind.lists_from_a_name
        """Does one call tell what has come behind a name, whatever lies before it?"""
        self._checked: set[str] = set()

    def delta(self, path: ObjectPath) -> tuple[str, dict[str, str] | None]:
        """By what ``deltalake`` opens a table now, and as whom, unless the environment says it."""
        return f"{self.location}/{path.key}", volume_at(self.url).for_delta() if self.is_lent else None

    @property
    def spark_kind(self) -> Kind | None:
        """The kind of store for which a session needs a client of Hadoop's; None of a volume, which its platform
        reads."""
        return None if self.is_lent else self.kind

    @property
    def is_lent(self) -> bool:
        """Is it part of a bucket, which a catalog lends? What is opened there can be read for an hour or less."""
        return self.location != self.url

    def __reduce__(self) -> tuple:
        return bucket_at, (self.url,)

    def check(self, root: ObjectPath, folder: ObjectPath) -> None:
        """Once for each process: may a root lie there (see :func:`check_bucket`)?"""
        if str(root) not in self._checked:
            check_bucket(self.url, root, folder)
            self._checked.add(str(root))

    # As a local disk has it.

    def stamp(self, name: str | ObjectPath) -> tuple[str, ...]:
        """What tells it from another that is put in its place; FileNotFoundError without it."""
        found = self.head(name)
        return found["e_tag"] or "", str(found["last_modified"]), found["version"] or ""

    def make_folder(self, folder: ObjectPath) -> None:
        """Let something lie in it, whatever else does."""
        self.put(folder / FOLDER, b"")

    def read_small(self, name: str | ObjectPath, _most: int | None = None) -> bytes:
        """The bytes of what lies there; FileNotFoundError without it."""
        return self.get(name)

    def clone_folder(self, folder: ObjectPath, clone: ObjectPath) -> None:
        """Let *clone* have copies, by the store itself, of all that lies in a folder, of which nothing is ever changed
        in place. Commits are listed before the files that they name, so none is there without them."""
        with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
            list(pool.map(lambda name: self.link(folder / name, clone / name), self.below(folder)))

    def touch(self, name: str) -> None:
        """Let something empty be there."""
        self.put(name, b"")

    def take_names(self, folder: str) -> list[str]:
        """The names in a folder, which are removed: those that come behind are there again."""
        path = ObjectPath(self, self._key(folder))
        names = self.names_behind(path, "")
        self.remove(path / name for name in names)
        return names

    def replace(self, path: ObjectPath, content: str, _ready: object = None) -> None:
        """The same, as a local disk has it."""
        self.put(path, content.encode())

    def replace_kept(self, path: ObjectPath, content: str, kept: ObjectPath | None, _ready: object = None) -> None:
        """The same; OSError, and nothing is replaced, where another writer has put an object there meanwhile. *content*
        is like nobody else's.
        """
        try:
            was, known = self.get_stamped(path)
        except FileNotFoundError:
            was, known = None, None
        if kept is not None and was is not None:
            self.put(kept, was)
        if not self.put_over(path, content.encode(), known):
            raise OSError(errno.EAGAIN, "another writer has put an object there meanwhile", str(path))

    def sizes(self, folder: ObjectPath, names: Iterable[str]) -> dict[str, int]:
        """The same, by one call for a thousand files that lie there."""
        below = self.below(folder)
        return {name: below[name].st_size for name in names if name in below}

    def move(self, source: ObjectPath, target: ObjectPath) -> None:
        """Let it be there instead."""
        self.link(source, target)
        self.remove([source])

    def keep_as(self, source: ObjectPath, target: ObjectPath) -> None:
        """The same before *source* goes, as it is in the end."""
        if self.has(source):
            content = self.get(source)
            while True:
                self.put(target, content)
                content, before = self.get(source), content
                if content == before:
                    return

    # Conditional puts.

    def put_if_absent(self, name: str | ObjectPath, content: bytes) -> bool:
        """Put it there if nothing is; False where something else is. *content* is like nobody else's."""
        return self._surely(name, content, "create")

    def put_over(self, name: str | ObjectPath, content: bytes, known: dict[str, str] | None) -> bool:
        """Put it there if what is there is still what was *known* (see :meth:`get_stamped`), or, with None, if nothing
        is; False where it is not. *content* is like nobody else's."""
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
                raise UnclearWrite(*refused.args) from refused  # the try before may have taken place
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
