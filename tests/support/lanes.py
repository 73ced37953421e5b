"""Rows of Key_Shared cursors that keep their ranges by lane, as a broker writes them."""

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from pulsar_spark.broker.committing.facts import lane_row
from pulsar_spark.broker.committing.round_rows import PageRows
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.key_shared.lane_form import page_of
from pulsar_spark.protocol.acknowledgement.cursor import Range
from pulsar_spark.protocol.keys.hash_ranges import SLOTS, OwnedRange
from pulsar_spark.protocol.keys.lanes import LaneHashes, hashes_by_owner
from pulsar_spark.protocol.subscriptions.membership import KEY_SHARED
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey


def lanes_of(*owned: OwnedRange) -> list[LaneHashes]:
    """A lane for each owner of slots, and one for what nobody owns."""
    return [*hashes_by_owner(owned, SLOTS).values()]


def in_lanes(
    key: CursorKey, topic: str, lanes: Sequence[LaneHashes], hashes: Sequence[int], ranges: Sequence[Range]
) -> tuple[list[dict], list[PageRows]]:
    """The facts and the pages of a cursor that has these exact *ranges*, kept by *lanes*; *hashes* are those of the
    entries at positions 0, 1, 2..."""
    cursor = Cursor(key, topic, -1, len(hashes), KEY_SHARED)
    said = {position: range_ for range_ in ranges for position in range(range_.first, range_.last + 1)}
    facts, pages = [], []
    for number, lane in enumerate(lanes):
        found = []
        mine = np.flatnonzero(lane.holds(np.array(hashes))).tolist()
        for state, group in groupby(mine, key=lambda position: position in said and said[position][2:]):
            positions = list(group)
            if state:
                found.append(Range(positions[0], positions[-1], *state)._replace(entries=len(positions)))
        if found:
            facts.append(lane_row(cursor, page_of(number), number, lane, found))
            pages.append(PageRows(key, topic, page_of(number), found, str(number)))
    return facts, pages
