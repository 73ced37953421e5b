"""Operations on a local or mounted disk (see store). A hard link, which succeeds only once, puts a file in place."""

import contextlib
import errno
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock

from pulsar_spark.storage.store.object_path import Decide, Lock, Stat

_BUFFER_BYTES = 1 << 14
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_checked: set[str] = set()
is_local, is_lent = True, False
spark_kind = None
look_seconds = 0.0


def _stat(name: str | os.PathLike) -> os.stat_result:
    try:
        return os.stat(name)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return os.lstat(name)


def has(name: str) -> bool:
    """Does the file exist? ``os.path.exists`` takes twice the time."""
    return os.access(name, os.F_OK)


def stamp(name: str | os.PathLike) -> tuple[int, int, int]:
    """A value that changes with the file; FileNotFoundError if it is missing."""
    found = _stat(name)
    return found.st_ino, found.st_mtime_ns, found.st_size


def size(name: str | os.PathLike) -> int:
    return os.path.getsize(name)


def sizes(folder: Path, names: Iterable[str]) -> dict[str, int]:
    found = {}
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            found[name] = os.stat(folder / name).st_size
    return found


def names(folder: str | os.PathLike) -> list[str]:
    return os.listdir(folder)


def check(root: Path, folder: Path) -> None:
    """Check once per process that files in *folder* of the root can be hard-linked; OSError if not."""
    if str(folder) in _checked or not os.access(folder, os.W_OK):
        return
    probe, link = (folder / f".{uuid.uuid4().hex}{suffix}" for suffix in ("", ".link"))
    try:
        probe.touch()
        os.link(probe, link)
        _checked.add(str(folder))
    except OSError as error:  # a full or read-only disk may be writable later
        if has_no_links(error):
            raise
    finally:
        for path in (probe, link):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def has_no_links(error: OSError) -> bool:
    return error.filename2 is not None and error.errno in _NO_LINKS


def make_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)


def clone_folder(folder: Path, clone: Path) -> None:
    """Give *clone* the files of *folder*, which never change in place, as hard links."""
    shutil.copytree(folder, clone, copy_function=os.link)


def touch(name: str) -> None:
    """Create an empty file unless it exists."""
    os.close(os.open(name, os.O_WRONLY | os.O_CREAT, 0o666))


def take_names(folder: str) -> list[str]:
    """List and remove the files of a folder, if it exists."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    for name in names:
        with contextlib.suppress(FileNotFoundError, IsADirectoryError, PermissionError):
            os.unlink(f"{folder}{os.sep}{name}")
    return names


def folders(folder: str | os.PathLike) -> list[str]:
    """Names of folders in a folder; FileNotFoundError or NotADirectoryError if it is none."""
    return [entry.name for entry in os.scandir(os.fspath(folder)) if entry.is_dir()]


def below(folder: Path, *, without: str | None = None) -> dict[str, Stat]:
    """All files below a folder by relative name, except in folders whose names begin with *without*."""
    found = {}
    for above, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if without is None or not name.startswith(without)]
        within = "" if above == str(folder) else f"{os.path.relpath(above, folder)}/"
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                seen = os.stat(f"{above}/{name}")
                found[within + name] = Stat(seen.st_size, seen.st_mtime)
    return found


def footer(name: str | os.PathLike) -> pq.FileMetaData:
    return pq.read_metadata(str(name))


def delta(path: str | os.PathLike) -> tuple[str, None]:
    """The path and options with which ``deltalake`` opens a table."""
    return str(path), None


def parquet(name: str | os.PathLike) -> str:
    """The path, or the file, from which Arrow reads."""
    return str(name)


def last_bytes(name: str | os.PathLike, count: int) -> bytes:
    """The last *count* bytes; OSError (EINVAL) if there are fewer."""
    with open(name, "rb") as opened:
        opened.seek(-count, os.SEEK_END)
        return opened.read()


def read_small(name: str | os.PathLike, most: int | None = None) -> bytes:
    """A file's bytes, at most *most* + 1; empty for anything but a file. FileNotFoundError if missing."""
    if not stat.S_ISREG(_stat(name).st_mode):
        return b""
    with open(name, "rb") as opened:
        return opened.read(-1 if most is None else most + 1)


@contextlib.contextmanager
def create(name: str | os.PathLike) -> Iterator[pa.NativeFile]:
    """Open a new file; a Parquet writer would not close its own if the disk is full. Small writes are gathered."""
    with pa.OSFile(str(name), "wb") as file, pa.BufferedOutputStream(file, _BUFFER_BYTES) as sink:
        yield sink


def remove(paths: Iterable[Path]) -> None:
    """Remove files; missing ones are skipped."""
    for path in paths:
        path.unlink(missing_ok=True)


def remove_folder(folder: Path, but: Collection[Path] = ()) -> None:
    """Remove a folder with its contents, as far as possible."""
    shutil.rmtree(folder, ignore_errors=True)


def drop_folder(folder: Path, lock: Lock) -> None:
    """Remove a folder at once: rename it inside *lock*, then delete it. FileNotFoundError if missing."""
    doomed = folder.with_name(f".deleted-{uuid.uuid4().hex}")
    with lock():
        os.rename(folder, doomed)
    shutil.rmtree(doomed)


def move(source: Path, target: Path) -> None:
    """Move a file and set its modification time to now."""
    target.parent.mkdir(exist_ok=True)
    os.utime(source)
    os.rename(source, target)


def keep_as(source: Path, target: Path) -> None:
    """Link *target* to *source* as it is now, over an older *target*."""
    if target.exists() and os.path.samefile(source, target):
        return  # a rename would leave both names
    fresh = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        link(source, fresh)
        os.replace(fresh, target)
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)


def link(source: Path, target: Path) -> None:
    os.link(source, target)


def replace(
    path: Path, content: str, ready: Callable[[Path], None] = lambda fresh: None, kept: Path | None = None
) -> None:
    """Write *content* to *path* in one step, after *ready* with the new file; *kept* is a new name of the old file."""
    fresh = path.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        fresh.write_text(content)
        ready(fresh)
        if kept is not None and path.exists():
            (os.rename if path.is_dir() else os.link)(path, kept)
        os.replace(fresh, path)
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)


def change(
    path: Path, decide: Decide, lock: Lock | None = None, write: Callable[[Path, str], None] | None = None
) -> bool:
    """Replace the file's content by what *decide* makes of it; if that is None, change nothing and return False.

    *decide* gets None without a file, and no bytes for a folder or pipe. *lock* is the writers' lock, by default a lock
    file.
    """
    with FileLock(path.with_suffix(".lock")) if lock is None else lock():
        try:
            content = read_small(path)
        except FileNotFoundError:
            content = None
        changed = decide(content)
        if changed is not None:
            (write or replace)(path, changed)
        return changed is not None


def put_in_first_free(
    paths: Iterable[Path], content: str, folder: Path, lock: Lock, ready: Callable[[str], None] | None = None
) -> Path | None:
    """Put *content* at the first free one of *paths*, drawn one by one, all in *folder*; None if none is free.

    First *ready* is called with the new file; the link is made inside *lock*. After an error nothing was put.
    """
    fresh = f"{folder}/.{uuid.uuid4().hex}.tmp"
    try:
        with open(fresh, "wb") as opened:
            opened.write(content.encode())
        if ready is not None:
            ready(fresh)
        for path in paths:
            if _is_put(fresh, path, lock):
                return path
        return None
    finally:
        with contextlib.suppress(OSError):  # a leftover does no harm: the outcome is decided
            os.unlink(fresh)


def _is_put(fresh: str, path: Path, lock: Lock) -> bool:
    """Link the file; False if the place is taken. On network file systems a link may exist in spite of an error."""
    try:
        with lock():
            os.link(fresh, path)
        return True
    except FileExistsError:
        return _is_linked(fresh)
    except OSError:
        if not _is_linked(fresh):
            raise
        return True


def _is_linked(fresh: str) -> bool:
    try:
        return os.stat(fresh).st_nlink > 1
    except FileNotFoundError:  # the table was deleted with it
        return False
