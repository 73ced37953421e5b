"""Objects that a process keeps in an object store while it runs, in place of a held file.

Only its own machine knows for certain that a process ended; others see whether it renews the object.
"""

import contextlib
import json
import os
import uuid

from pulsar_spark.storage.processes import forks
from pulsar_spark.storage.store.object_path import ObjectPath


class HeldObject:
    """An object with *content*, from its creation until :meth:`end`."""

    def __init__(self, path: ObjectPath, content: dict):
        self.path, self._content, self._opened_under = path, {**content, "pid": os.getpid()}, forks.generation
        self._known: dict[str, str] | None = None
        self._is_ended = not self._put()

    def touch(self) -> bool:
        """Renew the object; False if it is gone."""
        try:
            return self._is_mine and self._put()
        except OSError:
            return False

    def end(self) -> None:
        """Remove the object; does nothing the second time or in a forked child."""
        is_mine, self._is_ended = self._is_mine, True
        if is_mine:
            with contextlib.suppress(OSError):  # others see that it is not renewed
                self.path.unlink()

    @property
    def _is_mine(self) -> bool:
        return not self._is_ended and self._opened_under == forks.generation

    def _put(self) -> bool:
        content = json.dumps({**self._content, "sign": uuid.uuid4().hex}).encode()
        if not self.path.store.put_over(self.path, content, self._known):
            return False
        self._known = self.path.store.get_stamped(self.path)[1]
        return True
