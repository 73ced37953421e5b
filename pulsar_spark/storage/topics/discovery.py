"""Notice that topics were created or deleted: by a ``stat`` per folder, or by listing an object store."""

import math
import os
import time
from collections.abc import Callable

from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.store import local_store

_COARSE_NS = 1_000_000_000
_PAUSE = 10


class TopicFolders:
    """Remembers when each namespace's folder changed; clocks are coarse, so a change counts again a second later."""

    def __init__(self, layout: Layout):
        self._layout = layout
        self._stamps: dict[str, int] = {}
        self._again_at: dict[str, float] = {}
        """When folders whose stamp may be another change's, too, count as changed again."""
        self._namespaces: list[tuple[str, str]] = []
        self._changed: list[tuple[str, str]] = []
        self._looked_at, self._changed_at = 0, 0.0

    def changed(self) -> list[tuple[str, str]]:
        """(tenant, namespace) of the folders that changed since :meth:`seen`."""
        root, self._looked_at = str(self._layout.root), time.time_ns()
        tenants = {self._folder(tenant, namespace).rpartition(os.sep)[0] for tenant, namespace in self._namespaces}
        if any(_stamp(folder) != self._stamps.get(folder) for folder in (root, *tenants)):
            self._namespaces = self._layout.namespaces()
        self._changed_at = time.monotonic()
        self._changed = [each for each in self._namespaces if self._has_changed(self._folder(*each))]
        return self._changed

    def _has_changed(self, folder: str) -> bool:
        is_same = _stamp(folder) == self._stamps.get(folder)
        return time.monotonic() >= self._again_at.get(folder, math.inf) if is_same else True

    def ask_again(self) -> None:
        """Count folders that may have changed again as changed now."""
        self._again_at = dict.fromkeys(self._again_at, 0.0)

    def seen(self) -> None:
        """Note that the caller has read the folders that :meth:`changed` returned."""
        every = {self._folder(*namespace) for namespace in self._namespaces}
        parents = {folder.rpartition(os.sep)[0] for folder in every}
        latest, now = self._looked_at - _COARSE_NS, time.monotonic()
        stamps = {folder: _stamp(folder) for folder in (str(self._layout.root), *parents)}
        found = {folder: stamp if stamp < latest else 0 for folder, stamp in stamps.items()}
        for namespace in self._changed:
            folder = self._folder(*namespace)
            found[folder] = _stamp(folder)
            self._again_at.pop(folder, None)
            if found[folder] >= latest:
                self._again_at[folder] = now + _PAUSE * (now - self._changed_at)
        self._stamps = {folder: stamp for folder, stamp in self._stamps.items() if folder in every} | found

    def _folder(self, tenant: str, namespace: str) -> str:
        return str(self._layout.namespace(tenant, namespace))


LIST_SECONDS, CALLS = 10.0, 10
"""Seconds between two listings of an object store of at most this many calls; more calls take longer in proportion."""
NAMES_A_CALL = 1000


class ListedTopics:
    def __init__(self, layout: Layout, clock: Callable[[], float] = time.monotonic):
        self._layout, self._clock = layout, clock
        self._found: dict[tuple[str, str], frozenset[str]] = {}
        self._seen: dict[tuple[str, str], frozenset[str]] = {}
        self._next_list = float("-inf")

    def changed(self) -> list[tuple[str, str]]:
        if self._clock() >= self._next_list:
            self._found = {
                namespace: frozenset(self._layout.store.folders(self._layout.namespace(*namespace)))
                for namespace in self._layout.namespaces()
            }
            calls = (
                1
                + len({tenant for tenant, _ in self._found})
                + sum(1 + len(names) // NAMES_A_CALL for names in self._found.values())
            )
            self._next_list = self._clock() + LIST_SECONDS * max(1.0, calls / CALLS)
        return [name for name, topics in self._found.items() if topics != self._seen.get(name)]

    def ask_again(self) -> None:
        """Do nothing: a listing hides no second change."""

    def seen(self) -> None:
        self._seen = dict(self._found)


def topic_folders(layout: Layout) -> TopicFolders | ListedTopics:
    return TopicFolders(layout) if layout.store.is_local else ListedTopics(layout)


def _stamp(folder: str) -> int:
    try:
        return local_store.stamp(folder)[1]
    except FileNotFoundError:
        return -1
