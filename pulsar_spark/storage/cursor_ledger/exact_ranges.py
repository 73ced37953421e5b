"""What the latest rows of a cursor say of its entries, for readers."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, Range
from pulsar_spark.protocol.acknowledgement.positions import ranges_of
from pulsar_spark.protocol.entries.entry_codes import UNREAD_CODE
from pulsar_spark.protocol.entries.entry_map import EntryMap
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, LatestRows
from pulsar_spark.storage.entries.key_hashes import hashes_of
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.store.store import StrPath


class HeldEntries(NamedTuple):
    """Ascending positions that ranges mean, with hashes and range indexes."""

    positions: np.ndarray
    hashes: np.ndarray
    places: np.ndarray


def exact_ranges(latest: LatestRows, key: CursorKey) -> Iterator[Range]:
    """A cursor's ranges above mark-delete, by position."""
    return iter(sorted(latest.ranges(key)))


def count_deleted_ranges(latest: LatestRows, key: CursorKey) -> int:
    """The number of acknowledged stretches after mark-delete, Pulsar's ``nonContiguousDeletedMessagesRanges``."""
    return sum(range_.status == ACKNOWLEDGED for range_ in latest.ranges(key))


def read_held(
    latest: LatestRows, key: CursorKey, index: LedgerIndex, table: StrPath, is_wanted: Callable[[Range], bool]
) -> tuple[list[Range], HeldEntries]:
    """What a cursor's rows say of entries, as far as *is_wanted*, and the entries; *table* is the topic's."""
    states, positions, places = _of_map(latest.entries(key), is_wanted)
    hashes = hashes_of(index, table, key.topic_id, key.partition, ranges_of(positions))
    return states, HeldEntries(positions, hashes, places)


def _of_map(entries: EntryMap, is_wanted: Callable[[Range], bool]) -> tuple[list[Range], np.ndarray, np.ndarray]:
    """The states that are wanted, the positions of their entries, ascending, and the state of each."""
    found = {code: Range(0, 0, *state) for code, state in entries.codes.known() if code != UNREAD_CODE}
    found = {code: state for code, state in found.items() if is_wanted(state)}
    positions = entries.where(list(found), 0, entries.end - 1)
    place_of = np.zeros(len(entries.codes), np.int64)
    place_of[list(found)] = np.arange(len(found))
    return list(found.values()), positions, place_of[entries.at(positions)]
