"""Files that a process keeps locked while it runs, so that others on its machine know for certain when it ended."""

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

from pulsar_spark.storage.processes.held_object import HeldObject
from pulsar_spark.storage.processes.this_machine import runs
from pulsar_spark.storage.store.away import check_there
from pulsar_spark.storage.store.object_path import ObjectPath
from pulsar_spark.storage.store.small_file import parse_object, process_id_of, read_small
from pulsar_spark.storage.store.store import AnyPath

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
"""Read-only is enough for a lock, also after the file system is remounted read-only."""
NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
"""Errors of file systems without locks."""
_open_files: weakref.WeakSet = weakref.WeakSet()
_process = uuid.uuid4().hex
"""Identifies this process; a process id can be reused."""


@lru_cache
def machine() -> dict[str, str]:
    """Identifies this machine until it reboots."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    with contextlib.suppress(OSError):
        return {"host": socket.gethostname(), "boot": boot.read_text().strip()}
    return {"host": socket.gethostname(), "boot": f"{uuid.getnode():x}"}


class HeldFile:
    """A file with *more* content, locked until :meth:`end`; no file is left if it cannot be locked."""

    def __init__(self, path: Path, more: dict | None = None):
        self.path = path
        self._file: int | None = None
        try:
            check_there(path)
            path.parent.mkdir(exist_ok=True)
            self._hold(more or {})
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
        if self._file is None or not _is_locked(self.path):
            self.path.unlink(missing_ok=True)
            self.close()
        _open_files.add(self)

    def _hold(self, more: dict) -> None:
        """Take the lock, then write the content; again if another process removed the file in between."""
        while self._file is None:
            file = os.open(self.path, _FLAGS | os.O_CREAT, 0o644)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                if os.fstat(file).st_nlink:
                    self.path.write_text(json.dumps({**machine(), "pid": os.getpid(), "process": _process, **more}))
                    self._file = file
            finally:
                if self._file is None:
                    os.close(file)

    def touch(self) -> bool:
        """Set the file's time; False if the file is gone."""
        try:
            if self._file is None or not os.fstat(self._file).st_nlink:
                return False
            os.utime(self._file)
            return True
        except OSError:
            return False

    def end(self) -> None:
        """Remove the file; a second call does nothing."""
        if self._file is not None:
            self.path.unlink(missing_ok=True)
            self.close()

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


def hold(place: AnyPath, more: dict | None = None) -> HeldFile | HeldObject:
    """A held file, or an object without a lock in an object store."""
    if isinstance(place, ObjectPath):
        return HeldObject(place, {**holder(), **(more or {})})
    return HeldFile(place, more)


def holder() -> dict[str, str | int]:
    return {**machine(), "process": _process, "pids": _numbers(), "pid": os.getpid()}


@lru_cache
def _numbers() -> str:
    """Identifies the PID namespace: containers number processes separately."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _forked() -> None:
    global _process
    _process = uuid.uuid4().hex
    for file in list(_open_files):
        file.close()


os.register_at_fork(after_in_child=_forked)


def has_holder_ended(path: AnyPath | None, do: Callable[[AnyPath], None] = lambda path: None) -> bool:
    """Whether the file's process has certainly ended; calls *do* under the lock if so.

    False for files of this process or other machines, or if it cannot be opened. In object stores, a process of this
    machine has ended if its number does not run.
    """
    if path is None:
        return False
    if isinstance(path, ObjectPath):
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


def _has_ended(path: ObjectPath, do: Callable[[AnyPath], None]) -> bool:
    try:
        content = read_small(path)
        named = parse_object(content) if is_of_another_process_here(content) else {}
        has_ended = bool(named) and named.get("pids") == _numbers() and not runs(named["pid"])
        if has_ended:
            do(path)
    except OSError:
        return False
    return has_ended


@contextlib.contextmanager
def opened(path: AnyPath | None) -> Iterator[int | None]:
    """The file at *path*, open for reading; None if it cannot be opened."""
    try:
        file = os.open(path, _FLAGS) if isinstance(path, Path) else None
    except OSError:
        file = None
    try:
        yield file
    finally:
        if file is not None:
            os.close(file)


@contextlib.contextmanager
def try_hold(path: AnyPath, *, alone: bool) -> Iterator[tuple[int, bool]]:
    """An open file of a local disk, and whether its lock was free; without locks in the file system it counts as free.

    *alone*: an exclusive lock, for writing, and the file is created; otherwise a shared one, for reading.
    """
    flags, kind = (os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX) if alone else (os.O_RDONLY, fcntl.LOCK_SH)
    file = os.open(str(path), flags | os.O_CLOEXEC, 0o644)
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
    """Whether locks work here: some file systems grant every one."""
    file = os.open(path, _FLAGS)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(file)


def is_of_another_process_here(content: bytes) -> bool:
    """Does the content name another process of this machine?"""
    try:
        named = parse_object(content)
        is_of_this_one = process_id_of(named) == os.getpid() and named.get("process", _process) == _process
        return {name: named.get(name) for name in ("host", "boot")} == machine() and not is_of_this_one
    except ValueError:
        return False
