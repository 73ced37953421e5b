"""Order per key after a give-back: on Key_Shared nothing of a hash of which something was given back is handled before
it.

From the round on that reads of a give-back the broker keeps back what comes later of its hash (semantics 0.22). What it
had sent before comes too early: it is given back, too, unseen, so that it comes again behind the other. A delivery says
which requests its round had read, which tells the two apart. A run with *available_now* handles nothing of such a hash
any more: what was given back is left to the next run, and so is what comes behind it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pulsar_spark.frames.delivery import without
from pulsar_spark.frames.lane_deliveries import LaneRange, exact
from pulsar_spark.protocol.positions import expanded, ranges_of
from pulsar_spark.storage.key_hashes import hashes_of
from pulsar_spark.storage.ledger_index import LedgerIndex
from pulsar_spark.storage.slices import PositionRange, by_partition
from pulsar_spark.storage.topics import Topic


@dataclass
class _Guard:
    """Hashes of a partition, ascending, and from which position on entries of each come too early, in rounds that have
    not read ``requests`` up to *version* (None = none has yet)."""

    partition: int
    hashes: np.ndarray
    positions: np.ndarray
    version: int | None = None

    def is_early(self, hashes: np.ndarray, positions: np.ndarray) -> np.ndarray:
        at = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        return (self.hashes[at] == hashes) & (positions > self.positions[at])


class KeyOrder:
    """Of one consumer of a Key_Shared subscription. With *is_final* what was given back does not come again."""

    def __init__(self, topic: Topic, ledgers: LedgerIndex, *, is_final: bool):
        self._topic, self._ledgers, self._is_final = topic, ledgers, is_final
        self._guards: list[_Guard] = []

    def follow(self, ledgers: LedgerIndex) -> None:
        """The topic is in another bundle, which numbers it from now on."""
        self._ledgers = ledgers

    def forget(self) -> None:
        """The consumer begins again: everything it held comes again."""
        self._guards.clear()

    def given_back(self, ranges: Sequence[PositionRange]) -> Callable[[int], None]:
        """Note what is given back; to be called with the version of ``requests`` that says so."""
        guards = []
        for partition, held in by_partition(ranges).items():
            positions, hashes = self._entries(partition, held)
            hashes, first = np.unique(hashes, return_index=True)
            guards.append(_Guard(partition, hashes, positions[first]))
        self._guards += guards

        def committed(version: int) -> None:
            for guard in guards:
                guard.version = version

        return committed

    def in_order(
        self, ranges: Sequence[PositionRange | LaneRange], requests_version: int
    ) -> tuple[tuple[PositionRange | LaneRange, ...], list[PositionRange]]:
        """What of *ranges*, dealt in a round that had read ``requests`` up to that version, may be handled, and what
        came too early."""
        if not self._is_final:
            self._guards = [
                guard for guard in self._guards if guard.version is None or guard.version > requests_version
            ]
        guarded = {guard.partition for guard in self._guards}
        kept, early = [held for held in ranges if held.partition not in guarded], []
        held_back = exact(self._topic, self._ledgers, (held for held in ranges if held.partition in guarded))
        for partition, held in by_partition(held_back).items():
            positions, hashes = self._entries(partition, held)
            guards = (guard for guard in self._guards if guard.partition == partition)
            is_early = np.logical_or.reduce([guard.is_early(hashes, positions) for guard in guards])
            early += without(held, {partition: ranges_of(positions[~is_early])})
            kept += without(held, {partition: ranges_of(positions[is_early])})
        return tuple(kept), early

    def _entries(self, partition: int, held: Sequence[PositionRange]) -> tuple[np.ndarray, np.ndarray]:
        """Position and hash of each entry of ranges in order."""
        spans = [(each.first, each.last) for each in held]
        hashes = hashes_of(self._ledgers, self._topic.path, self._topic.topic_id, partition, spans)
        return expanded(*np.array(spans).T), hashes
