"""Key_Shared: which hashes wait, so that the order of a key holds when its owner changes or an entry comes back.

A hash *drains*, and is not delivered, while a consumer other than its owner has entries of it (semantics 2.41, 0.29,
PIP-379, DrainingHashesTracker; golden l). Entries also wait for an earlier entry of their hash that was given back
(0.22, against 2.37). With ``allow_out_of_order_delivery`` none waits (2.35)."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

import numpy as np

from pulsar_spark.protocol.acknowledgement.positions import distinct


class Waits(Protocol):
    """Which entries are not delivered to the owner of their hash yet. *hashes* are read only if
    :attr:`depends_on_hashes`."""

    @property
    def depends_on_hashes(self) -> bool: ...

    def are_waiting(
        self, positions: np.ndarray, hashes: np.ndarray, owners: np.ndarray, times: np.ndarray | int = 0
    ) -> np.ndarray:
        """A flag for each entry; *owners* are numbers of consumers. Order is by the *times* at which entries came due
        (0: not delayed), then by position."""


class NothingWaits:
    """Order within a key is not required."""

    depends_on_hashes = False

    def are_waiting(
        self, positions: np.ndarray, hashes: np.ndarray, owners: np.ndarray, times: np.ndarray | int = 0
    ) -> np.ndarray:
        return np.zeros(len(positions), bool)


class Awaited(NamedTuple):
    """Pending entries for which later ones of their hash wait, as parallel arrays: hashes, positions, whether another
    consumer than the owner has them (else they were given back with a delay), and when they came due (None: none was
    delayed)."""

    hashes: np.ndarray
    positions: np.ndarray
    is_at_other: np.ndarray
    times: np.ndarray | None = None


class DrainingHashes:
    """The rule for entries that wait for those in *awaited*.

    >>> awaited = Awaited(np.array([7, 8]), np.array([3, 5]), np.array([True, False]))
    >>> DrainingHashes(awaited).are_waiting(np.array([4, 4, 6]), np.array([7, 8, 8]), np.zeros(3)).tolist()
    [True, False, True]
    """

    def __init__(self, awaited: Awaited):
        self.draining = distinct(awaited.hashes[awaited.is_at_other])
        back = ~awaited.is_at_other
        times = np.zeros(len(awaited.hashes), np.int64) if awaited.times is None else awaited.times
        in_order = np.lexsort((awaited.positions[back], times[back], awaited.hashes[back]))
        self._hashes, first = np.unique(awaited.hashes[back][in_order], return_index=True)
        self._positions, self._times = awaited.positions[back][in_order][first], times[back][in_order][first]
        self.depends_on_hashes = len(awaited.hashes) > 0

    def are_waiting(
        self, positions: np.ndarray, hashes: np.ndarray, owners: np.ndarray, times: np.ndarray | int = 0
    ) -> np.ndarray:
        if not self.depends_on_hashes:
            return np.zeros(len(positions), bool)
        is_waiting = _is_in(self.draining, hashes)
        if len(self._hashes):
            at = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
            is_later = (self._times[at] < times) | (self._times[at] == times) & (self._positions[at] < positions)
            is_waiting |= (self._hashes[at] == hashes) & is_later
        return is_waiting


def _is_in(values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    if not len(values):
        return np.zeros(len(wanted), bool)
    return values[np.minimum(np.searchsorted(values, wanted), len(values) - 1)] == wanted


class RecentlyJoined:
    """The rule of 3.2.3 (2.32-2.34): consumers that joined while entries were pending get only earlier ones. *limits*
    maps them, in order of joining, to the position after everything delivered by then. The first limit applies to
    all."""

    depends_on_hashes = False

    def __init__(self, limits: Mapping[int, int]):
        self._newcomers = np.array(sorted(limits), np.int64)
        self._limit = next(iter(limits.values()), 0)

    def are_waiting(
        self, positions: np.ndarray, hashes: np.ndarray, owners: np.ndarray, times: np.ndarray | int = 0
    ) -> np.ndarray:
        return np.isin(owners, self._newcomers) & (positions >= self._limit)


def caught_up(recently_joined: Mapping[str, int], mark_delete: int) -> list[str]:
    """The oldest consumers, up to the first whose limit mark-delete has not reached: they wait no longer (2.34).

    >>> caught_up({"a": 5, "b": 9, "c": 7}, 7)
    ['a']
    """
    found = []
    for consumer_id, limit in recently_joined.items():
        if mark_delete + 1 < limit:
            break
        found.append(consumer_id)
    return found


def look_ahead_limit(*, per_consumer: int, per_subscription: int, consumers: Iterable) -> int:
    """How many waiting entries later ones may pass; 0 for no limit (keySharedLookAheadMsgInReplayThresholdPerConsumer,
    ...PerSubscription).

    >>> look_ahead_limit(per_consumer=2000, per_subscription=20000, consumers="ab")
    4000
    """
    limits = [limit for limit in (per_consumer * len(list(consumers)), per_subscription) if limit > 0]
    return min(limits, default=0)
