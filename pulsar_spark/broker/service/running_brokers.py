"""Files that show which brokers share a root: one per process, kept like a lease."""

import time

from pulsar_spark.storage.layout import BUNDLES, Layout
from pulsar_spark.storage.processes.lease import LEASE_SECONDS, Holder
from pulsar_spark.storage.processes.lease_file import LeaseFile
from pulsar_spark.storage.store.away import check_there
from pulsar_spark.storage.store.store import AnyPath

SIGN_SECONDS = LEASE_SECONDS / 4
"""Time between two signs of life."""


class RunningBrokers:
    """The files of all brokers of a root, of which *broker_id* keeps its own."""

    def __init__(self, layout: Layout, broker_id: str):
        self._layout, self._broker_id = layout, broker_id
        self._folder = layout.root / BUNDLES / "brokers"
        self._own = self._folder / f"{broker_id}.json"
        self._files: dict[AnyPath, LeaseFile] = {}
        self._next_sign = 0.0

    def __len__(self) -> int:
        """How many files the last look read."""
        return len(self._files)

    def begin(self) -> None:
        check_there(self._folder)
        self._layout.store.make_folder(self._folder)

    def give_sign(self) -> None:
        if time.monotonic() >= self._next_sign:
            self._file(self._own).change(lambda known: {"broker_id": self._broker_id, "is_held": True})
            self._next_sign = time.monotonic() + SIGN_SECONDS

    def end(self) -> None:
        self._file(self._own).change(lambda known: {"broker_id": self._broker_id, "is_held": False})
        _remove(self._own)

    def look(self) -> set[str]:
        """The ids of running brokers; deletes files of others."""
        found, names = {self._broker_id}, self._layout.store.names(self._folder)
        known, self._files = self._files, {}
        for path in (self._folder / name for name in names if name.endswith(".json")):
            file = self._files[path] = known.get(path) or _file_at(path)
            holder = file.read()
            if holder is not None and file.is_alive(holder):
                found.add(holder.broker_id)
            elif holder is not None and holder.broker_id != self._broker_id:
                _remove(path)
        return found

    def _file(self, path: AnyPath) -> LeaseFile:
        return self._files.setdefault(path, _file_at(path))


def _file_at(path: AnyPath) -> LeaseFile:
    return LeaseFile(path, Holder, lambda: LEASE_SECONDS)


def _remove(path: AnyPath) -> None:
    path.unlink(missing_ok=True)
    path.with_suffix(".lock").unlink(missing_ok=True)
