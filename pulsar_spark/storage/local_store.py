"""A local disk, or one that is mounted: what of it commits and readers ask that an object store answers in another way
(see store).

A file is put in place by a hard link, which the file system does only once, and is on the disk before, where that is
asked for.
"""

import contextlib
import errno
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock

from pulsar_spark.storage.object_path import Stat

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_checked: set[str] = set()


def _stat(name: str | os.PathLike) -> os.stat_result:
    """That of the file; of a link that leads to itself that of the link."""
    try:
        return os.stat(name)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return os.lstat(name)


class LocalStore:
    """All that is mounted; it has no state."""

    is_local, is_lent = True, False
    spark_kind = None
    """Spark needs no client of it."""
    lists_from_a_name = False
    look_seconds = 0.0
    """Whoever looks at files in turn need not wait between two looks for the store's sake."""

    @staticmethod
    def has(name: str) -> bool:
        """Is a file there? Half the time of ``os.path.exists``, of which a broker at rest asks thousands a second."""
        return os.access(name, os.F_OK)

    @staticmethod
    def stamp(name: str | os.PathLike) -> tuple[int, int, int]:
        """What tells the file from another that is put in its place, or from itself when it has changed;
        FileNotFoundError without one."""
        found = _stat(name)
        return found.st_ino, found.st_mtime_ns, found.st_size

    @staticmethod
    def size(name: str | os.PathLike) -> int:
        """Its bytes; FileNotFoundError without one."""
        return os.path.getsize(name)

    @staticmethod
    def sizes(folder: Path, names: Iterable[str]) -> dict[str, int]:
        """The bytes of files in a folder, or below it; without those that are not there."""
        found = {}
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                found[name] = os.stat(folder / name).st_size
        return found

    @staticmethod
    def names(folder: str | os.PathLike) -> list[str]:
        """The names in a folder, in no order; FileNotFoundError without one."""
        return os.listdir(folder)

    def check(self, root: Path, folder: Path) -> None:
        """Once for each process: can files of a *folder* of the root be linked, on which commits rest? OSError where
        the file system has no links. Of a root that is to be made the first write says it."""
        if str(folder) in _checked or not os.access(folder, os.W_OK):
            return
        probe, link = (folder / f".{uuid.uuid4().hex}{suffix}" for suffix in ("", ".link"))
        try:
            probe.touch()
            os.link(probe, link)
            _checked.add(str(folder))
        except OSError as error:  # one that is full, or read-only, need not be so when something is written
            if self.has_no_links(error):
                raise
        finally:
            for path in (probe, link):
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)

    @staticmethod
    def has_no_links(error: OSError) -> bool:
        """Does an *error* of a link say that there are none on this file system?"""
        return error.filename2 is not None and error.errno in _NO_LINKS

    @staticmethod
    def make_folder(folder: Path) -> None:
        """Make it, and those above it, unless it is there."""
        folder.mkdir(parents=True, exist_ok=True)

    @staticmethod
    def clone_folder(folder: Path, clone: Path) -> None:
        """Let *clone* have the files of a folder in which none is ever changed in place: the same files, under second
        names."""
        shutil.copytree(folder, clone, copy_function=os.link)

    @staticmethod
    def touch(name: str) -> None:
        """Let an empty file be there."""
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT, 0o666))

    @staticmethod
    def take_names(folder: str) -> list[str]:
        """The names in a folder, if there is one, and remove the files: those that come behind are there again."""
        try:
            names = os.listdir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        for name in names:
            with contextlib.suppress(FileNotFoundError, IsADirectoryError, PermissionError):
                os.unlink(f"{folder}{os.sep}{name}")
        return names

    @staticmethod
    def folders(folder: str | os.PathLike) -> list[str]:
        """The names of folders in a folder; FileNotFoundError or NotADirectoryError without one."""
        return [entry.name for entry in os.scandir(folder) if entry.is_dir()]

    @staticmethod
    def below(folder: Path, *, without: str | None = None) -> dict[str, Stat]:
        """All files below a folder, by their names from it on, but for those in folders whose names begin with
        *without*; what goes meanwhile is left out."""
        found = {}
        for above, folders, names in os.walk(folder):
            folders[:] = [name for name in folders if without is None or not name.startswith(without)]
            within = "" if above == str(folder) else f"{os.path.relpath(above, folder)}/"
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    seen = os.stat(f"{above}/{name}")
                    found[within + name] = Stat(seen.st_size, seen.st_mtime)
        return found

    @staticmethod
    def footer(name: str | os.PathLike) -> pq.FileMetaData:
        """What the end of a Parquet file says."""
        return pq.read_metadata(str(name))

    @staticmethod
    def delta(path: str | os.PathLike) -> tuple[str, None]:
        """By what ``deltalake`` opens a table."""
        return str(path), None

    @staticmethod
    def parquet(name: str | os.PathLike) -> str:
        """What Arrow reads a file from."""
        return str(name)

    @staticmethod
    def last_bytes(name: str | os.PathLike, count: int) -> bytes:
        """Its last *count* bytes; FileNotFoundError without it, OSError (EINVAL) where it is shorter."""
        with open(name, "rb") as opened:
            opened.seek(-count, os.SEEK_END)
            return opened.read()

    @staticmethod
    def read_small(name: str | os.PathLike, most: int | None = None) -> bytes:
        """The bytes of a file, at most one more than *most*; none of a folder, a pipe or anything else that is no file.
        FileNotFoundError without it."""
        if not stat.S_ISREG(_stat(name).st_mode):
            return b""
        with open(name, "rb") as opened:
            return opened.read(-1 if most is None else most + 1)

    @staticmethod
    @contextlib.contextmanager
    def create(name: str | os.PathLike) -> Iterator[pa.NativeFile]:
        """A new file to write to. Opened here, because a writer that fails on a full disk leaves open what it opened
        itself."""
        with pa.OSFile(str(name), "wb") as sink:
            yield sink

    @staticmethod
    def remove(paths: Iterable[Path]) -> None:
        """Remove them; what is not there is passed over."""
        for path in paths:
            path.unlink(missing_ok=True)

    @staticmethod
    def remove_folder(folder: Path, but: Collection[Path] = ()) -> None:
        """Remove it with all that is in it, as far as the file system lets it go."""
        shutil.rmtree(folder, ignore_errors=True)

    @staticmethod
    def drop_folder(folder: Path, held: Callable[[], AbstractContextManager]) -> None:
        """Remove it with all that is in it, at once: nobody meets half of it. It goes out of the way inside *held*;
        FileNotFoundError without it."""
        doomed = folder.with_name(f".deleted-{uuid.uuid4().hex}")
        with held():
            os.rename(folder, doomed)
        shutil.rmtree(doomed)

    @staticmethod
    def move(source: Path, target: Path) -> None:
        """Let the file be there instead, as if written now."""
        target.parent.mkdir(exist_ok=True)
        os.utime(source)
        os.rename(source, target)

    @classmethod
    def keep_as(cls, source: Path, target: Path) -> None:
        """The same before *source* goes, as it is now: not as it was when somebody else was about to do that, and was
        killed."""
        if target.exists() and os.path.samefile(source, target):
            return  # a rename would leave both names
        fresh = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        try:
            cls.link(source, fresh)
            os.replace(fresh, target)
        finally:
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)

    @staticmethod
    def link(source: Path, target: Path) -> None:
        """Let the file be there, too."""
        os.link(source, target)

    @classmethod
    def replace(cls, path: Path, content: str, ready: Callable[[Path], None] = lambda fresh: None) -> None:
        """Put *content* there in one step, whatever was there. *ready* is called with the file that holds it before."""
        cls.replace_kept(path, content, None, ready)

    @staticmethod
    def replace_kept(
        path: Path, content: str, kept: Path | None, ready: Callable[[Path], None] = lambda fresh: None
    ) -> None:
        """The same for who has to have what was there beside, as *kept*, if anything was and that is not None: a crash
        leaves either, and both only before the step."""
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

    @classmethod
    def change(
        cls,
        path: Path,
        decide: Callable[[bytes | None], str | None],
        held: Callable[[], AbstractContextManager] | None = None,
        write: Callable[[Path, str], None] | None = None,
    ) -> bool:
        """Let the file say what *decide* makes of what it says, of None where there is none and of no bytes where
        something else lies there; False where that is None, and then nothing changes. *held* is the lock under which
        all change it, one beside it if none is given."""
        with FileLock(path.with_suffix(".lock")) if held is None else held():
            try:
                content = cls.read_small(path)
            except FileNotFoundError:
                content = None
            said = decide(content)
            if said is not None:
                (write or cls.replace)(path, said)
            return said is not None

    @staticmethod
    def put_in_first_free(
        paths: Iterable[Path],
        content: str,
        folder: Path,
        held: Callable[[], AbstractContextManager],
        ready: Callable[[Path], None] | None = None,
    ) -> Path | None:
        """Put *content* in the first of *paths*, all in *folder*, that nobody has taken, each asked for when the one
        before is; that one, None where there is none. *ready* is called with the file that holds it before; the link
        is made inside *held*. After an error nothing was put in place, and what is raised says so."""
        fresh = folder / f".{uuid.uuid4().hex}.tmp"
        try:
            fresh.write_text(content)
            if ready is not None:
                ready(fresh)
            for path in paths:
                if _is_put(fresh, path, held):
                    return path
            return None
        finally:
            with contextlib.suppress(OSError):  # it is in nobody's way, and what it says is decided
                fresh.unlink()


def _is_put(fresh: Path, path: Path, held: Callable[[], AbstractContextManager]) -> bool:
    """False where somebody else has taken the place. An error of a link that was made all the same, as network file
    systems have them, is none."""
    try:
        with held():
            os.link(fresh, path)
        return True
    except FileExistsError:
        return _is_linked(fresh)
    except OSError:
        if not _is_linked(fresh):
            raise
        return True


def _is_linked(fresh: Path) -> bool:
    try:
        return fresh.stat().st_nlink > 1
    except FileNotFoundError:  # with its folder: the table was deleted
        return False


LOCAL = LocalStore()
