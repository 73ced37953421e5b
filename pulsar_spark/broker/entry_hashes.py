"""The sticky-key hashes of a topic partition's entries, as far as rounds ask for them.

Four bytes an entry, in blocks of which a bounded number is kept, so that what a broker holds does not grow with the
topic: what was dropped is read again when it is asked for.
"""

from collections import OrderedDict

import numpy as np

from pulsar_spark.storage.key_hashes import are_gone, read_hashes
from pulsar_spark.storage.partition_ledgers import PartitionLedgers
from pulsar_spark.storage.store import AnyPath

BLOCK_ENTRIES = 1 << 16
MOST_BLOCKS = 512
"""128 MB for 33 million entries of a partition."""


def first_needed(visible: int, mark_delete: int | None, is_key_shared: bool) -> int:
    """The first position of which a cursor needs to know where the entry lies: behind what everybody sees as done, and
    from the beginning of a block on where hashes are asked for."""
    first = min(visible, visible if mark_delete is None else mark_delete) + 1
    return first - first % BLOCK_ENTRIES if is_key_shared else first


class EntryHashes:
    """The hashes of one partition of the topic in *table*."""

    def __init__(self, table: AnyPath, ledgers: PartitionLedgers):
        self._table, self._ledgers = table, ledgers
        self._blocks: OrderedDict[int, np.ndarray] = OrderedDict()

    def between(self, first: int, last: int) -> np.ndarray:
        """The hashes of the entries at *first*..*last*, which must be numbered."""
        if last < first:
            return np.empty(0, np.int32)
        numbers = range(first // BLOCK_ENTRIES, last // BLOCK_ENTRIES + 1)
        parts = [self._block(number, last) for number in numbers]
        parts[-1] = parts[-1][: last - numbers[-1] * BLOCK_ENTRIES + 1]
        parts[0] = parts[0][first - numbers[0] * BLOCK_ENTRIES :]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def at(self, positions: np.ndarray) -> np.ndarray:
        """The hashes of the entries at *positions*, which ascend."""
        if not len(positions):
            return np.empty(0, np.int32)
        found = np.empty(len(positions), np.int32)
        numbers = positions // BLOCK_ENTRIES
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        for start, end in zip(starts, [*starts[1:], len(positions)]):
            number = int(numbers[start])
            block = self._block(number, int(positions[end - 1]))
            found[start:end] = block[positions[start:end] - number * BLOCK_ENTRIES]
        return found

    def gone(self, first: int, last: int) -> np.ndarray:
        """Which of the entries at *first*..*last* are deleted or lost now."""
        return are_gone(self._table, self._ledgers.parts(first, last))

    def _block(self, number: int, last: int) -> np.ndarray:
        """A block, read at least up to position *last* or its end."""
        block = self._blocks.get(number, np.empty(0, np.int32))
        begin, end = number * BLOCK_ENTRIES, min((number + 1) * BLOCK_ENTRIES, self._ledgers.end_position)
        if begin + len(block) <= min(last, end - 1):
            runs = self._ledgers.parts(begin + len(block), end - 1)
            block = np.concatenate((block, read_hashes(self._table, runs)))
            self._blocks[number] = block
            if len(self._blocks) > MOST_BLOCKS:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(number)
        return block
