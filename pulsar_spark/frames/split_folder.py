"""Folders for temporary files that go with the process that made them, however it ends.

A process holds a file in each of its folders (see storage.held_file) as long as it is there. What a killed one left is
removed by the next process of the same user on the machine that makes a folder: whoever can take the lock knows that
the process is gone. A process that was killed before it held the file leaves an empty folder, which nobody touches.
"""

import os
import shutil
import tempfile
import threading
from pathlib import Path

from pulsar_spark.storage.held_file import HeldFile, is_let_go

PREFIX = "pulsar_spark_split_"
_HELD = ".held"
_lock = threading.Lock()
_looked_in: set[str] = set()
"""Where this process has removed what others left."""


class SplitFolder:
    """A folder of this process, with one for each of *names*."""

    def __init__(self, names: list[str]):
        _remove_left(tempfile.gettempdir())
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._held: HeldFile | None = None
        try:
            self._held = HeldFile(self.path / _HELD)
            for name in names:
                (self.path / name).mkdir()
        except BaseException:
            self.remove()
            raise

    def remove(self, name: str | None = None) -> None:
        """Remove the folder of a name, or all; a second time does nothing."""
        if name is not None:
            shutil.rmtree(self.path / name, ignore_errors=True)
            return
        _remove(self.path)
        if self._held is not None:
            self._held.let_go()


def _remove(folder: Path) -> None:
    """Last of all the held file: whoever is killed meanwhile leaves what the next one removes."""
    for each in [*folder.iterdir()] if folder.is_dir() else []:
        if each.name != _HELD:
            shutil.rmtree(each, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def _remove_left(place: str) -> None:
    """Remove the folders of processes that are gone; once a process."""
    with _lock:
        if place in _looked_in:
            return
        _looked_in.add(place)
        for folder in Path(place).glob(f"{PREFIX}*"):
            if not folder.is_symlink() and folder.is_dir() and folder.stat().st_uid == os.getuid():
                is_let_go(folder / _HELD, lambda held: _remove(held.parent))
