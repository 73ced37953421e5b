"""Temporary folders that are removed after the process that made them, however it ends.

A process locks a file in each folder (see storage.processes.held_file). The user's next process that makes a folder
removes those whose lock is free.
"""

import os
import shutil
import tempfile
import threading
from pathlib import Path

from pulsar_spark.storage.processes.held_file import HeldFile, has_holder_ended

PREFIX = "pulsar_spark_split_"
_HELD = ".held"
_lock = threading.Lock()
_looked_in: set[str] = set()
"""Places where this process has already removed left folders."""


class SplitFolder:
    """A temporary folder with a sub-folder for each of *names*."""

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
        """Remove the sub-folder of a name, or everything; may be repeated."""
        if name is not None:
            shutil.rmtree(self.path / name, ignore_errors=True)
            return
        _remove(self.path)
        if self._held is not None:
            self._held.close()


def _remove(folder: Path) -> None:
    """Remove the held file last, so that the next process can finish an interrupted removal."""
    for each in [*folder.iterdir()] if folder.is_dir() else []:
        if each.name != _HELD:
            shutil.rmtree(each, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def _remove_left(place: str) -> None:
    with _lock:
        if place in _looked_in:
            return
        _looked_in.add(place)
        for folder in Path(place).glob(f"{PREFIX}*"):
            if not folder.is_symlink() and folder.is_dir() and folder.stat().st_uid == os.getuid():
                has_holder_ended(folder / _HELD, lambda path: _remove(path.parent))
