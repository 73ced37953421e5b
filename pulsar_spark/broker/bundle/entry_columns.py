"""One column of a topic partition's entries, read when needed and kept in a limited number of blocks."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pulsar_spark.protocol.acknowledgement.positions import ranges_of
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.ledgers.partition_ledgers import PartitionLedgers

BLOCK_ENTRIES = 1 << 12
MOST_BLOCKS = 1 << 13
"""33 million entries of a partition: 160 MB of hashes."""
_LEAST = 1 << 6


class _Block(NamedTuple):
    """The values of a block's first entries, and which of them are known."""

    values: np.ndarray
    is_known: np.ndarray

    def reaching(self, size: int) -> "_Block":
        missing = size - len(self.is_known)
        if missing <= 0:
            return self
        missing = min(max(missing, len(self.is_known), _LEAST), BLOCK_ENTRIES - len(self.is_known))
        values = np.append(self.values, np.zeros(missing, self.values.dtype))
        return _Block(values, np.append(self.is_known, np.zeros(missing, bool)))


class EntryColumn:
    """The column of the partition of *ledgers*; *read* returns values of type *kind* for runs."""

    def __init__(self, ledgers: PartitionLedgers, read: Callable[[Sequence[Run]], np.ndarray], kind: type[np.integer]):
        self._ledgers, self._read = ledgers, read
        self._none = _Block(np.empty(0, kind), np.empty(0, bool))
        self._blocks: OrderedDict[int, _Block] = OrderedDict()

    def between(self, first: int, last: int) -> np.ndarray:
        if last < first:
            return self._none.values
        return self.at(np.arange(first, last + 1))

    def at(self, positions: np.ndarray) -> np.ndarray:
        """The values at ascending *positions*."""
        found = np.empty(len(positions), self._none.values.dtype)
        unknown = [np.empty(0, np.int64)]
        for number, here in _by_block(positions):
            block, at = self._blocks.get(number, self._none), positions[here] - number * BLOCK_ENTRIES
            there = int(np.searchsorted(at, len(block.is_known)))
            is_known = np.append(block.is_known[at[:there]], np.zeros(len(at) - there, bool))
            found[here][is_known] = block.values[at[is_known]]
            unknown.append(here.start + np.flatnonzero(~is_known))
            if number in self._blocks:
                self._blocks.move_to_end(number)
        missing = np.concatenate(unknown)
        if len(missing):
            found[missing] = self._look_up(positions[missing])
        return found

    def drop_before(self, position: int) -> None:
        for number in [number for number in self._blocks if (number + 1) * BLOCK_ENTRIES <= position]:
            del self._blocks[number]

    def _look_up(self, positions: np.ndarray) -> np.ndarray:
        spans = ranges_of(positions)
        values = self._read([run for span in spans for run in self._ledgers.parts(*span)])
        for number, here in _by_block(positions):
            at = positions[here] - number * BLOCK_ENTRIES
            block = self._blocks.get(number, self._none).reaching(int(at[-1]) + 1)
            block.values[at], block.is_known[at] = values[here], True
            self._blocks[number] = block
            self._blocks.move_to_end(number)
            if len(self._blocks) > MOST_BLOCKS:
                self._blocks.popitem(last=False)
        return values


def _by_block(positions: np.ndarray) -> Iterator[tuple[int, slice]]:
    if len(positions):
        numbers = np.arange(positions[0] // BLOCK_ENTRIES, positions[-1] // BLOCK_ENTRIES + 1)
        ends = np.searchsorted(positions, (numbers + 1) * BLOCK_ENTRIES).tolist()
        for number, begin, end in zip(numbers.tolist(), [0, *ends], ends):
            if begin < end:
                yield number, slice(begin, end)
