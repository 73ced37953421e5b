"""What a root promises about finished writes: ``fsync`` survives a power loss, ``none`` only the end of the process.

With ``fsync``, a writer syncs data files, their folders and the commit file before it links that, then the log's
folder. Leases, locks, checkpoints and inputs of plans are never synced. The setting is a file of the root.
"""

import errno
import json
import os
from functools import lru_cache
from pathlib import Path

from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.storage.layout import BUNDLES
from pulsar_spark.storage.store.small_file import keep_aside, parse_object, read_small, say_unreadable, text_of
from pulsar_spark.storage.store.store import AnyPath, StrPath, path_of, store_of

FSYNC, NONE = "fsync", "none"
DURABILITIES = (FSYNC, NONE)
DEFAULT = FSYNC
ENVIRONMENT = "PULSAR_SPARK_DURABILITY"
_NAME = "durability"
_UNREADABLE = (errno.EACCES, errno.ELOOP)
_read: dict[str, tuple[tuple[int, int], str]] = {}


def settings_path(root: StrPath) -> AnyPath:
    return path_of(root) / BUNDLES / "settings.json"


@lru_cache(maxsize=1000)
def _local_settings(root: str) -> str | None:
    """The settings file of a root on a local disk."""
    return str(settings_path(root)) if store_of(root).is_local else None


def read_durability(root: StrPath) -> str:
    path = _local_settings(str(root))
    if path is None:
        return FSYNC
    try:
        found = os.stat(path)
        stamp = found.st_ino, found.st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        return DEFAULT
    except OSError as error:
        if error.errno not in _UNREADABLE:
            raise
        stamp = -1, error.errno
    known = _read.get(path)
    if known is None or known[0] != stamp:
        value, why = _parsed(path_of(path))
        if why:
            instead = f"durability is {value!r} until 'pulsar-spark durability set' changes it"
            say_unreadable(path_of(path), repr(stamp).encode(), why, instead)
        known = _read[path] = stamp, value
    return known[1]


def settings_fault(root: StrPath) -> str | None:
    """Why the settings file cannot be read; None if it can or is missing."""
    return _parsed(settings_path(root))[1] if store_of(root).is_local else None


def _parsed(path: AnyPath) -> tuple[str, str | None]:
    """The durability, and why the file cannot be read, if so."""
    try:
        value = text_of(parse_object(read_small(path)), _NAME)
        if value not in DURABILITIES:
            raise ValueError(f"it says durability {value!r}")
    except (FileNotFoundError, NotADirectoryError):
        return DEFAULT, None
    except (ValueError, OSError) as broken:
        if isinstance(broken, OSError) and broken.errno not in _UNREADABLE:
            raise
        return DEFAULT, str(broken)
    return value, None


def write_durability(root: StrPath, value: str) -> None:
    """Set the durability of all later appends, also of running processes; :class:`InvalidConfiguration` if unknown."""
    if value not in DURABILITIES:
        raise InvalidConfiguration(
            f"durability {value!r}: give 'fsync' (a finished write survives a power loss) or 'none' (faster)"
        )
    store = store_of(root)
    if not store.is_local:
        if value != FSYNC:
            raise InvalidConfiguration(
                f"durability {value!r}: a finished write to an object store survives a power loss: "
                "only 'fsync' is possible there"
            )
        return
    path = settings_path(root)
    if settings_fault(root):
        keep_aside(path)
    store.replace(path, json.dumps({_NAME: value}) + "\n", sync_file)
    sync_folder(path.parent)


def is_durable(table: StrPath) -> bool:
    """Whether appends to a table, which lies three folders below its root, are synced; never in stores."""
    root = _local_root(str(table))
    return root is not None and read_durability(root) == FSYNC


@lru_cache(maxsize=1000)
def _local_root(table: str) -> str | None:
    path = path_of(table)
    return str(path.absolute().parents[2]) if isinstance(path, Path) else None


def sync_file(path: StrPath) -> None:
    """Wait until the file's bytes are on the local disk."""
    _sync(path, os.O_RDONLY)


def sync_folder(path: StrPath) -> None:
    """Wait until the folder's names are on the disk."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def sync_parents(folder: AnyPath, root: AnyPath) -> None:
    for parent in folder.parents:
        sync_folder(parent)
        if parent == root.parent:
            return


def sync_tree(folder: Path) -> None:
    """Sync a folder's name and the folders in it, but no file contents."""
    for above, _, _ in os.walk(folder):
        sync_folder(above)
    sync_folder(folder.parent)


def _sync(path: StrPath, flags: int) -> None:
    opened = os.open(str(path), flags)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
