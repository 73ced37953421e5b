"""A broker that starts finds all that the one before it knew, wherever the last snapshot lies.

The two are compared whole, attribute by attribute, so what is added to them and forgotten by a snapshot, or by a start,
is found without a case of its own.
"""

from datetime import datetime, timezone

import pytest

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.bundle.load_bundle import load_bundle
from pulsar_spark.broker.committing import snapshots
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.requests.acknowledgements import Acknowledgements
from pulsar_spark.broker.requests.request import places_of
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.storage.topics.topics import read_topic
from pulsar_spark.storage.upkeep.trimming import trim_topic
from tests.support.chunks import publish as publish_chunks
from tests.support.model_keys import Key
from tests.support.requests import On
from tests.support.spark_engine import SparkEngine, new_engine

DAY = 86_400_000
TOPICS = {
    each: f"persistent://public/default/{each}"
    for each in ("plain", "delayed", "chunked", "keyed", "taken-over", "trimmed", "graves", "ill")
}
NOT_KEPT = {
    "map_version",
    "nothing_found_at",
    "entries",
    "_selector",
    "at_others",
    "dues",
    "chunked",
    "owned",
    "hash_ranges",
} | {
    "kept_properties",  # the last three are made of the selector
    "unacked",
}
"""Attributes of a cursor that are compared as what they mean, or say how to look something up."""


def said_of(cursor: Cursor) -> dict:
    """All that a broker knows of a cursor."""
    dues, chunked = cursor.dues, cursor.chunked
    return {name: value for name, value in vars(cursor).items() if name not in NOT_KEPT} | {
        "mark_delete": cursor.mark_delete,
        "ranges": list(cursor.ranges()),
        "unacked": +cursor.unacked,
        "owners": cursor.selector and cursor.selector.owned(),
        "dues": dues and dues.watermark,
        "chunked": chunked and ([*chunked.released], {each: [*kept] for each, kept in chunked.kept_back.items()}),
    }


def _said(row: dict) -> dict:
    """What a row says beside which round wrote it."""
    return {name: value for name, value in row.items() if value is not None and name != "round"}


def said(bundle: Bundle, published: int) -> dict:
    """All that a broker knows, of publish ids the first so many."""
    ids = [f"{number + 1:032x}" for number in range(published)]
    return {
        "requests": (bundle.requests_version, [*places_of(bundle.waiting_requests)]),
        "instant": bundle.now,
        "policies": bundle.policies,
        "set aside": {name: entry._replace(round_time=None) for name, entry in bundle.set_aside.items()},
        "letters": {key: _said(row) for key, row in bundle.waiting_letters.rows.items()},
        "leases": bundle.lease_ms,
        "cursors": {key: said_of(cursor) for key, cursor in bundle.cursors.items()},
        "topics": {
            name: (
                state.topic,
                state.version,
                [(state.first_position(each), state.end_position(each)) for each in state.topic.partition_indexes],
                [each in state.publish_ids for each in ids],
            )
            for name, state in bundle.topics.items()
        },
    }


@pytest.fixture(params=[1, 1000], ids=["each round", "never"])
def engine(request, tmp_path, monkeypatch) -> SparkEngine:
    """A broker that knows something of everything; each round is a snapshot, or none."""
    monkeypatch.setattr(snapshots, "SNAPSHOT_EVERY", request.param)
    engine = new_engine(None, tmp_path / "root", max_unacked_messages_per_broker=40)
    for topic in TOPICS.values():
        if topic != TOPICS["graves"]:
            engine.create_topic(topic)
    return engine


def join(on: On, consumer: str = "A", subscription_type: str = "Shared", permits: int = 99, **properties) -> list[dict]:
    return [on.subscribe(consumer, subscription_type, lease_ms=DAY, **properties), on.flow(consumer, permits)]


def serve_plain(engine: SparkEngine) -> None:
    """Batches in part, returns to come and counted, a policy of dead letters that have no topic, a compacted view."""
    topic, on = TOPICS["plain"], On(TOPICS["plain"])
    policy = dict(max_redeliver_count=2, dead_letter_topic=TOPICS["graves"])
    engine.publish(topic, -1, [1, 4, 1, 1, 1])
    engine.layout.topic(parse_topic_name(TOPICS["graves"])).write_text("no table")
    engine.round(
        [*join(on, **policy), *join(On(topic, subscription="view"), "V", "Exclusive", is_read_compacted="true")], 0
    )
    engine.round([on.ack(1, ack_set=[0b1010]), on.ack(3), on.negative_ack("A", 2, delay_ms=DAY)], 1_000)
    for second in range(2, 5):
        engine.round([on.negative_ack("A", 0)], 1_000 * second)
    engine.round([on.policy("message_ttl_seconds", DAY), on.negative_ack("A", 4)], 6_000)


def serve_keyed(engine: SparkEngine) -> None:
    """Hashes that are divided in three ways, some of them draining; consumers that came of late, by the rule of earlier
    releases."""
    topic, rule = TOPICS["keyed"], "subscription_key_shared_"
    halves, classic, points = (On(topic, subscription=name) for name in ("halves", "classic", "points"))
    engine.publish(topic, -1, [1] * 6, keys=[(Key(b"%d" % number),) for number in range(6)])
    engine.round([halves.policy(f"{rule}use_consistent_hashing", 0), *join(halves, "A", "KeyShared", 4)], 10_000)
    old = f"{rule}use_classic_persistent_implementation"
    engine.round([halves.policy(old, 1), *join(classic, "A", "KeyShared", 4)], 11_000)
    engine.round([*join(halves, "B", "KeyShared"), *join(classic, "B", "KeyShared")], 12_000)
    ring = [halves.policy(f"{rule}{name}", 1) for name in ("use_consistent_hashing", "one_owner_per_point")]
    engine.round([halves.policy(old, 0), *ring, *join(points, "A", "KeyShared", 4)], 13_000)
    engine.round(join(points, "B", "KeyShared"), 14_000)


def serve_taken_over(engine: SparkEngine, second: int) -> None:
    """A consumer that takes over, and waits before it receives."""
    on = On(TOPICS["taken-over"])
    engine.publish(TOPICS["taken-over"], -1, [1, 1])
    engine.round([*join(on, "A", "Failover"), *join(on, "B", "Failover", priority_level=1)], 1_000 * second)
    engine.round([on.close("A")], 1_000 * second + 1)


def serve_delayed(engine: SparkEngine) -> None:
    """Some came due and are out, one was acknowledged before its time, others wait."""
    on, now = On(TOPICS["delayed"]), 20_000
    dues = [now + each for each in (1_000, 2_000, 3_000, DAY, DAY)]
    engine.publish(TOPICS["delayed"], -1, [1] * 5, now, deliver_at_ms=dues)
    engine.round(join(on), now)
    engine.round([on.ack(3)], now + 2_000)
    engine.round([on.ack(0)], now + 2_500)


def serve_chunked(engine: SparkEngine) -> None:
    """Messages that are not complete: one kept back from a consumer, one released."""
    topic = TOPICS["chunked"]
    engine.now_ms = 30_000
    limit = "max_pending_chunked_message"
    auto = {"auto_ack_oldest_chunked_message_on_queue_full": "true"}
    engine.round([*join(On(topic), **{limit: 1}), *join(On(topic, subscription="auto"), **{limit: 1}, **auto)], 30_000)
    publish_chunks(engine, topic, "A:0:2", "B:0:2", "x")
    engine.round([], 30_001)


def serve_trimmed(engine: SparkEngine) -> None:
    """A topic whose first ledgers are gone."""
    on = On(TOPICS["trimmed"])
    for _ in range(3):
        engine.publish(TOPICS["trimmed"], -1, [1])
    engine.round(join(on), 40_000)
    engine.round([on.ack(0, 2)], 40_001)
    topic = read_topic(engine.layout, TOPICS["trimmed"])
    trim_topic(engine.layout, topic, [-1], now=datetime.fromtimestamp(50, timezone.utc))
    engine.round([on.flow("A", 1)], 40_002)


def serve_ill(engine: SparkEngine, monkeypatch) -> None:
    """A request that the broker fails on: what it knows is read from the tables again, so nothing else comes before."""
    on = On(TOPICS["ill"])
    engine.publish(TOPICS["ill"], -1, [1] * 50)
    engine.round(join(on, permits=1), 0)

    def fails(*_: object) -> None:
        raise LookupError("nobody expects it")

    with monkeypatch.context() as broken:
        broken.setattr(Acknowledgements, "ack", fails)
        engine.round([on.ack(1)], 0)


def hold_too_much(engine: SparkEngine) -> None:
    """A subscription holds more than its share of the broker's limit."""
    engine.round([On(TOPICS["ill"]).flow("A", 45)], 50_000)


@pytest.mark.default
def test_a_broker_that_starts_knows_what_the_one_before_it_knew(engine, monkeypatch):
    serve_ill(engine, monkeypatch)
    serve_plain(engine)
    serve_keyed(engine)
    serve_delayed(engine)
    serve_chunked(engine)
    serve_trimmed(engine)
    serve_taken_over(engine, 45)
    hold_too_much(engine)
    for now_ms in (60_000, 45_500, 45_600):  # the machine's clock is set back, the broker's own is not
        engine.round([On(TOPICS["plain"]).flow("A", 1)], now_ms)
    known = said(engine.rounds.bundle, engine.published)
    assert_it_is_something_of_everything(known)
    found = said(load_bundle(engine.layout), engine.published)
    for name in known:
        assert found[name] == known[name]
    engine.restart(45_600)
    again = said(engine.rounds.bundle, engine.published)
    for each in (*again["cursors"].values(), *known["cursors"].values()):
        del each["dues"]  # its first round looked again for what came due
    assert again["cursors"] == known["cursors"]


def assert_it_is_something_of_everything(known: dict) -> None:
    """Else there is nothing to forget."""
    cursors = [*known["cursors"].values()]
    assert known["instant"].own > known["instant"].wall
    assert known["set aside"] and known["policies"] and known["letters"]
    assert any(first > 0 for _, _, ends, _ in known["topics"].values() for first, _ in ends)
    assert any(each["reads_after"] for each in cursors) and any(each["reads_compacted"] for each in cursors)
    assert any(each["msg_redeliver_counter"] for each in cursors) and any(each["dead_letters"] for each in cursors)
    assert any(each["recently_joined"] for each in cursors) and any(each["is_blocked_by_broker"] for each in cursors)
    assert any(each["owners"] for each in cursors)
    assert any(each["joined"] > 1 for each in cursors) and any(each["dues"] for each in cursors)
    assert any(each["chunked"] and each["chunked"][0] for each in cursors)
    assert any(each["chunked"] and each["chunked"][1] for each in cursors)
