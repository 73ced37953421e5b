"""Keep the order per key after a give-back: on Key_Shared no later message of a hash is handled before it.

Once a round has read the give-back, the broker keeps back later messages of its hash (semantics 0.22). Those delivered
before come too early and are given back unseen; a run with *available_now* leaves them to the next run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pulsar_spark.frames.deliveries.delivery import left_of
from pulsar_spark.frames.deliveries.named_entries import Delivered, exact
from pulsar_spark.protocol.acknowledgement.positions import expanded, ranges_of
from pulsar_spark.storage.entries.key_hashes import hashes_of
from pulsar_spark.storage.entries.slices import PositionRange, by_partition
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.topics import Topic


@dataclass
class _Guard:
    """Hashes of a partition, ascending, and the position of each after which entries are too early, in rounds that have
    not read ``requests`` up to *version* (None: in all)."""

    partition: int
    hashes: np.ndarray
    positions: np.ndarray
    version: int | None = None

    def is_early(self, hashes: np.ndarray, positions: np.ndarray) -> np.ndarray:
        at = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        return (self.hashes[at] == hashes) & (positions > self.positions[at])


class KeyOrder:
    """The key order of one consumer on a Key_Shared subscription; with *is_final* give-backs do not come again."""

    def __init__(self, topic: Topic, ledgers: LedgerIndex, *, is_final: bool):
        self._topic, self._ledgers, self._is_final = topic, ledgers, is_final
        self._guards: list[_Guard] = []

    def follow(self, ledgers: LedgerIndex) -> None:
        self._ledgers = ledgers

    def forget(self) -> None:
        """Forget all give-backs, because everything comes again."""
        self._guards.clear()

    def given_back(self, ranges: Sequence[PositionRange]) -> Callable[[int], None]:
        """Note a give-back; call the result with the version of ``requests`` that contains it."""
        guards = []
        for partition, of_partition in by_partition(ranges).items():
            positions, hashes = self._entries(partition, of_partition)
            hashes, first = np.unique(hashes, return_index=True)
            guards.append(_Guard(partition, hashes, positions[first]))
        self._guards += guards

        def committed(version: int) -> None:
            for guard in guards:
                guard.version = version

        return committed

    def in_order(
        self, ranges: Sequence[Delivered], requests_version: int
    ) -> tuple[tuple[Delivered, ...], list[PositionRange]]:
        """Split *ranges* into those to handle and those too early, for a round that had read ``requests`` up to this
        version."""
        if not self._is_final:
            self._guards = [
                guard for guard in self._guards if guard.version is None or guard.version > requests_version
            ]
        guarded = {guard.partition for guard in self._guards}
        kept = [range_ for range_ in ranges if range_.partition not in guarded]
        early: list[PositionRange] = []
        in_guarded = exact(range_ for range_ in ranges if range_.partition in guarded)
        for partition, of_partition in by_partition(in_guarded).items():
            positions, hashes = self._entries(partition, of_partition)
            guards = (guard for guard in self._guards if guard.partition == partition)
            is_early = np.logical_or.reduce([guard.is_early(hashes, positions) for guard in guards])
            early += left_of(of_partition, ranges_of(positions[~is_early]))
            kept += left_of(of_partition, ranges_of(positions[is_early]))
        return tuple(kept), early

    def _entries(self, partition: int, ranges: Sequence[PositionRange]) -> tuple[np.ndarray, np.ndarray]:
        spans = [(each.first, each.last) for each in ranges]
        hashes = hashes_of(self._ledgers, self._topic.path, self._topic.topic_id, partition, spans)
        return expanded(*np.array(spans).T), hashes
