"""What a root promises of a write that returned: ``fsync``, it outlives a power loss; ``none``, it outlives the process
only.

The order is what makes it so: the rows' files and the folders that name them first, then the commit's own file, then
its link under the version's name, then the log's folder. So a power loss leaves a commit whole or not at all, and no
commit names a file that is not there. Files that Spark staged are synced before they are taken in. What only says
who is alive (leases, locks), and what is made again from a table (checkpoints, inputs of plans), is not waited for.
What an object store has answered is there to stay, so there is nothing to set.

The setting is a file of the root, which every writer looks at for the price of a stat. A root that is made gets
:data:`DEFAULT`, or what the environment variable :data:`ENVIRONMENT` says; one without the file has the default: a
client's send takes 3.6 ms with the four syncs of an append and 2.1 ms without (ext4 on a virtual disk, little else
running; ``python -m tests.benchmarks.durability``), while a round takes 70 ms. A file that cannot be read stops nobody:
the default holds, the log says so once, and who sets it again keeps that file beside.
"""

import errno
import json
import os
from pathlib import Path

from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.storage.layout import BUNDLES
from pulsar_spark.storage.small_file import keep_aside, parse_object, read_small, say_unreadable, text_of
from pulsar_spark.storage.store import AnyPath, path_of, store_of

FSYNC, NONE = "fsync", "none"
DURABILITIES = (FSYNC, NONE)
DEFAULT = FSYNC
ENVIRONMENT = "PULSAR_SPARK_DURABILITY"
_NAME = "durability"
_UNREADABLE = (errno.EACCES, errno.ELOOP)
_read: dict[str, tuple[tuple[int, int], str]] = {}


def settings_path(root: str | os.PathLike) -> AnyPath:
    """The file of a root's settings, beside its bundles."""
    return path_of(root) / BUNDLES / "settings.json"


def read_durability(root: str | os.PathLike) -> str:
    """The root's durability; the default for a file that says none."""
    if not store_of(root).is_local:
        return FSYNC
    path = str(settings_path(root))
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


def settings_fault(root: str | os.PathLike) -> str | None:
    """Why the file of the settings cannot be read; None where it can, or where there is none."""
    return _parsed(settings_path(root))[1] if store_of(root).is_local else None


def _parsed(path: AnyPath) -> tuple[str, str | None]:
    """The durability that holds by the file of the settings, and why the file cannot be read, if so."""
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


def durability_of_new_roots() -> str:
    """What a root that is made now gets."""
    return os.environ.get(ENVIRONMENT, DEFAULT)


def write_durability(root: str | os.PathLike, value: str) -> None:
    """Set it, for every append from now on, of processes that run as well; :class:`InvalidConfiguration` for one there
    is not."""
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


def is_durable(table: str | os.PathLike) -> bool:
    """Whether appends to a table of a root are to be synced; all tables lie three folders below it. In a store nothing
    is."""
    return store_of(table).is_local and read_durability(Path(table).absolute().parents[2]) == FSYNC


def sync_file(path: str | os.PathLike) -> None:
    """Return when the file's bytes are on the disk, whoever wrote them."""
    _sync(path, os.O_RDONLY)


def sync_folder(path: str | os.PathLike) -> None:
    """Return when the names in the folder are on the disk."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def sync_parents(folder: Path, root: Path) -> None:
    """The same of the folders above *folder*, up to *root* and the name of that."""
    for parent in folder.parents:
        sync_folder(parent)
        if parent == root.parent:
            return


def sync_tree(folder: Path) -> None:
    """The same of a folder, those below it, and the name of it; what files hold was synced by who wrote them."""
    for above, _, _ in os.walk(folder):
        sync_folder(above)
    sync_folder(folder.parent)


def _sync(path: str | os.PathLike, flags: int) -> None:
    opened = os.open(path, flags)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
