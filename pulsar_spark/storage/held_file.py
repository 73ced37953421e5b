"""Files that a process holds a lock on as long as it is there.

The system lets go of the lock when the process is gone, however it ended, so whoever can take it on that machine knows,
at once and whatever a clock says. The file says on which machine (host and boot) and in which process it is held. Who
removes the file of one that is gone holds the lock, so that no file is removed that somebody holds.

A fork copies open files: the copy lets go of them at once, without which the lock would be held until it ends too.
"""

import contextlib
import errno
import fcntl
import json
import os
import socket
import uuid
import weakref
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

from pulsar_spark.storage.away import check_there
from pulsar_spark.storage.held_object import HeldObject
from pulsar_spark.storage.object_path import ObjectPath
from pulsar_spark.storage.small_file import parse_object, process_id_of, read_small
from pulsar_spark.storage.store import AnyPath, store_of
from pulsar_spark.storage.this_machine import runs

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
"""Held for reading only, which is enough for a lock and lets an operator make the file system read-only meanwhile."""
NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
"""What file systems without locks say to who asks for one."""
_held: weakref.WeakSet = weakref.WeakSet()
_process = uuid.uuid4().hex
"""This process and no other: its number alone is given again, in a container that is started anew the same one."""


@lru_cache
def machine() -> dict[str, str]:
    """This machine as long as it is up."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    with contextlib.suppress(OSError):
        return {"host": socket.gethostname(), "boot": boot.read_text().strip()}
    return {"host": socket.gethostname(), "boot": f"{uuid.getnode():x}"}


class HeldFile:
    """A file, held from its making until :meth:`end`; it says whose it is, and what *more* there is to say. Where it
    cannot be held there is none."""

    def __init__(self, path: Path, more: dict | None = None):
        self._path, self._file = path, None
        try:
            check_there(self._path)
            self._path.parent.mkdir(exist_ok=True)
            self._hold(more or {})
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
        if self._file is None or not _is_locked(self._path):
            self._path.unlink(missing_ok=True)
            self.let_go()
        _held.add(self)

    @property
    def path(self) -> Path:
        """Where it is."""
        return self._path

    def _hold(self, more: dict) -> None:
        """Take the lock and only then say whose it is: somebody who met the file in between may have removed it, and
        then there is another try."""
        while self._file is None:
            file = os.open(self._path, _FLAGS | os.O_CREAT, 0o644)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                if os.fstat(file).st_nlink:
                    self._path.write_text(json.dumps({**machine(), "pid": os.getpid(), "process": _process, **more}))
                    self._file = file
            finally:
                if self._file is None:
                    os.close(file)

    def touch(self) -> bool:
        """Set the file's time; False where there is no file (any more)."""
        try:
            if self._file is None or not os.fstat(self._file).st_nlink:
                return False
            os.utime(self._file)
            return True
        except OSError:
            return False

    def end(self) -> None:
        """Remove the file. A second call does nothing."""
        if self._file is not None:
            self._path.unlink(missing_ok=True)
            self.let_go()

    def let_go(self) -> None:
        """Close the file without a word: what ending the process does."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


def hold(place: AnyPath, more: dict | None = None) -> HeldFile | HeldObject:
    """The same wherever the root lies: in an object store something that is there as long, on which nobody has a
    lock."""
    if isinstance(place, ObjectPath):
        return HeldObject(place, {**holder(), **(more or {})})
    return HeldFile(place, more)


def holder() -> dict[str, str | int]:
    """Whose something is, as what lies in an object store says it."""
    return {**machine(), "process": _process, "pids": _numbers(), "pid": os.getpid()}


@lru_cache
def _numbers() -> str:
    """By what processes are numbered here: containers of one machine each count their own."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _forked() -> None:
    global _process
    _process = uuid.uuid4().hex
    for held in list(_held):
        held.let_go()


os.register_at_fork(after_in_child=_forked)


def is_let_go(path: AnyPath | None, do: Callable[[Path], None] = lambda path: None) -> bool:
    """Is it certain that the process which held the file is gone? Then *do* it, under the lock. False of a file of this
    process or of another machine, and of one that cannot be opened. In an object store, where there is no lock, a
    process of this machine is gone when none of its number runs."""
    if path is None:
        return False
    if not store_of(path).is_local:
        return _has_ended(path, do)
    with opened(path) as file:
        if file is None:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not is_of_another_process_here(os.read(file, 4096)):
                return False
            do(path)
            return True
        except OSError:
            return False


def _has_ended(path: ObjectPath, do: Callable[[ObjectPath], None]) -> bool:
    try:
        content = read_small(path)
        said = parse_object(content) if is_of_another_process_here(content) else {}
        has_ended = bool(said) and said.get("pids") == _numbers() and not runs(said["pid"])
        if has_ended:
            do(path)
    except OSError:
        return False
    return has_ended


@contextlib.contextmanager
def opened(path: Path | None) -> Iterator[int | None]:
    """The file at *path*, open for reading; None where there is none, or it cannot be opened."""
    try:
        file = os.open(path, _FLAGS) if path else None
    except OSError:
        file = None
    try:
        yield file
    finally:
        if file is not None:
            os.close(file)


@contextlib.contextmanager
def try_hold(path: Path, *, alone: bool) -> Iterator[tuple[int, bool]]:
    """A file while it is open, and whether its lock was to be had at once: *alone*, of a file to write, which is made
    where there is none; or with others, of one that is there, to read. A file system without locks grants it."""
    flags, kind = (os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX) if alone else (os.O_RDONLY, fcntl.LOCK_SH)
    file = os.open(path, flags | os.O_CLOEXEC, 0o644)
    try:
        yield file, _is_granted(file, kind)
    finally:
        os.close(file)


def _is_granted(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    return True


def _is_locked(path: Path) -> bool:
    """Do locks hold here? Some file systems grant every lock to everybody."""
    file = os.open(path, _FLAGS)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(file)


def is_of_another_process_here(content: bytes) -> bool:
    """What the file says: a machine, which must be this one, and a process, which must not (on NFS a process has all
    its locks together)."""
    try:
        said = parse_object(content)
        is_of_this_one = process_id_of(said) == os.getpid() and said.get("process", _process) == _process
        return {name: said.get(name) for name in ("host", "boot")} == machine() and not is_of_this_one
    except ValueError:
        return False
