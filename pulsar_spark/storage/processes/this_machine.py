"""This machine's processes, and a private folder for temporary files."""

import os
import stat
import tempfile
from pathlib import Path

from pulsar_spark.errors import InvalidConfiguration


def runs(pid: int) -> bool:
    """Does a process with this id run on this machine?

    >>> runs(os.getpid()), runs(1 << 70), runs(0)
    (True, False, False)
    """
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, IndexError):
        return False


def own_folder(name: str) -> Path:
    """A private temporary folder under a guessable name; :class:`InvalidConfiguration` if another user may write."""
    path = Path(tempfile.gettempdir()) / name
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise InvalidConfiguration(
            f"{str(path)!r} is not a private folder of this user: remove it, or set TMPDIR to a folder of your own"
        )
    return path
