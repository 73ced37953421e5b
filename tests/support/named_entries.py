"""Rows of cursors whose entries lie scattered, as a broker writes them."""

from collections.abc import Sequence

import numpy as np

from pulsar_spark.broker.committing.round_rows import CursorRanges
from pulsar_spark.protocol.acknowledgement.cursor import Range
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey


def named(key: CursorKey, topic: str, ranges: Sequence[Range]) -> list[CursorRanges]:
    """The rows of a cursor with these *ranges*, one for all entries of a state: it names them."""
    of_state: dict[tuple, list[int]] = {}
    for range_ in ranges:
        of_state.setdefault(range_[2:], []).extend(range(range_.first, range_.last + 1))
    found, positions = [], {}
    for state, at in of_state.items():
        found.append(Range(at[0], at[-1], *state)._replace(entries=len(at)))
        positions[at[0]] = np.array(at)
    return [CursorRanges(key, topic, found, positions=positions)]
