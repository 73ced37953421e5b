"""Read what was delivered by lane: rows between two positions whose hashes belong to the lane.

Spark filters by the stored hash, or a computed one where none is stored; the lane of an only consumer needs no filter.
Unchanged files are read directly (published_files), others with bounds of positions (storage.entries.slices). In files
in order of hash (``publish(sort_by_key=True)``) the driver reads the hashes first, so that the widest gaps are skipped.
"""

from collections.abc import Sequence
from functools import reduce

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsar_spark.frames.deliveries.lane_deliveries import LaneRange
from pulsar_spark.frames.deliveries.published_files import read_published
from pulsar_spark.protocol.keys.lanes import LaneHashes
from pulsar_spark.protocol.keys.sticky_key import MAX_HASH
from pulsar_spark.storage.entries.key_hashes import is_by_hash, read_hashes, unhashed_keys
from pulsar_spark.storage.entries.slices import MAX_BOUNDS, PositionRange, find_pieces, read_pieces
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.topics import Topic
from pulsar_spark.table_specs import DELIVERED, HASH
from pulsar_spark.transforms.lane_hashes import is_of_lane
from pulsar_spark.transforms.sticky_keys import with_hash

MOST_LANES = 4
"""A delivery with more lanes than this is read by positions, because each lane is a read of its own."""
_MOST_PARTS = 4
"""Each part is a scan of its own."""
LEAST_GAP = 2000
"""A gap of more entries than this is worth a bound of its own: see storage.delta.data_files for the pages of files in
order of hash."""


def by_lane(ranges: Sequence[LaneRange]) -> dict[LaneHashes, list[LaneRange]]:
    """Group ranges by lane."""
    found: dict[LaneHashes, list[LaneRange]] = {}
    for range_ in ranges:
        found.setdefault(range_.hashes, []).append(range_)
    return found


def read_lane(
    spark: SparkSession,
    topic: Topic,
    ledgers: LedgerIndex,
    lane: LaneHashes,
    ranges: Sequence[LaneRange],
    columns: Sequence[str] | None,
    with_payload: bool,
) -> DataFrame:
    """The messages in ranges of one lane, with the columns of :func:`read_pieces`; the hash, if requested, is in every
    row."""
    runs = [
        run for range_ in ranges for run in ledgers.runs(topic.topic_id, range_.partition, range_.first, range_.last)
    ]
    wanted = list(DELIVERED if columns is None else columns)
    with_chunks = not any(run.may_have_chunks for run in runs)
    is_looked_at = HASH in wanted or not lane.is_everything
    keys = unhashed_keys(topic.path, runs) if is_looked_at else None
    needed = list(dict.fromkeys([*wanted, *([HASH] if is_looked_at else []), *(keys or ())]))
    is_mine = None if lane.is_everything else is_of_lane(F.col(HASH).bitwiseAND(F.lit(MAX_HASH)), lane)
    where = is_mine if keys is None else None

    def read(ranges: Sequence[PositionRange]) -> DataFrame:
        return read_pieces(
            spark,
            topic,
            find_pieces(ledgers, topic, ranges),
            needed,
            with_payload,
            without=ledgers.foreign_files(topic.topic_id),
            with_chunks=with_chunks,
            where=where,
        )

    spans = [each.position_range for each in ranges]
    messages = read_published(spark, topic, ledgers, spans, needed, with_payload, with_chunks=with_chunks, where=where)
    if messages is None:
        parts = [spans] if lane.is_everything else _parts(topic, ledgers, lane, spans)
        messages = reduce(DataFrame.unionByName, map(read, parts))
    if keys is not None:
        messages = with_hash(messages, keys)
        messages = messages if is_mine is None else messages.filter(is_mine)
    return messages.drop(*(set(needed) - set(wanted)))


def _parts(
    topic: Topic, ledgers: LedgerIndex, lane: LaneHashes, ranges: Sequence[PositionRange]
) -> list[list[PositionRange]]:
    """Split *ranges* into separate reads: the lane's stretches of some files in order of hash, and everything else."""
    whole: list[PositionRange] = []
    by_file: dict[str, list[PositionRange]] = {}
    for range_ in ranges:
        for run in ledgers.runs(topic.topic_id, range_.partition, range_.first, range_.last):
            of_run = range_._replace(first=run.first_position, last=run.last_position)
            is_known = run.path in by_file or len(by_file) < _MOST_PARTS
            if is_known and is_by_hash(topic.path, run):
                mine = np.flatnonzero(lane.holds(read_hashes(topic.path, [run])))
                by_file.setdefault(run.path, []).extend(_stretches(of_run, run.first_position + mine))
            else:
                whole.append(of_run)
    return [part for part in (whole, *by_file.values()) if part] or [whole]


def _stretches(range_: PositionRange, mine: np.ndarray) -> list[PositionRange]:
    """The stretches of a range with the positions *mine*, which ascend; the widest gaps are left out."""
    if not len(mine):
        return []
    gaps = np.diff(mine)
    widest = np.argsort(-gaps, kind="stable")[: MAX_BOUNDS - 1]
    cuts = np.sort(widest[gaps[widest] > LEAST_GAP]) + 1
    firsts, lasts = mine[np.append(0, cuts)], mine[np.append(cuts, len(mine)) - 1]
    return [range_._replace(first=first, last=last) for first, last in zip(firsts.tolist(), lasts.tolist())]
