"""A file that says who holds something, on which machine and in which process, and until when (Unix time).

It is renewed by its holder and replaced whole, so whoever reads it finds one holder or none. A holder on this machine
whose process is gone has let go, whatever the file says.
"""

import json
import os
import socket
import time
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from filelock import FileLock

Said = TypeVar("Said", bound=NamedTuple)


class LeaseFile(Generic[Said]):
    """The file at *path*, whose fields are those of *kind*, with ``host``, ``pid`` and ``until`` among them."""

    def __init__(self, path: Path, kind: type[Said]):
        self.path, self._kind = path, kind

    def read(self) -> Said | None:
        """What it says, alive or not; None for no file, and for one that says nothing."""
        try:
            return self._kind(**json.loads(self.path.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def write(self, writer: str, **said: object) -> None:
        """Say that this process holds it; *writer* tells apart those who write at a time."""
        of_here = self._kind(host=socket.gethostname(), pid=os.getpid(), **said)
        fresh = self.path.with_suffix(f".{writer}")
        fresh.write_text(json.dumps(of_here._asdict()))
        os.replace(fresh, self.path)

    def lock(self) -> FileLock:
        """For who decides by what it says, and writes."""
        return FileLock(self.path.with_suffix(".lock"))


def is_held(host: str, pid: int, until: float) -> bool:
    """Is what this holder has held still?"""
    if until <= time.time():
        return False
    return host != socket.gethostname() or _runs(pid)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, IndexError):
        return False
