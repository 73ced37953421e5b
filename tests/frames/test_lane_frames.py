"""Which stretches of a topic are read for a lane (the rows themselves: test_key_shared_frames). Without Spark."""

import numpy as np
import pytest

from pulsar_spark.frames.deliveries import lane_frames
from pulsar_spark.frames.deliveries.lane_frames import _parts
from pulsar_spark.protocol.acknowledgement.positions import as_array, expanded
from pulsar_spark.protocol.keys.lanes import LaneHashes, hashes_by_owner
from pulsar_spark.protocol.keys.selectors import ConsistentHashing, Member
from pulsar_spark.storage.delta import data_files
from pulsar_spark.storage.entries.slices import MAX_BOUNDS, PositionRange
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import Topic, create_topic
from pulsar_spark.table_specs import MESSAGES
from tests.conftest import START
from tests.storage.test_entries import published, run

ENTRIES = 20_000
CONSUMERS = 32


@pytest.fixture
def topic(tmp_path, monkeypatch) -> Topic:
    """Of row groups and gaps a hundredth of what they are."""
    monkeypatch.setattr(data_files, "ROW_GROUP_ROWS", 1000)
    monkeypatch.setattr(lane_frames, "LEAST_GAP", 20)
    return create_topic(Layout(tmp_path / "root"), "t")


class Ledgers:
    """Files of ENTRIES messages with these hashes, one behind the other."""

    def __init__(self, topic: Topic, *files: np.ndarray):
        self._runs = [self._run(topic, number, hashes.tolist()) for number, hashes in enumerate(files)]

    def _run(self, topic: Topic, number: int, hashes: list[int]):
        said = dict(publish_id=f"p{number}", batch_size=1, partition=-1, payload=b"m", publish_time=START)
        rows = [{**said, "entry_id": at, "sticky_key_hash": each} for at, each in enumerate(hashes)]
        version, path = published(topic, MESSAGES.rows(rows))
        return run(version, f"p{number}", 0, number * ENTRIES, ENTRIES, 1, path)

    def runs(self, topic_id: str, partition: int, first: int, last: int):
        cut = ((each, max(first, each.first_position), min(last, each.last_position)) for each in self._runs)
        return [each.part(start, end) for each, start, end in cut if start <= end]


def lanes() -> list[LaneHashes]:
    selector = ConsistentHashing()
    for number in range(CONSUMERS):
        selector = selector.joined(Member(f"c{number}", f"c{number}"))
    return [*hashes_by_owner(selector.owned(), selector.axis).values()]


def hashes(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 31, ENTRIES)


def test_of_files_in_order_of_hash_each_of_many_lanes_reads_a_part(topic):
    """Everything of the lane between the ends, from each file in as many stretches as one read has bounds for."""
    files = [np.sort(hashes(1)), np.sort(hashes(2))]
    ledgers, everything, shares = Ledgers(topic, *files), np.concatenate(files), []
    first, last = 700, 2 * ENTRIES - 900
    for lane in lanes():
        parts = _parts(topic, ledgers, lane, [PositionRange(-1, first, last, 3)])
        assert len(parts) == 2 and all(len(part) <= MAX_BOUNDS for part in parts)
        assert {range_.redelivery_count for part in parts for range_ in part} == {3}
        read = expanded(*as_array((range_.first, range_.last) for part in parts for range_ in part))
        mine = first + np.flatnonzero(lane.holds(everything[first : last + 1]))
        assert np.isin(mine, read).all() and len(np.unique(read)) == len(read)
        shares.append(len(read) / (last - first))
    assert max(shares) < 0.5


def test_other_files_are_read_as_they_lie_in_one_part(topic, monkeypatch):
    """Those in no order of hash, and those in order behind the first few."""
    monkeypatch.setattr(lane_frames, "_MOST_PARTS", 1)
    ledgers = Ledgers(topic, hashes(1), np.sort(hashes(2)), np.sort(hashes(3)))
    whole, stretches = _parts(topic, ledgers, lanes()[0], [PositionRange(-1, 5, 3 * ENTRIES - 5)])
    spans = [(5, ENTRIES - 1), (2 * ENTRIES, 3 * ENTRIES - 5)]
    assert [(range_.first, range_.last) for range_ in whole] == spans
    assert all(ENTRIES <= range_.first <= range_.last < 2 * ENTRIES for range_ in stretches) and len(stretches) > 1


def test_where_nothing_is_the_lanes_nothing_is_read(topic):
    ledgers = Ledgers(topic, np.arange(ENTRIES))
    lane = max(lanes(), key=lambda each: each.ranges[0].start)
    assert _parts(topic, ledgers, lane, [PositionRange(-1, 0, ENTRIES - 1)]) == [[]]
