"""Noticing that topics were made or deleted, for the price of a ``stat`` per folder."""

import os
import time

from pulsar_spark.protocol.topic_name import TopicName
from pulsar_spark.storage.layout import Layout

_COARSE_NS = 1_000_000_000


class TopicFolders:
    """Remembers when each namespace's folder last changed.

    A folder changed within the last second counts as changed at the next look too: the clocks of file systems are
    coarse, and two changes may bear one time.
    """

    def __init__(self, layout: Layout):
        self._layout = layout
        self._stamps: dict[str, int] = {}
        self._namespaces: list[tuple[str, str]] = []

    def changed(self) -> list[tuple[str, str]]:
        """(tenant, namespace) of the folders that changed since :meth:`seen`."""
        root = str(self._layout.root)
        tenants = {self._folder(tenant, namespace).rpartition(os.sep)[0] for tenant, namespace in self._namespaces}
        if any(_stamp(folder) != self._stamps.get(folder) for folder in (root, *tenants)):
            self._namespaces = self._layout.namespaces()
        return [
            namespace
            for namespace in self._namespaces
            if _stamp(self._folder(*namespace)) != self._stamps.get(self._folder(*namespace))
        ]

    def seen(self) -> None:
        """What is there now is known."""
        folders = [self._folder(*namespace) for namespace in self._namespaces]
        parents = {folder.rpartition(os.sep)[0] for folder in folders}
        latest = time.time_ns() - _COARSE_NS
        stamps = {folder: _stamp(folder) for folder in (str(self._layout.root), *parents, *folders)}
        self._stamps = {folder: stamp if stamp < latest else 0 for folder, stamp in stamps.items()}

    def _folder(self, tenant: str, namespace: str) -> str:
        return str(self._layout.topic(TopicName(tenant, namespace, "t")).parent)


def _stamp(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except FileNotFoundError:
        return -1
