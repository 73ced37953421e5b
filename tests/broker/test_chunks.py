"""Chunked messages in the broker: the unit is the entry of the last chunk, and what lies before it is passed over.

Rules: semantics 1.9-1.16 with 0.10 and 0.25 (see broker.chunks.chunked). Which chunks make up a message is in
tests/protocol/test_chunking.py.
"""

from datetime import datetime, timezone

import pytest
from deltalake import DeltaTable

from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED
from pulsar_spark.protocol.acknowledgement.packing import unpacked, unpacked_stretches
from pulsar_spark.protocol.chunks.chunking import AUTO_ACK_OLDEST
from pulsar_spark.protocol.entries.entry_codes import PART
from pulsar_spark.protocol.policies.policies import EVICT
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.storage.chunks import chunk_groups, judged_chunks
from pulsar_spark.storage.cursor_ledger.committed_rounds import read_round
from pulsar_spark.storage.delay_index.delay_index import IndexReader
from pulsar_spark.storage.ledgers.ledgers import ledgers_of_topic
from pulsar_spark.storage.topics.topics import read_topic
from pulsar_spark.storage.upkeep.trimming import trim_topic
from tests.support.chunks import publish as publish_chunks
from tests.support.next_due import next_due
from tests.support.requests import On
from tests.support.spark_engine import SparkEngine

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)
TYPES = ["Exclusive", "Failover", "Shared", "KeyShared"]
START = 1_000_000


def publish(engine: SparkEngine, *entries: str, **columns) -> None:
    engine.now_ms = max(engine.now_ms, START)
    publish_chunks(engine, TOPIC, *" ".join(entries).split(), **columns)


def join(subscription_type: str = "Shared", *, permits: int = 99, consumer: str = "A", **properties) -> list[dict]:
    return [ON.subscribe(consumer, subscription_type, lease_ms=86_400_000, **properties), ON.flow(consumer, permits)]


def positions(result: dict) -> list[int]:
    return [delivery.position for delivery in result["deliveries"]]


def marks(engine: SparkEngine) -> tuple[int, int]:
    """The mark-delete that people see, and up to where nothing is left to do; as committed."""
    key, row = next((key, row) for key, row in engine.latest.cursors.items() if key.subscription == "s")
    done = row["mark_delete_position"]
    for range_ in engine.latest.ranges(key):
        if range_.first > done + 1 or range_.status not in (ACKNOWLEDGED, PART):
            break
        done = range_.last
    return row["mark_delete_position"], done


def chunks_of_round(engine: SparkEngine) -> list[list[int]]:
    """What the rows that were delivered in the latest round say of chunked messages."""
    rows = read_round(engine.layout.broker_table("cursor_ledger"), engine.rounds.bundle.version).to_pylist()
    return [unpacked(row["chunks"]).tolist() for row in rows if row["kind"] == "range" and row["chunks"]]


@pytest.mark.parametrize("subscription_type", TYPES)
def test_a_chunked_message_is_one_entry_where_its_last_chunk_lies(engine, subscription_type):
    publish(engine, "x A:0:3 A:1:3 y A:2:3 z")
    result = engine.round(join(subscription_type), START)
    assert (positions(result), sorted(chunks_of_round(engine))) == ([0, 3, 4, 5], [[1, 4]])
    state = engine.state(TOPIC, -1, "s")
    assert state["consumers"]["A"] == {
        "permits": 95,
        "unacked": 4,
        "is_active": state["consumers"]["A"]["is_active"],
        "is_blocked": False,
    }, "a chunked message takes one permit, and is one that is unacknowledged"
    engine.round([ON.ack(0), ON.ack(3), ON.ack(5)], START + 1)
    assert marks(engine) == (0, 3), "the first chunk is needed while the last is not acknowledged"
    engine.round([ON.ack(4)], START + 2)
    assert marks(engine) == (5, 5)


@pytest.mark.default
@pytest.mark.parametrize("subscription_type", TYPES)
def test_an_incomplete_message_waits_in_the_topic_whatever_happens_meanwhile(engine, subscription_type):
    publish(engine, "A:0:3 A:1:3 x")
    assert positions(engine.round(join(subscription_type), START)) == [2]
    engine.round([ON.ack(2)], START + 1)
    assert marks(engine) == (-1, 2)
    engine.restart(START + 2)
    engine.committed()
    engine.round([ON._ask("close", "A")], START + 3)
    publish(engine, "y")
    engine.round(join(subscription_type, consumer="B"), START + 3)
    engine.round([], START + 2_000)
    assert engine.state(TOPIC, -1, "s")["pending"] == {3: ("B", 0, None)}
    publish(engine, "A:2:3")
    engine.restart(START + 2_001)
    engine.committed()
    assert positions(engine.round([], START + 2_002)) == [4] and chunks_of_round(engine) == [[0, 4]]
    engine.round([ON.ack(3, 4)], START + 2_003)
    assert marks(engine) == (4, 4)


def test_parts_that_are_numbered_in_the_same_round_are_not_skipped_as_messages(engine):
    engine.round(join(), START)
    publish(engine, "A:0:2 A:1:2 B:0:2 B:1:2")
    assert positions(engine.round([ON.skip(1)], START + 1)) == [3]


def drain(engine: SparkEngine, now: int, **join_as) -> list[int]:
    """Subscribe, take everything, acknowledge it, and leave."""
    found = positions(engine.round(join(consumer="B", **join_as), now))
    engine.round([ON.ack(position) for position in found] + [ON._ask("close", "B")], now + 1)
    return found


@pytest.mark.parametrize("auto_ack, left", [("false", [3]), ("true", [])])
def test_more_incomplete_messages_than_the_limit_evict_the_oldest_as_pulsar_s_client_does(engine, auto_ack, left):
    """Conformance scenario rawchunk_max_pending."""
    engine.round(join("Exclusive", max_pending_chunked_message=1, **{AUTO_ACK_OLDEST: auto_ack}), START)
    publish(engine, "A:0:2 B:0:2 B:1:2 A:1:2 x")
    assert positions(engine.round([], START + 1)) == [2, 4]
    engine.round([ON.ack(2), ON.ack(4), ON._ask("close", "A")], START + 2)
    assert drain(engine, START + 3, subscription_type="Exclusive") == left
    assert marks(engine) == (4, 4)


@pytest.mark.parametrize("auto_ack", ["false", "true"])
@pytest.mark.parametrize("restarts", [False, True])
def test_what_was_evicted_before_it_was_complete_is_known_when_it_is(engine, auto_ack, restarts):
    engine.round(join(max_pending_chunked_message=1, **{AUTO_ACK_OLDEST: auto_ack}), START)
    publish(engine, "A:0:2 B:0:2 x")
    assert positions(engine.round([], START + 1)) == [2]
    engine.round([ON.ack(2)], START + 1)
    assert marks(engine) == ((-1, 2) if auto_ack == "false" else (0, 2))
    if restarts:
        engine.restart(START + 2)
        engine.committed()
    publish(engine, "A:1:2 B:1:2")
    assert positions(engine.round([], START + 3)) == [4]
    engine.round([ON.ack(2), ON.ack(4)], START + 4)
    state = engine.state(TOPIC, -1, "s")
    if auto_ack == "true":
        assert (state["pending"], marks(engine)) == ({}, (4, 4))
    else:
        assert (state["pending"], marks(engine)) == ({3: ("A", 0, None)}, (-1, 2)), "it is with who has dropped it"
        assert positions(engine.round([ON._ask("redeliver_all", "A")], START + 5)) == [3]


def test_the_limit_is_looked_at_as_the_read_goes_by(engine):
    publish(engine, "x A:0:2 B:0:2 A:1:2 B:1:2")
    engine.round(join(permits=1, max_pending_chunked_message=1, **{AUTO_ACK_OLDEST: "true"}), START)
    engine.round([ON.ack(0), ON._ask("close", "A")], START + 1)
    assert drain(engine, START + 2) == [3, 4], "who was sent nothing of a message has lost none"


def test_the_oldest_of_many_are_evicted_in_a_few_bytes(engine):
    publish(engine, *(f"u{number}:0:2" for number in range(2_000)))
    engine.round(join(max_pending_chunked_message=10, **{AUTO_ACK_OLDEST: "true"}), START)
    assert marks(engine) == (1_989, 1_999)
    row = next(iter(engine.latest.cursors.values()))
    assert list(unpacked_stretches(row["chunks"])) == [(0, 1_989)]
    publish(engine, "u5:1:2 u1995:1:2")
    assert positions(engine.round([], START + 1)) == [2_001]


def test_what_is_not_complete_in_time_is_acknowledged_by_the_clock(engine):
    publish(engine, "A:0:2 x")
    engine.round(join(expire_time_of_incomplete_chunked_message_ms=60_000), START)
    engine.now_ms = START + 30_000
    publish(engine, "B:0:2 C:0:2 C:1:2")
    engine.round([ON.ack(1)], START + 30_000)
    assert next_due(engine.rounds.bundle, (START + 30_000) * 1000) == (START + 60_000) * 1000
    engine.round([], START + 59_999)
    assert marks(engine) == (-1, 3)
    engine.round([], START + 60_000)
    assert marks(engine) == (1, 3)
    engine.restart(START + 60_001)
    engine.committed()
    publish(engine, "A:1:2 B:1:2 A:0:2 A:1:2")
    assert positions(engine.round([], START + 60_002)) == [6, 8], "A from the start is another message"
    engine.round([ON.ack(4), ON.ack(6), ON.ack(8)], START + 60_003)
    assert marks(engine) == (8, 8)


@pytest.mark.parametrize(
    "name, value",
    [
        ("max_pending_chunked_message", "many"),
        ("auto_ack_oldest_chunked_message_on_queue_full", "yes"),
        ("expire_time_of_incomplete_chunked_message_ms", "-1"),
    ],
)
def test_a_limit_that_is_none_is_refused(engine, name, value):
    (reply,) = engine.round([ON.subscribe("A", **{name: value})], START)["replies"]
    assert (reply.error, repr(value) in reply.text, name in reply.text) == ("InvalidConfiguration", True, True)
    assert engine.rounds.bundle.cursors == {}


@pytest.mark.parametrize("subscription_type", ["Shared", "KeyShared"])
def test_a_delayed_chunked_message_comes_due_once_as_a_whole(engine, subscription_type):
    later = {"deliver_at_time": START * 1000 + 60_000_000}
    publish(engine, "A:0:3 A:1:3 B:0:2", **later)
    publish(engine, "x")
    publish(engine, "A:2:3", **later)
    assert positions(engine.round(join(subscription_type), START)) == [3]
    engine.round([ON.ack(3)], START + 1)
    index, (topic_id, partition, _) = engine.rounds.bundle.delay_index, next(iter(engine.latest.cursors))
    assert index.count(topic_id, partition, 0) == 1, "only the last chunk of a complete message waits"
    reader = IndexReader(engine.layout, read_topic(engine.layout, TOPIC), partition)
    assert [due.positions.tolist() for due in reader.between(0, 1 << 60)] == [[4]]
    assert marks(engine) == (-1, 3)
    engine.restart(START + 2)
    engine.committed()
    assert positions(engine.round([], START + 60_000)) == [4] and chunks_of_round(engine) == [[0, 4]]
    assert engine.state(TOPIC, -1, "s")["consumers"]["A"]["unacked"] == 1
    engine.round([ON.ack(4)], START + 60_001)
    assert marks(engine) == (1, 4), "the chunk of the incomplete one is needed"
    engine.round([ON._ask("close", "A"), *join("Exclusive", consumer="B")], START + 60_002)
    publish(engine, "B:1:2", **later)
    assert positions(engine.round([], START + 60_003)) == [5]


def test_who_asks_for_the_end_of_a_message_alone_finds_where_it_begins(engine):
    """Its first chunk was numbered rounds before."""
    engine.round(join(), START)
    for number, entry in enumerate(["A:0:3", "x A:1:3", "x A:2:3"]):
        publish(engine, entry)
        engine.round([], START + number)
    topic = read_topic(engine.layout, TOPIC)
    ledgers = ledgers_of_topic(engine.layout, topic.topic_id)[-1]
    firsts, lasts = chunk_groups.ChunkGroups(topic.path, ledgers).units(4, 4)
    assert (firsts.tolist(), lasts.tolist()) == ([0], [4])


def test_what_is_begun_anew_or_broken_is_needed_no_more_even_while_nobody_asks(engine):
    publish(engine, "A:0:3 B:0:2")
    engine.round([*join(), ON._ask("close", "A")], START)
    assert marks(engine) == (-1, -1)
    engine.round(join(consumer="B", permits=9), START + 1)
    engine.round([ON._ask("close", "B")], START + 2)
    assert marks(engine) == (-1, 1)
    publish(engine, "A:0:3")
    engine.round([], START + 3)
    assert marks(engine) == (0, 1)
    publish(engine, "B:1:3")
    engine.round([], START + 4)
    assert marks(engine) == (1, 1)


def test_the_first_chunk_is_not_trimmed_while_the_last_is_not_acknowledged(engine):
    for entry in ("x", "A:0:2", "y", "A:1:2", "z"):
        publish(engine, entry)
    engine.round([ON.subscribe("A", "Shared"), ON.flow("A", 9)], START)
    engine.round([ON.ack(0), ON.ack(2), ON.ack(4)], START + 1)
    topic, now = read_topic(engine.layout, TOPIC), datetime.now(timezone.utc)
    (trimmed,) = trim_topic(engine.layout, topic, [-1], now=now)
    assert trimmed.trim.first_position == 1 and "s" in trimmed.trim.kept_by
    engine.round([ON.ack(3)], START + 2)
    (trimmed,) = trim_topic(engine.layout, topic, [-1], now=now)
    assert trimmed.trim.first_position == 4


def test_a_message_whose_first_chunk_was_trimmed_is_none(engine):
    for entry in ("A:0:2", "x"):
        publish(engine, entry)
    engine.round([ON.subscribe("A"), ON.flow("A", 9)], START)
    engine.round([ON._ask("unsubscribe", "A")], START + 1)
    trim_topic(engine.layout, read_topic(engine.layout, TOPIC), [-1], now=datetime.now(timezone.utc), before=1)
    publish(engine, "A:1:2")
    assert positions(engine.round(join(), START + 2)) == [1]
    engine.round([ON.ack(1)], START + 3)
    assert marks(engine) == (2, 2)


def delete(engine: SparkEngine, which: str, *, vacuums: bool = False) -> None:
    table = DeltaTable(engine.layout.topic(parse_topic_name(TOPIC)))
    table.delete(which)
    if vacuums:
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def restart(engine: SparkEngine, now: int) -> None:
    engine.restart(now)
    engine.committed()


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("deleted", ["chunk_id = 0", "chunk_id = 1", "chunk_id = 2", "true"])
def test_a_message_one_of_whose_chunks_was_deleted_is_still_one_that_is_delivered(engine, deleted, restarts):
    """Who is sent it sees that it is gone."""
    publish(engine, "A:0:3 A:1:3 x A:2:3 B:0:1")
    engine.round([], START)
    delete(engine, f"uuid = 'A' and {deleted}")
    if restarts:
        restart(engine, START + 1)
    found = engine.round(join(), START + 2)
    assert (positions(found), chunks_of_round(engine)[0][:2]) == ([2, 3, 4], [0, 3])
    engine.round([ON.ack(position) for position in positions(found)], START + 3)
    assert marks(engine) == (4, 4)
    restart(engine, START + 4)
    publish(engine, "y")
    assert positions(engine.round([], START + 5)) == [5] and marks(engine) == (4, 4)


@pytest.mark.parametrize("deleted, delivered", [("chunk_id = 0", [0, 2, 4]), ("chunk_id = 1", [1, 2, 4])])
def test_when_nothing_is_left_of_a_chunk_its_message_is_none(engine, deleted, delivered):
    publish(engine, "A:0:3 A:1:3 x A:2:3 B:0:1")
    engine.round([], START)
    delete(engine, f"uuid = 'A' and {deleted}", vacuums=True)
    restart(engine, START + 1)
    found = engine.round(join(), START + 2)
    assert positions(found) == delivered, "also the one that is gone, of which nothing is known: who is sent it sees"
    engine.round([ON.ack(position) for position in positions(found)], START + 3)
    assert marks(engine) == (4, 4)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("deleted", ["chunk_id = 0", "chunk_id = 1", "true"])
def test_one_that_is_not_complete_is_needed_no_more_when_a_chunk_of_it_is_deleted(engine, deleted, restarts):
    publish(engine, "A:0:3 A:1:3 x")
    engine.round(join(), START)
    engine.round([ON.ack(2)], START + 1)
    assert marks(engine) == (-1, 2)
    delete(engine, f"uuid = 'A' and {deleted}")
    engine.round([], START + 2)
    assert marks(engine) == (2, 2)
    if restarts:
        restart(engine, START + 3)
    publish(engine, "A:2:3")
    assert positions(engine.round([], START + 4)) == [3], "who is sent it sees that it is gone"
    engine.round([ON.ack(3)], START + 5)
    assert marks(engine) == (3, 3)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    "change", [{"chunk_id": "5"}, {"num_chunks_from_msg": "9"}, {"uuid": "'Z'"}, {"producer_name": "'q'"}]
)
def test_a_message_with_a_chunk_that_is_rewritten_while_it_is_delivered_goes_on(engine, change, restarts):
    publish(engine, "A:0:3 A:1:3 x A:2:3 y")
    assert positions(engine.round(join(), START)) == [2, 3, 4]
    DeltaTable(engine.layout.topic(parse_topic_name(TOPIC))).update(change, predicate="chunk_id = 1")
    engine.round([], START + 1)
    if restarts:
        restart(engine, START + 1)
    assert engine.state(TOPIC, -1, "s")["pending"].keys() == {2, 3, 4}
    engine.round([ON.ack(position) for position in (2, 3, 4)], START + 2)
    assert marks(engine) == (4, 4)


@pytest.mark.parametrize(
    "policy, expected",
    [("message_ttl_seconds", (0, 2)), ("backlog_quota_bytes", (5, 5)), ("backlog_quota_seconds", (3, 3))],
)
def test_what_ends_a_backlog_ends_what_is_not_complete_too(engine, policy, expected):
    """A quota ends also what is complete behind what it evicts, and begins there, for its chunks are stored there."""
    publish(engine, "A:0:3 B:0:2")
    publish(engine, "x")
    engine.round([ON.subscribe("A")], START)
    engine.now_ms = START + 60_000
    publish(engine, "B:1:2 C:0:2 y")
    request = dict(kind="policy", topic=TOPIC, client_id="admin")
    value = 1 if policy == "backlog_quota_bytes" else 30
    engine.round(
        [
            dict(request, request_id=name, properties={"name": name, "value": str(value)})
            for name, value in {"backlog_quota_policy": EVICT, policy: value}.items()
        ],
        START + 60_000,
    )
    assert marks(engine) == expected


def test_runs_that_an_earlier_release_numbered_are_read_from_the_beginning(engine, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Run, "may_have_chunks", property(lambda run: False))
        publish(engine, "x A:0:3 B:0:2")
        assert positions(engine.round(join(), START)) == [0, 1, 2], "it knew of no chunked messages"
        engine.round([ON.ack(0), ON.ack(1)], START + 1)
    engine.restart(START + 2)
    engine.committed()
    publish(engine, "A:1:3")
    publish(engine, "A:2:3 B:1:2")
    engine.restart(START + 3)
    engine.committed()
    assert positions(engine.round([], START + 4)) == [4, 5] and sorted(chunks_of_round(engine)) == [[1, 4, 2, 5]]
    assert [run.chunks_from for run in engine.rounds.bundle.topic(TOPIC).ledgers(-1).runs] == [None, 1, 1]


def test_on_key_shared_chunks_are_passed_over(engine):
    publish(engine, "A:0:2 x A:1:2")
    assert positions(engine.round(join("KeyShared"), START)) == [1, 2]
    engine.round([ON.ack(1)], START + 1)
    assert marks(engine) == (-1, 1)
    assert positions(engine.round([ON._ask("redeliver_all", "A")], START + 2)) == [2]
    assert chunks_of_round(engine) == [[0, 2]]
    publish(engine, "B:0:2 y B:1:2")
    assert positions(engine.round([], START + 3)) == [4, 5]
    engine.round([ON.ack(position) for position in (2, 4, 5)], START + 4)
    assert marks(engine) == (5, 5)


def test_what_nobody_needs_is_forgotten_and_read_again_where_it_is(engine, monkeypatch):
    monkeypatch.setattr(judged_chunks, "FORGET_FROM", 2)
    engine.round(join(permits=999), START)
    for number in range(10):
        publish(engine, f"u{number}:0:2 x u{number}:1:2")
        found = positions(engine.round([], START + number))
        engine.round([ON.ack(position) for position in found], START + number)
    groups = engine.rounds.bundle.topic(TOPIC).chunks(-1)
    assert groups.begin > 20
    engine.round([ON._ask("seek", properties={"position": "4"})], START + 20)
    assert positions(engine.round([ON.flow("A", 4)], START + 21)) == [4, 5, 7, 8]
    assert sorted(sum(chunks_of_round(engine), [])) == [3, 5, 6, 8]


def test_a_message_that_begins_an_evicted_one_anew_is_another(engine):
    engine.round(join(max_pending_chunked_message=1, **{AUTO_ACK_OLDEST: "true"}), START)
    publish(engine, "A:0:2 B:0:2 A:0:1 x")
    assert positions(engine.round([], START + 1)) == [2, 3]


@pytest.mark.parametrize("subscription_type", ["KeyShared", "Failover"])
def test_a_read_on_any_type_evicts(engine, subscription_type):
    engine.round(join(subscription_type, max_pending_chunked_message=1, **{AUTO_ACK_OLDEST: "true"}), START)
    publish(engine, "A:0:2 B:0:2 B:1:2 A:1:2 x")
    assert positions(engine.round([], START + 1)) == [2, 4]
    engine.round([ON.ack(2), ON.ack(4)], START + 2)
    assert marks(engine) == (4, 4)
