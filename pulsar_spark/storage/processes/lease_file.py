"""A file that names the holder of something: machine, process, and end of the lease (Unix time).

On a local disk it changes under a lock, and a dead process's lease has ended. In an object store a lease ends if the
file says so or stays unchanged for a lease's length. An unreadable file counts as ended.
"""

import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from pulsar_spark.protocol.topics.message_id import MAX_LONG
from pulsar_spark.storage.processes.this_machine import runs
from pulsar_spark.storage.store.away import check_there
from pulsar_spark.storage.store.small_file import (
    keep_aside,
    parse_object,
    process_id_of,
    read_small,
    say_unreadable,
    text_of,
    whole_number_of,
)
from pulsar_spark.storage.store.store import AnyPath, store_of


class Lease(Protocol):
    """Fields that every lease has; ``until`` is Unix time."""

    @property
    def host(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def until(self) -> float: ...


Fields = TypeVar("Fields", bound=Lease)
LAST_INSTANT = 253_402_300_799
"""The end of the year 9999, in seconds since 1970."""
FARTHEST_SECONDS = 24 * 60 * 60
"""More than machines' clocks differ: on a local disk, a lease that ends later counts as unreadable."""


class LeaseFile(Generic[Fields]):
    """The file at *path* with the fields of *kind*; a lease lasts *seconds()*."""

    def __init__(self, path: AnyPath, kind: type[Fields], seconds: Callable[[], float]):
        self.path, self._kind, self._seconds, self._clock = path, kind, seconds, time.monotonic
        self._optional: Mapping[str, object] = getattr(kind, "_field_defaults", {})
        self._store = store_of(path)
        self._seen: tuple[Fields, float] | None = None
        self.is_certain_at_once = self._store.is_local
        """Does one look tell whether a holder is alive?"""

    def read(self) -> Fields | None:
        """The content, alive or not; None if missing or unreadable."""
        try:
            return self._parsed(read_small(self.path))[0]
        except FileNotFoundError:
            return None

    def is_alive(self, lease: Fields | None) -> bool:
        """Has *lease*, the content, not ended?"""
        if lease is None or lease.until == 0:
            return False
        if self._store.is_local:
            return lease.until > time.time() and (lease.host != socket.gethostname() or runs(lease.pid))
        if self._seen is None or self._seen[0] != lease:
            self._seen = lease, self._clock()
        return self._clock() - self._seen[1] < self._seconds()

    def change(self, decide: Callable[[Fields | None], dict[str, Any] | None]) -> bool:
        """Replace the content by the fields and ``is_held`` that *decide* returns; if None, change nothing: False."""

        def text(content: bytes | None) -> str | None:
            found, is_readable = (None, True) if content is None else self._parsed(content)
            changed = decide(found)
            if changed is None:
                return None
            if not is_readable:
                keep_aside(self.path)
            is_held = changed.pop("is_held")
            of_here = {"host": socket.gethostname(), "pid": os.getpid(), **changed}
            return json.dumps(of_here | {"until": time.time() + self._seconds() if is_held else 0.0})

        check_there(self.path)
        return self._store.change(self.path, text)

    def _parsed(self, content: bytes) -> tuple[Fields | None, bool]:
        try:
            return self._fields(parse_object(content)), True
        except ValueError as why:
            say_unreadable(self.path, content, why, "it is treated as an ended lease")
            return None, False

    def _fields(self, found: dict[str, Any]) -> Fields:
        given: dict[str, Any] = {}
        for name, of_type in self._kind.__annotations__.items():
            if name in self._optional:
                if found.get(name) is not None:
                    given[name] = _holder_of(found[name], name)
            elif of_type is str:
                given[name] = text_of(found, name)
            elif name == "until":
                given[name] = self._until(found)
            elif name == "pid":
                given[name] = process_id_of(found)
            else:
                most = LAST_INSTANT * 1000 if name.endswith("_ms") else MAX_LONG
                given[name] = whole_number_of(found, name, 0, most)
        return self._kind(**given)

    def _until(self, found: dict[str, Any]) -> float:
        value = found.get("until")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LAST_INSTANT:
            raise ValueError(f"'until' is {value!r:.60}, not an instant")
        if self._store.is_local and value > time.time() + max(self._seconds(), FARTHEST_SECONDS):
            raise ValueError(f"'until' is {value!r:.60}, longer than a lease lasts")
        return value


def _holder_of(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name!r} is {value!r:.60}, not an object")
    return {"broker_id": text_of(value, "broker_id"), "host": text_of(value, "host"), "pid": process_id_of(value)}
