"""What a process keeps in an object store as long as it is there, as :class:`~.held_file.HeldFile` does on a disk.

Nobody can hold a lock on it, so that its process is gone is certain on its own machine alone, where no process of its
number runs: elsewhere who looks sees whether it was renewed, and counts by a clock of his own.
"""

import contextlib
import json
import os
import uuid

from pulsar_spark.storage import forks
from pulsar_spark.storage.object_path import ObjectPath


class HeldObject:
    """It is there from its making until :meth:`end`, and says *said*."""

    def __init__(self, path: ObjectPath, said: dict):
        self.path, self._said, self._opened_under = path, {**said, "pid": os.getpid()}, forks.generation
        self._known: dict[str, str] | None = None
        self._is_ended = not self._say()

    def touch(self) -> bool:
        """Let it be another one than before; False where it is not there (any more)."""
        try:
            return self._is_mine and self._say()
        except OSError:
            return False

    def end(self) -> None:
        """Remove it. A second call does nothing, and neither does one of a fork."""
        is_mine, self._is_ended = self._is_mine, True
        if is_mine:
            with contextlib.suppress(OSError):  # who looks sees that it is renewed no more
                self.path.unlink()

    @property
    def _is_mine(self) -> bool:
        return not self._is_ended and self._opened_under == forks.generation

    def _say(self) -> bool:
        content = json.dumps({**self._said, "sign": uuid.uuid4().hex}).encode()
        if not self.path.store.put_over(self.path, content, self._known):
            return False
        self._known = self.path.store.known(self.path)
        return True
