"""Signs that a client's process lives: one file a client, which the process holds a lock on and touches now and then.

``<bundle>/clients/<client id>`` says on which machine (host and boot) the client runs. The system lets go of the lock
when the process is gone, however it ended, so whoever can take it on that machine knows, at once and whatever the
client's lease says. On another machine the lease alone tells: a client that asks for nothing touches its file, which
costs no other file and no commit, and a broker that sees another time on it than before has heard of the client then,
by its own clock; what the time says is of no matter. Where the file system has no such locks there is no file, and a
client that asks for nothing says so in a request. The file is made before the client's first request and goes with the
client; what a killed one left is removed by the broker, under the lock, so that no file is removed that somebody holds.

A fork copies open files: the copy lets go of them at once, without which the lock would be held until it ends too.
"""

import contextlib
import errno
import fcntl
import json
import os
import re
import socket
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics import layout_version

SIGNS_SINCE = 2
"""The layout of a root from which on its brokers look for signs of life here."""
FOREIGN_SECONDS = 24 * 60 * 60
"""How long the file of a client of another machine, or of an earlier boot, is kept: longer than any lease."""

_CLIENT_ID = re.compile("[0-9A-Za-z-]{1,100}")
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
"""Held for reading only, which is enough for a lock and lets an operator make the file system read-only meanwhile."""
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
_held: weakref.WeakSet = weakref.WeakSet()


@lru_cache
def machine() -> dict[str, str]:
    """This machine as long as it is up."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    with contextlib.suppress(OSError):
        return {"host": socket.gethostname(), "boot": boot.read_text().strip()}
    return {"host": socket.gethostname(), "boot": f"{uuid.getnode():x}"}


def presence_folder(layout: Layout) -> Path:
    """Where a bundle's clients hold their files."""
    return Path(layout.bundle_folder()) / "clients"


class Presence:
    """A client's file, held from its making until :meth:`end`. Where it cannot be held there is none, and the lease
    alone tells."""

    def __init__(self, layout: Layout, client_id: str):
        self._layout, self._path = layout, presence_folder(layout) / client_id
        self._file = None
        try:
            self._path.parent.mkdir(exist_ok=True)
            self._hold()
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        if self._file is None or not _is_locked(self._path):
            self._path.unlink(missing_ok=True)
            self.let_go()
        _held.add(self)

    def _hold(self) -> None:
        """Take the lock and only then say whose it is: a broker that met the file in between may have removed it, and
        then there is another try."""
        while self._file is None:
            file = os.open(self._path, _FLAGS | os.O_CREAT, 0o644)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                if os.fstat(file).st_nlink:
                    self._path.write_text(json.dumps({**machine(), "pid": os.getpid()}))
                    self._file = file
            finally:
                if self._file is None:
                    os.close(file)

    def touch(self) -> bool:
        """Give a sign of life; False where nobody would see it: there is no file (any more), or brokers of the first
        release serve the root, which do not look."""
        try:
            is_seen = self._file is not None and os.fstat(self._file).st_nlink
            if not is_seen or layout_version(self._layout) < SIGNS_SINCE:
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


def _forked() -> None:
    for presence in list(_held):
        presence.let_go()


os.register_at_fork(after_in_child=_forked)


def last_sign(layout: Layout, client_id: str) -> int | None:
    """A number that is another one after each sign of life; None where there is no file. The file is opened for it,
    because a network file system may remember what it said of one that is not."""
    with _opened(_path_of(layout, client_id)) as file:
        return None if file is None else os.fstat(file).st_mtime_ns


def is_gone(layout: Layout, client_id: str) -> bool:
    """Is it certain that the client's process is gone? False of a client of another machine and of one without a file.
    The file stays: a broker that dies before it has let the client go leaves it to the next one (see
    :func:`remove_gone`)."""
    return _if_gone(layout, client_id, lambda path: None)


def remove_gone(layout: Layout, client_id: str) -> None:
    """Remove the file of a client that is gone, once the tables say so too."""
    _if_gone(layout, client_id, lambda path: path.unlink(missing_ok=True))


def _if_gone(layout: Layout, client_id: str, do: Callable[[Path], None]) -> bool:
    path = _path_of(layout, client_id)
    with _opened(path) as file:
        if file is None:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_of_another_process_here(os.read(file, 4096)):
                return False
            do(path)
            return True
        except OSError:
            return False


@contextlib.contextmanager
def _opened(path: Path | None) -> Iterator[int | None]:
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


def is_watched(layout: Layout, client_id: str) -> bool:
    """Will :func:`is_gone` ever be true of the client?"""
    path = _path_of(layout, client_id)
    try:
        return path is not None and _is_of_another_process_here(path.read_bytes())
    except OSError:
        return False


def remove_old(layout: Layout, client_id: str) -> None:
    """Remove a client's file that nobody here can tell anything of, and that is old."""
    path = _path_of(layout, client_id)
    with contextlib.suppress(OSError):
        if (
            path
            and path.stat().st_mtime + FOREIGN_SECONDS < time.time()
            and not _is_of_another_process_here(path.read_bytes())
        ):
            path.unlink()


def present_clients(layout: Layout) -> list[str]:
    """The clients that have a file, alive or gone."""
    try:
        return sorted(entry.name for entry in os.scandir(presence_folder(layout)))
    except FileNotFoundError:
        return []


def _path_of(layout: Layout, client_id: str) -> Path | None:
    """A client's file; None for an id that is no name of a file, which no client of this package has."""
    return (
        presence_folder(layout) / client_id if isinstance(client_id, str) and _CLIENT_ID.fullmatch(client_id) else None
    )


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


def _is_of_another_process_here(content: bytes) -> bool:
    """What the file says: a machine, which must be this one, and a process, which must not (on NFS a process has all
    its locks together)."""
    try:
        said = json.loads(content)
        return {name: said[name] for name in ("host", "boot")} == machine() and said["pid"] != os.getpid()
    except (ValueError, KeyError, TypeError):
        return False
