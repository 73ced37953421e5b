"""A topic's numbered publish ids: a retry counts once, however late."""

from array import array
from collections.abc import Callable, Iterable

import numpy as np

FEW = 1024


class PublishIds:
    """8-byte hashes of ids, and the last ids whole.

    *is_there* looks up an id in ``ledgers``; without it all stay whole.
    """

    def __init__(self, is_there: Callable[[str], bool] | None = None):
        self._is_there = is_there
        self._hashes, self._unsorted = np.empty(0, np.int64), array("q")
        self._new: set[str] = set()

    def __contains__(self, publish_id: str) -> bool:
        if publish_id in self._new:
            return True
        if self._is_there is None:
            return False
        if self._unsorted:
            self._hashes = np.sort(np.concatenate([self._hashes, np.frombuffer(self._unsorted, np.int64)]))
            self._unsorted = array("q")
        known = hash(publish_id)
        at = np.searchsorted(self._hashes, known)
        return bool(at < len(self._hashes) and self._hashes[at] == known) and self._is_there(publish_id)

    def update(self, publish_ids: Iterable[str]) -> None:
        self._new.update(publish_ids)

    def add_stored(self, publish_ids: Iterable[str]) -> None:
        self._unsorted.extend(map(hash, publish_ids))

    def note_stored(self) -> None:
        """Note that all added ids are now in the table, so that their hashes are enough."""
        if self._is_there is not None and len(self._new) >= max(FEW, len(self._hashes) // 16):
            self.add_stored(self._new)
            self._new = set()
