"""Reading what was delivered by lane: rows between two positions that have the hashes of a lane.

Bounds of positions are pushed down as for any range (storage.slices); which rows are the lane's Spark tells by the
stored hash of each. The keys are read too, to compute hashes, only where a file has rows without one.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsar_spark.frames.lane_deliveries import LaneRange
from pulsar_spark.protocol.lanes import LaneHashes
from pulsar_spark.protocol.sticky_key import MAX_HASH
from pulsar_spark.storage.key_hashes import has_hashes
from pulsar_spark.storage.ledger_index import LedgerIndex
from pulsar_spark.storage.slices import DELIVERED, find_pieces, read_pieces
from pulsar_spark.storage.topics import Topic
from pulsar_spark.transforms.lane_hashes import is_of_lane
from pulsar_spark.transforms.sticky_keys import HASH, KEY_COLUMNS, with_hash

MOST_LANES = 4
"""Of more lanes than this, each of which is read by itself, a delivery is read by positions."""


def by_lane(ranges: Sequence[LaneRange]) -> dict[LaneHashes, list[LaneRange]]:
    """Ranges of each lane."""
    found: dict[LaneHashes, list[LaneRange]] = {}
    for held in ranges:
        found.setdefault(held.hashes, []).append(held)
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
    """The messages in ranges of one lane: the columns that :func:`read_pieces` gives, the hash, if it is asked for, in
    every row."""
    runs = [run for held in ranges for run in ledgers.runs(topic.topic_id, held.partition, held.first, held.last)]
    wanted = list(DELIVERED if columns is None else columns)
    is_stored = all(has_hashes(topic.path, run) for run in {run.path: run for run in runs}.values())
    needed = dict.fromkeys([*wanted, HASH, *(() if is_stored else KEY_COLUMNS)])
    pieces = find_pieces(ledgers, topic, [held.held for held in ranges])
    messages = read_pieces(
        spark,
        topic,
        pieces,
        list(needed),
        with_payload,
        without=ledgers.foreign_files(topic.topic_id),
        with_chunks=not any(run.may_have_chunks for run in runs),
    )
    hashed = messages if is_stored else with_hash(messages)
    of_lane = hashed.filter(is_of_lane(F.col(HASH).bitwiseAND(F.lit(MAX_HASH)), lane))
    return of_lane.drop(*(set(needed) - set(wanted)))
