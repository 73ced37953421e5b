"""Rows of Key_Shared cursors that keep their ranges by lane, as a broker writes them."""

from collections.abc import Sequence

import numpy as np

from pulsar_spark.broker.facts import PageRows, lane_row
from pulsar_spark.broker.state import Cursor
from pulsar_spark.protocol.cursor import Range
from pulsar_spark.protocol.lane_tiles import LaneEntries, Tiles
from pulsar_spark.protocol.lanes import LaneHashes, LaneMap
from pulsar_spark.protocol.membership import KEY_SHARED
from pulsar_spark.storage.cursor_ledger import CursorKey


def in_lanes(
    key: CursorKey, topic: str, lane_map: LaneMap, hashes: Sequence[int], ranges: Sequence[Range]
) -> tuple[list[dict], list[PageRows]]:
    """The facts and the pages of a cursor that has these exact *ranges*, kept by the lanes of *lane_map*; *hashes* are
    those of the entries at positions 0, 1, 2..."""
    cursor, entries = Cursor(key, topic, -1, len(hashes), KEY_SHARED), LaneEntries(lane_map, 0, np.array(hashes))
    states = list(dict.fromkeys(held[2:] for held in ranges))
    exact = Tiles.of((held.first, held.last, states.index(held[2:]), held.size) for held in ranges)
    facts, pages = [], []
    for number, held_hashes in lane_map.ranges().items():
        lane = entries.lane(number)
        tiles = zip(*(column.tolist() for column in lane.tiles(lane.spans(exact))))
        found = [Range(first, last, *states[state])._replace(entries=size) for first, last, state, size in tiles]
        if found:
            facts.append(lane_row(cursor, -1 - number, number, LaneHashes(lane_map.axis, tuple(held_hashes)), found))
            pages.append(PageRows(key, topic, -1 - number, found, str(number)))
    return facts, pages
