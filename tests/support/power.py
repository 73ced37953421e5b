"""A power loss, as unkind as a file system may be: bytes that nobody synced are gone, and so are names in folders that
nobody synced.

:func:`recorded` notes at each ``os.fsync`` what the disk holds from then on; :meth:`Disk.lose_power` makes a tree of
that, and of nothing else. A folder that was never synced has the names it had when recording began; a file that was
never synced is empty. What was removed since may be there still or not: a file system may do that at once.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class Disk:
    def __init__(self, base: Path):
        self._base = base
        self._bytes: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._is_folder: dict[int, bool] = {}
        self._kept: list[int] = []
        for folder, _, files in os.walk(base):
            self.sync(folder)
            for file in files:
                self.sync(os.path.join(folder, file))

    def sync(self, path: str) -> None:
        """The disk holds this file's bytes, or this folder's names, as they are now."""
        opened = os.open(path, os.O_RDONLY)
        self._kept.append(opened)  # so that no other file gets its number
        number = os.fstat(opened).st_ino
        self._is_folder[number] = os.path.isdir(path)
        if self._is_folder[number]:
            self._names[number] = {}
            for entry in os.scandir(path):
                self._names[number][entry.name] = entry.inode()
                self._is_folder.setdefault(entry.inode(), entry.is_dir(follow_symlinks=False))
        else:
            self._bytes[number] = Path(path).read_bytes()

    def lose_power(self, survivors: Path, *, is_removed: bool = False) -> Path:
        """What is left, as a tree at *survivors*; *is_removed*: without what was removed, though nobody synced that."""
        self._restore(os.stat(self._base).st_ino, self._base if is_removed else None, survivors)
        for opened in self._kept:
            os.close(opened)
        return survivors

    def _restore(self, number: int, now: Path | None, path: Path) -> None:
        """What is left at *path*, of what lies *now* there if that counts."""
        if not self._is_folder[number]:
            path.write_bytes(self._bytes.get(number, b""))
            return
        path.mkdir()
        for name, inner in self._names.get(number, {}).items():
            if now is None or os.path.lexists(now / name):
                self._restore(inner, now and now / name, path / name)


@contextmanager
def recorded(base: Path) -> Iterator[Disk]:
    disk, fsync = Disk(base), os.fsync

    def sync(descriptor: int) -> None:
        fsync(descriptor)
        disk.sync(os.readlink(f"/proc/self/fd/{descriptor}"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", sync)
        yield disk
