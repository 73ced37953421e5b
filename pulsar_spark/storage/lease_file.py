"""A file that says who holds something, on which machine and in which process, and until when (Unix time).

It is renewed by its holder and replaced whole, so whoever reads it finds one holder or none. On a local disk who
decides by it holds a lock, and a holder on this machine whose process is gone has let go, whatever the file says. In an
object store it is replaced if it still says what was read, and neither clocks nor processes are compared: a holder is
gone when it has let go, or when nothing was renewed for as long as a lease lasts, as seen on the clock of who looks,
which therefore has to look for that long.
"""

import json
import os
import socket
import time
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from pulsar_spark.storage.store import AnyPath, store_of
from pulsar_spark.storage.this_machine import runs

Said = TypeVar("Said", bound=NamedTuple)


class LeaseFile(Generic[Said]):
    """The file at *path*, whose fields are those of *kind*, with ``host``, ``pid`` and ``until`` among them. A lease
    lasts *seconds()* from when it was renewed."""

    def __init__(
        self, path: AnyPath, kind: type[Said], seconds: Callable[[], float], clock: Callable[[], float] = time.monotonic
    ):
        self.path, self._kind, self._seconds, self._clock = path, kind, seconds, clock
        self._store = store_of(path)
        self._seen: tuple[Said, float] | None = None
        self.is_told_at_once = self._store.is_local
        """Does one look tell whether a holder is there, by a clock and by its process?"""

    def read(self) -> Said | None:
        """What it says, alive or not; None for no file, and for one that says nothing."""
        try:
            return self._parsed(self.path.read_bytes())
        except FileNotFoundError:
            return None

    def is_held(self, said: Said | None) -> bool:
        """Is what its holder has held still?"""
        if said is None or said.until == 0:
            return False
        if self._store.is_local:
            return said.until > time.time() and (said.host != socket.gethostname() or runs(said.pid))
        if self._seen is None or self._seen[0] != said:
            self._seen = said, self._clock()
        return self._clock() - self._seen[1] < self._seconds()

    def change(self, decide: Callable[[Said | None], dict[str, Any] | None]) -> bool:
        """Let it say what *decide* makes of what it says: the fields but for ``host``, ``pid`` and ``until``, and
        whether it ``is_held`` from now on. False where that is None, and then nothing changes."""

        def text(content: bytes | None) -> str | None:
            said = decide(self._parsed(content or b""))
            return None if said is None else self._text(said)

        return self._store.change(self.path, text)

    def _parsed(self, content: bytes) -> Said | None:
        try:
            return self._kind(**json.loads(content))
        except (ValueError, TypeError):
            return None

    def _text(self, said: dict[str, Any]) -> str:
        is_held = said.pop("is_held")
        of_here = {"host": socket.gethostname(), "pid": os.getpid(), **said}
        return json.dumps(of_here | {"until": time.time() + self._seconds() if is_held else 0.0})
