"""Which entries a range of a lane means once some of them are gone: everybody who turns one into positions agrees."""

import numpy as np
import pytest
from deltalake import DeltaTable

from pulsar_spark.broker.gathering import gather
from pulsar_spark.broker.key_shared.lane_form import page_of
from pulsar_spark.client.receiving.delivery import Delivery
from pulsar_spark.frames.deliveries.lane_deliveries import LaneRange, exact
from pulsar_spark.protocol.acknowledgement.cursor import PENDING
from pulsar_spark.protocol.acknowledgement.positions import expanded
from pulsar_spark.protocol.keys.sticky_key import NO_KEY_HASH
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey
from pulsar_spark.storage.cursor_ledger.lane_ranges import PageRange, read_held
from pulsar_spark.storage.entries.slices import PositionRange
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.topics import read_topic
from pulsar_spark.views import lane_rows
from tests.broker.test_key_shared_dues import ON, TOPIC, join, keys

PER_CONSUMER = 6
"""Of "a" the entries at even positions, of "b" those at odd ones; one of them owns the hash of no key."""


@pytest.fixture(autouse=True)
def by_lane(monkeypatch):
    monkeypatch.setattr(gather, "LANES_FROM", -1)
    monkeypatch.setattr(gather, "EXACT_BELOW", -1)


@pytest.fixture
def delivered(engine):
    """The broker's lanes, once everything is out."""
    engine.round([join("a", "0-32767"), join("b", "32768-65535"), ON.flow("a", 9), ON.flow("b", 9)], 0)
    mine, others = keys(True)[:PER_CONSUMER], keys(False)[:PER_CONSUMER]
    engine.publish(TOPIC, -1, [1] * 2 * PER_CONSUMER, keys=[key for pair in zip(mine, others) for key in pair])
    engine.round([], 0)
    return dict(_form(engine).lanes)


def _form(engine):
    (cursor,) = engine.rounds.bundle.cursors.values()
    return cursor.lanes


class Readers:
    """Whoever turns a range into positions."""

    def __init__(self, engine):
        self._engine, self._topic, self._index = engine, read_topic(engine.layout, TOPIC), LedgerIndex(engine.layout)
        self._key = CursorKey(self._topic.topic_id, -1, "s")

    def sent(self, lane, held) -> dict[str, list[int]]:
        """What those say who were sent it, or tell of it."""
        of_frames = LaneRange(PositionRange(-1, held.first, held.last), lane.hashes, held.size, 1)
        ranges = [(each.first, each.last) for each in exact(self._topic, self._index, [of_frames])]
        row = {
            "topic_id": self._topic.topic_id,
            "partition": -1,
            "first": held.first,
            "last": held.last,
            "entries": held.size,
            "lane_hashes": {
                "hash_ranges": [each._asdict() for each in lane.hashes.ranges],
                "properties": [("axis_size", str(lane.hashes.axis.size)), ("axis_start", str(lane.hashes.axis.start))],
            },
        }
        return {
            "frames": _positions(ranges),
            "views": _positions(lane_rows._stretches(self._index, self._topic.path, row)),
            "client": list(map(int, self._of_client(lane, held))),
        }

    def _of_client(self, lane, held) -> np.ndarray:
        sent = Delivery.__new__(Delivery)
        sent.first, sent.last, sent.entries, sent.lane, sent.positions = *held[:2], held.size, lane.hashes, None
        return np.asarray(sent.look_up(self._index, self._topic, -1))

    def known(self, number: int, held) -> dict[str, list[int]]:
        """What those say who keep or look at its state."""
        found = read_held(
            self._engine.latest, self._key, self._index, self._topic.path, [PageRange(page_of(number), held)]
        )
        form = _form(self._engine)
        state = form.states.number(held)
        return {
            "storage": found.positions.tolist(),
            "broker": (form.base + np.flatnonzero(form.codes == state)).tolist(),
        }


def _positions(ranges: list[tuple[int, int]]) -> list[int]:
    return expanded(*np.array(ranges, np.int64).reshape(-1, 2).T).tolist()


@pytest.mark.parametrize("gone", [(), (2, 6), (3, 7), (2, 3, 9), tuple(range(12)), (0, 1, 10, 11)], ids=str)
def test_what_a_range_means_is_the_same_for_all(engine, delivered, gone):
    engine.committed()
    if gone:
        DeltaTable(str(read_topic(engine.layout, TOPIC).path)).delete(f"entry_id in ({', '.join(map(str, gone))})")
    engine.restart(1)
    readers, told = Readers(engine), []
    for number, lane in delivered.items():
        (held,) = lane.ranges
        assert held.status == PENDING and held.size == PER_CONSUMER
        its = set(range(0 if held.consumer_id == "a" else 1, 12, 2))
        between = set(range(held.first, held.last + 1))
        looks_its = lane.hashes.holds(np.array([NO_KEY_HASH])).all()
        is_told = not {*gone} & between if not looks_its else not {*gone} & between - its
        expected = its if is_told else (its - {*gone}) | ({*gone} & between if its & {*gone} else set())
        sent, known = readers.sent(lane, held), readers.known(number, held)
        assert {name: set(found) for name, found in sent.items()} == dict.fromkeys(sent, expected)
        assert {name: set(found) for name, found in known.items()} == dict.fromkeys(
            known, its if is_told else its - {*gone}
        )
        told += sent["frames"]
    assert set(told) == set(range(12)), "nothing is forgotten by all"
