"""The producers that clients have on a topic: one file each in the table's folder, held by its process.

Rule: AbstractTopic.addProducer of Apache Pulsar. Messages do not depend on these files (see storage.topics.exclusive).
"""

import contextlib
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from filelock import FileLock

from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.processes.held_file import HeldFile, has_holder_ended, hold, machine
from pulsar_spark.storage.processes.held_object import HeldObject
from pulsar_spark.storage.store.faults import is_fault_of_disk
from pulsar_spark.storage.store.object_path import ObjectPath
from pulsar_spark.storage.store.small_file import parse_object, read_small, say_unreadable, text_of
from pulsar_spark.storage.store.store import AnyPath, path_of, store_of
from pulsar_spark.storage.store.store_lock import store_lock

_FOLDER = "_producers"
FOREIGN_SECONDS, STAY_SECONDS = 60 * 60, 15 * 60
"""How long a producer elsewhere (other machine, boot, or object store) counts as present, and how often it
renews that.
"""
WAITING_SECONDS, SAYS_SO_SECONDS = 60, 10
"""How long a waiting producer counts as present, and how often it renews that: others wait for it."""
_APPLICATION = "pulsar_spark.waiting_producer"


class Connected(NamedTuple):
    """A present producer; ``is_waiting`` for exclusive access, since version ``waits_since`` of the topic's log."""

    name: str
    partitions: list[int]
    is_waiting: bool
    waits_since: int = 0


def connected(table: AnyPath) -> list[Connected]:
    """The producers on a topic, also waiting ones, by name."""
    found = map(_read, _files(path_of(table) / _FOLDER))
    return sorted((each for each in found if each), key=lambda each: each.name)


class TopicProducers:
    """The producers of one topic as seen by one of them."""

    def __init__(self, table: AnyPath, name: str, partitions: Sequence[int]):
        self._folder = path_of(table) / _FOLDER
        self._store = store_of(self._folder)
        self._content = {"name": name, "partitions": list(partitions)}
        self._file: HeldFile | HeldObject | None = None
        self._waits_since: int | None = None
        self._said_so = float("-inf")

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep others from entering, unless the disk takes no file: then such a producer sends nothing."""
        with contextlib.ExitStack() as locked:
            with _but_for_the_disk():
                self._folder.mkdir(exist_ok=True)
                lock = self._folder / ".lock"
                locked.enter_context(store_lock(lock) if isinstance(lock, ObjectPath) else FileLock(lock))
            yield

    def enter(self, *, is_waiting: bool = False) -> None:
        """Become visible to others; a second call ends the waiting. A waiting producer keeps its turn."""
        self.leave()
        with _but_for_the_disk():
            if is_waiting and self._waits_since is None:
                self._waits_since = AppendTable(self._folder.parent).append_transaction(_APPLICATION, time.time_ns())
            more = {"is_waiting": True, "waits_since": self._waits_since} if is_waiting else {"is_waiting": False}
            self._file = hold(self._folder / uuid.uuid4().hex, {**self._content, **more})

    def is_first(self) -> bool:
        mine = float("inf") if self._waits_since is None else self._waits_since
        return all(other.waits_since > mine for other in self.others() if other.is_waiting)

    def go_on_waiting(self) -> None:
        """Renew the sign of waiting, every :data:`SAYS_SO_SECONDS`."""
        if time.monotonic() >= self._said_so + SAYS_SO_SECONDS:
            self._said_so = time.monotonic()
            self.renew()

    @property
    def has_entered(self) -> bool:
        """Is it visible, and was not sent away?"""
        return self._file is not None and self._file.path.exists()

    def grow(self, partitions: Sequence[int]) -> None:
        """Publish to all these *partitions*; nothing unless entered."""
        if self.has_entered:
            self._content["partitions"] = list(partitions)
            self.enter()

    @property
    def needs_renewal(self) -> bool:
        """Does only age show that a producer lives, as in an object store?"""
        return not self._store.is_local

    def renew(self) -> None:
        """Renew the sign of life; nothing unless entered."""
        if self._file is not None:
            self._file.touch()

    def leave(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.end()

    def others(self) -> list[Connected]:
        """Producers that share a partition with this one."""
        found = map(_read, self._files())
        return [each for each in found if each and not set(self._content["partitions"]).isdisjoint(each.partitions)]

    def send_away(self) -> None:
        for path in self._files():
            with contextlib.suppress(IsADirectoryError):  # a folder is no producer
                path.unlink(missing_ok=True)

    def _files(self) -> list[AnyPath]:
        own = self._file.path if self._file else None
        return [path for path in _files(self._folder) if path != own]


def _files(folder: AnyPath) -> list[AnyPath]:
    try:
        return [folder / name for name in store_of(folder).names(folder) if not name.startswith(".")]
    except FileNotFoundError:
        return []


@contextlib.contextmanager
def _but_for_the_disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not is_fault_of_disk(error):
            raise


def _read(path: AnyPath) -> Connected | None:
    if has_holder_ended(path, lambda path: path.unlink(missing_ok=True)):
        return None
    try:
        found = parse_object(content := read_small(path))
        is_foreign = not store_of(path).is_local or {name: found.get(name) for name in machine()} != machine()
        is_waiting = bool(found.get("is_waiting"))
        stays_seconds = WAITING_SECONDS if is_waiting else FOREIGN_SECONDS
        if is_foreign and path.stat().st_mtime + stays_seconds < time.time():
            if not store_of(path).is_local:
                with contextlib.suppress(OSError):  # a reader may lack the right
                    path.unlink()
            return None
        partitions = found.get("partitions")
        if not isinstance(partitions, list) or not all(isinstance(each, int) for each in partitions):
            raise ValueError(f"'partitions' is {partitions!r:.60}, not a list of numbers")
        waits_since = found.get("waits_since", 0)
        if not isinstance(waits_since, int | None):
            raise ValueError(f"'waits_since' is {waits_since!r:.60}, not a number")
        return Connected(text_of(found, "name"), partitions, is_waiting, waits_since or 0)
    except FileNotFoundError:
        return None
    except ValueError as why:
        if content:  # an empty file is being written
            say_unreadable(path, content, why, "it is not treated as a producer")
        return None
