"""Rounds of a Key_Shared cursor that change whole ranges of its lanes say what rounds entry by entry say."""

import random

import pytest

from pulsar_spark.broker.gathering import gather
from pulsar_spark.broker.key_shared.keyed_ranges import KeyedByRange
from pulsar_spark.broker.key_shared.lane_form import LaneForm
from pulsar_spark.protocol.acknowledgement.cursor import DELIVERY_ROUND, PENDING
from tests.broker.test_key_shared_dues import ON, TOPIC, join
from tests.support.model_keys import Key
from tests.support.spark_engine import new_engine

KEYS = [Key(f"key-{number}") for number in range(50)]


@pytest.fixture(autouse=True)
def by_lane(monkeypatch):
    monkeypatch.setattr(gather, "LANES_FROM", -1)
    monkeypatch.setattr(gather, "EXACT_BELOW", -1)


class Twins:
    """The same rounds twice: as they are, and entry by entry alone."""

    def __init__(self, folder, monkeypatch):
        self.engines = [new_engine(None, folder / name) for name in ("by_range", "by_entry")]
        self.rounds_by_range = self.stored_by_range = 0
        self._plan, self._store, self._monkeypatch = KeyedByRange.plan, LaneForm.store_ranges, monkeypatch
        monkeypatch.setattr(LaneForm, "store_ranges", lambda form, *given: self._counted_store(form, *given))
        for engine in self.engines:
            engine.create_topic(TOPIC)

    def publish(self, sizes: list[int], keys: list[Key]) -> None:
        for engine in self.engines:
            engine.publish(TOPIC, -1, sizes, keys=[(key,) * size for key, size in zip(keys, sizes)])

    def round(self, requests: list[dict]) -> None:
        for engine, plan in zip(self.engines, (lambda by_range: self._counted(by_range), lambda by_range: None)):
            self._monkeypatch.setattr(KeyedByRange, "plan", plan)
            engine.round([dict(request) for request in requests], 0)
        ours, others = (self.cursor(engine) for engine in self.engines)
        assert (ours.mark_delete, ours.read_position) == (others.mark_delete, others.read_position)
        assert _ranges_by_hashes(ours) == _ranges_by_hashes(others)
        assert ours.unacked == others.unacked
        assert [consumer.permits for consumer in ours.consumers.values()] == [
            consumer.permits for consumer in others.consumers.values()
        ]

    def _counted(self, by_range: KeyedByRange):
        work = self._plan(by_range)
        self.rounds_by_range += work is not None
        return work

    def _counted_store(self, form: LaneForm, *given):
        self.stored_by_range += 1
        return self._store(form, *given)

    @staticmethod
    def cursor(engine):
        (cursor,) = engine.rounds.bundle.cursors.values()
        return cursor


def _ranges_by_hashes(cursor) -> dict:
    return {lane.hashes: lane.ranges for lane in cursor.lanes.lanes.values()} if cursor.lanes else {}


def _some(chosen: random.Random, twins: Twins, names: list[str]) -> list[dict]:
    """What consumers may ask in a round: most of it in the way of those that take deliveries as a whole."""
    cursor, found = twins.cursor(twins.engines[0]), []
    held = [each for each in cursor.lanes.every_range() if each.status == PENDING] if cursor.lanes else []
    delivered = sorted({(each.consumer_id, each.delivery_round) for each in held})
    for consumer, number in chosen.sample(delivered, min(len(delivered), chosen.randrange(3))):
        ends = [each for each in held if (each.consumer_id, each.delivery_round) == (consumer, number)]
        first, last = min(each.first for each in ends), max(each.last for each in ends)
        if chosen.random() < 0.1:
            last -= 1
        found.append(ON.ack(first, max(first, last), consumer=consumer) | {"properties": {DELIVERY_ROUND: str(number)}})
    if held and chosen.random() < 0.1:
        one = chosen.choice(held)
        ask = chosen.choice(
            [lambda: ON.ack(one.first, consumer=one.consumer_id), lambda: ON.negative_ack(one.consumer_id, one.first)]
        )
        found.append(ask())
    found += [ON.flow(name, chosen.choice([2, 100])) for name in names if chosen.random() < 0.6]
    return found


def _play(twins: Twins, chosen: random.Random, rounds: int, comes: float, goes: float) -> None:
    """A history in which a consumer comes or goes in so many of the rounds."""
    names = ["a", "b", "c"][: chosen.randrange(1, 4)]
    twins.round([*(ON.subscribe(name, "KeyShared") for name in names), *(ON.flow(name, 1000) for name in names)])
    for number in range(rounds):
        if chosen.random() < 0.7:
            keys = chosen.choices(KEYS, k=chosen.randrange(1, 12))
            size = chosen.choice([1, 1, 1, 3])
            twins.publish([size] * len(keys), keys)
        asked = _some(chosen, twins, names)
        if chosen.random() < comes:
            name = f"later-{number}"
            names.append(name)
            asked += [ON.subscribe(name, "KeyShared"), ON.flow(name, 100)]
        elif len(names) > 1 and chosen.random() < goes:
            gone = names.pop(chosen.randrange(len(names)))
            asked = [each for each in asked if each["consumer_id"] != gone] + [ON.close(gone)]
        twins.round(asked)
        assert not any(engine.rounds.bundle.set_aside for engine in twins.engines)


@pytest.mark.parametrize("seed", range(6))
def test_rounds_by_range_are_rounds_by_entry(tmp_path, monkeypatch, seed):
    twins = Twins(tmp_path, monkeypatch)
    _play(twins, random.Random(seed), 20, comes=0.06, goes=0.05)
    assert twins.rounds_by_range > 5 and twins.stored_by_range > 5


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 105])
def test_so_they_are_where_a_cursor_goes_to_and_fro_between_positions_and_lanes(tmp_path, monkeypatch, seed):
    chosen = random.Random(seed)
    monkeypatch.setattr(gather, "LANES_FROM", chosen.choice([-1, 5, 10, 20]))
    monkeypatch.setattr(gather, "EXACT_BELOW", chosen.choice([-1, 1, 5, 10]))
    _play(Twins(tmp_path, monkeypatch), chosen, 25, comes=0.1, goes=0.1)


def _ack_all(cursor) -> list[dict]:
    return [
        ON.ack(each.first, each.last, consumer=each.consumer_id)
        | {"properties": {DELIVERY_ROUND: str(each.delivery_round)}}
        for each in cursor.lanes.every_range()
    ]


def test_what_is_out_by_position_stays_out_when_ranges_are_kept_by_lane(tmp_path, monkeypatch):
    monkeypatch.setattr(gather, "LANES_FROM", 15)
    twins = Twins(tmp_path, monkeypatch)
    twins.round([*(ON.subscribe(name, "KeyShared") for name in "ab"), *(ON.flow(name, 100) for name in "ab")])
    for _ in range(2):
        twins.publish([1] * 20, KEYS[:20])
        twins.round([])
    ours = twins.cursor(twins.engines[0])
    assert ours.lanes and ours.mark_delete == -1 and ours.unacked.total() == 40
    twins.round(_ack_all(ours))
    assert ours.mark_delete == 39


def test_keys_that_are_out_by_position_stay_with_their_consumer_when_another_joins(tmp_path, monkeypatch):
    monkeypatch.setattr(gather, "LANES_FROM", 15)
    twins = Twins(tmp_path, monkeypatch)
    twins.round([ON.subscribe("a", "KeyShared"), ON.flow("a", 20)])
    twins.publish([size for size in (1, 3) * 10], KEYS[:20])
    twins.round([ON.flow("a", 100)])
    twins.publish([size for size in (1, 3) * 10], KEYS[:20])
    twins.round([ON.subscribe("b", "KeyShared"), ON.flow("b", 100)])
    ours = twins.cursor(twins.engines[0])
    assert ours.lanes and not ours.unacked["b"]


def test_a_consumer_joins_when_all_is_acknowledged_and_takes_a_part(tmp_path, monkeypatch):
    twins = Twins(tmp_path, monkeypatch)
    twins.round([ON.subscribe("a", "KeyShared"), ON.flow("a", 100)])
    for _ in range(2):
        twins.publish([1] * 20, KEYS[:20])
        twins.round([])
        twins.round(_ack_all(twins.cursor(twins.engines[0])))
    twins.round([ON.subscribe("b", "KeyShared"), ON.flow("b", 1)])
    twins.publish([1] * 30, KEYS[:30])
    twins.round([])
    assert twins.cursor(twins.engines[0]).unacked["b"] == 1


def test_hashes_that_nobody_owns_are_looked_at_by_entry(tmp_path, monkeypatch):
    twins = Twins(tmp_path, monkeypatch)
    twins.round([join("a", "0-32767"), ON.flow("a", 100)])
    twins.publish([1] * 20, KEYS[:20])
    twins.round([])
    assert 0 < twins.cursor(twins.engines[0]).unacked["a"] < 20
