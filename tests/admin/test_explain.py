"""A wrong word or sentence about why a message is where it is, or one that a program cannot compare, is found here."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from deltalake import DeltaTable

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.broker.applying import absorb
from pulsar_spark.broker.letters import letters
from pulsar_spark.errors import (
    InvalidConfiguration,
    InvalidMessage,
    NotAllowedError,
    SubscriptionNotFound,
    TopicNotFound,
)
from pulsar_spark.protocol.topics.message_id import MessageId, parse_message_id
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.processes.lease import BundleLease
from pulsar_spark.storage.topics.topics import create_topic, read_topic
from pulsar_spark.storage.upkeep.trimming import trim_topic
from pulsar_spark.table_specs import REQUESTS
from pulsar_spark.views.explain.reasons import WORDS
from tests.docs.pages import REPOSITORY
from tests.support.arriving import arrive
from tests.support.commands import say
from tests.support.model_keys import Key
from tests.support.requests import On
from tests.support.spark_engine import new_engine
from tests.support.waiting import DEADLINE_SECONDS

NAMESPACE = "persistent://public/default"
WAIT = DEADLINE_SECONDS * 1000
TOPIC = "persistent://public/default/t"
TYPES = pulsar.ConsumerType
SHARED = {"consumer_type": TYPES.Shared, "consumer_name": "worker"}
ON = On(TOPIC)


@pytest.fixture
def admin(pulsar_service_url) -> Admin:
    return Admin(pulsar_service_url)


@pytest.fixture
def why(pulsar_broker, admin):
    """Why a message is where it is on a subscription: a dict with ``why``, ``sentence`` and facts."""

    def explain(message, subscription: str = "s") -> dict:
        pulsar_broker.settle()
        message_id = message if isinstance(message, MessageId) else message.message_id()
        found = admin.explain(message_id, subscription)["subscriptions"][subscription]
        assert found["why"] in WORDS
        return found

    return explain


def test_a_delivery_and_its_return(pulsar_client, pulsar_clock, why):
    consumer = pulsar_client.subscribe("t", "s", **SHARED, negative_ack_redelivery_delay_ms=60_000)
    sent = pulsar_client.create_producer("t").send(b"x")
    now = pulsar_clock.now()
    found = why(sent)
    assert found["why"] == "pending"
    assert (found["consumerName"], found["since"], found["redeliveryCount"]) == ("worker", now.isoformat(), 0)
    assert found["sentence"] == f"it is out at consumer 'worker' since {now.isoformat()}"
    consumer.negative_acknowledge(consumer.receive(WAIT))
    found, until = why(sent), (now + timedelta(minutes=1)).isoformat()
    assert (found["why"], found["until"]) == ("given_back", until)
    assert found["sentence"].endswith(f"unless acknowledged it comes again at {until}, in 60 s")
    pulsar_clock.advance(minutes=1)
    again = why(sent)
    assert (again["why"], again["since"], again["redeliveryCount"]) == ("pending", until, 1)
    consumer.close()
    assert why(sent)["why"] == "no_consumers"
    other = pulsar_client.subscribe("t", "s", **SHARED)
    other.acknowledge(other.receive(WAIT))
    assert why(sent)["why"] == "acknowledged"


def test_a_deliver_time(pulsar_client, pulsar_clock, why):
    consumer = pulsar_client.subscribe("t", "s", **SHARED)
    later = pulsar_client.create_producer("t").send(b"x", deliver_after=timedelta(minutes=5))
    until = (pulsar_clock.now() + timedelta(minutes=5)).isoformat(timespec="milliseconds")
    found = why(later)
    assert found["why"] == "delayed" and found["until"].startswith(until[:-6])
    assert found["sentence"].startswith("it waits for its deliver time, ")
    assert found["sentence"].endswith(", in 5 min")
    consumer.close()
    assert why(later)["why"] == "delayed", "also without a consumer"
    pulsar_clock.advance(minutes=5)
    assert why(later)["why"] == "no_consumers"


def test_messages_of_a_batch_are_explained_one_by_one(pulsar_client, admin, why):
    consumer = pulsar_client.subscribe("t", "s", **SHARED)
    producer = pulsar_client.create_producer("t", batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for key in "abc":
        producer.send_async(b"x", None, partition_key=key)
    producer.flush()
    received = [consumer.receive(WAIT) for _ in range(3)]
    consumer.acknowledge(received[1])
    assert [why(each)["why"] for each in received] == ["pending", "acknowledged", "pending"]
    found = admin.explain(received[1].message_id())
    assert (found["batchIndex"], found["batchSize"], found["key"]) == (1, 3, "b")
    one = received[0].message_id()
    whole = MessageId(one.partition(), one.ledger_id(), one.entry_id()).of_topic("t")
    assert why(whole)["why"] == "pending", "some of it"


def test_permits_and_what_comes_before(pulsar_client, why):
    pulsar_client.subscribe("t", "s", **SHARED, receiver_queue_size=1)
    sent = [pulsar_client.create_producer("t").send(b"x") for _ in range(4)]
    assert [why(each)["why"] for each in sent] == ["pending", "no_permits", "unread", "unread"]
    assert why(sent[1])["sentence"] == "it is unread, and consumer 'worker' has no permits"
    assert why(sent[3])["entriesBefore"] == 2
    assert why(sent[2])["sentence"] == ("it is unread, and 1 entry comes before it; consumer 'worker' has no permits")


def test_a_consumer_that_has_become_active(pulsar_client, pulsar_broker, pulsar_clock, why):
    consumers = {name: pulsar_client.subscribe("t", "s", TYPES.Failover, consumer_name=name) for name in "ab"}
    sent = pulsar_client.create_producer("t").send(b"x")
    active = why(sent)["consumerName"]
    consumers.pop(active).close()
    found = why(sent)
    assert (found["why"], found["consumerName"]) == ("activating", *consumers)
    pulsar_clock.advance(seconds=2)
    assert why(sent)["consumerName"] == found["consumerName"]


def test_keys_that_drain_and_keys_that_wait(pulsar_client, pulsar_clock, why):
    policy = pulsar.ConsumerKeySharedPolicy(pulsar.KeySharedMode.Sticky, False, [(0, 65535)])
    options = {"consumer_type": TYPES.KeyShared, "negative_ack_redelivery_delay_ms": 60_000}
    first = pulsar_client.subscribe("t", "s", consumer_name="a", key_shared_policy=policy, **options)
    producer = pulsar_client.create_producer("t")
    sent = producer.send(b"x", partition_key="k")
    first.negative_acknowledge(first.receive(WAIT))
    assert why(sent)["why"] == "given_back"
    behind = producer.send(b"y", partition_key="k")
    found = why(behind)
    assert (found["why"], found["consumerName"], found["waitsFor"]) == ("key_waits", "a", str(sent))
    assert "gave that back, and it comes again at" in found["sentence"]
    assert why(producer.send(b"z", partition_key="other"))["why"] == "pending"


def test_a_key_drains_at_its_former_owner(pulsar_client, why):
    options = {"consumer_type": TYPES.KeyShared}
    pulsar_client.subscribe("t", "s", consumer_name="a", **options)
    producer = pulsar_client.create_producer("t")
    keys = [f"k{number}" for number in range(4)]
    before = {key: producer.send(b"x", partition_key=key) for key in keys}
    assert why(before["k3"])["why"] == "pending"
    pulsar_client.subscribe("t", "s", consumer_name="b", **options)
    found = {key: why(producer.send(b"y", partition_key=key)) for key in keys}
    assert {each["why"] for each in found.values()} == {"pending", "key_drains"}
    for key, each in found.items():
        if each["why"] == "key_drains":
            assert (each["ownerName"], each["consumerName"], each["waitsFor"]) == ("b", "a", str(before[key]))
            assert each["sentence"].startswith("its key drains: consumer 'a' still has 1 message of it, first (")


def test_a_key_that_nobody_owns(pulsar_client, why):
    policy = pulsar.ConsumerKeySharedPolicy(pulsar.KeySharedMode.Sticky, False, [(0, 0)])
    pulsar_client.subscribe("t", "s", TYPES.KeyShared, key_shared_policy=policy)
    assert why(pulsar_client.create_producer("t").send(b"x", partition_key="k"))["why"] == "no_owner"


@pytest.fixture
def engine(tmp_path):
    """Rounds that the test runs, by a broker that counts as serving."""
    engine = new_engine(None, tmp_path, max_unacked_messages_per_broker=100)
    engine.create_topic(TOPIC)
    assert BundleLease(engine.layout, "engine").take()
    return engine


def words(engine, *positions: int, subscription: str = "s") -> list[str]:
    admin, runs = Admin(f"delta:{engine.layout.root}"), engine.rounds.bundle.topics[TOPIC].ledgers(-1).runs
    of = {position: run for run in runs for position in range(run.first_position, run.last_position + 1)}
    ids = [MessageId(-1, of[position].ledger_id, position - of[position].to_position) for position in positions]
    return [admin.explain(each, subscription, TOPIC)["subscriptions"][subscription]["why"] for each in ids]


@pytest.mark.parametrize("whose", ["consumer", "subscription", "broker"])
def test_limits_of_unacknowledged_messages(engine, whose):
    limit = {"broker": []}.get(whose, [ON.policy(f"max_unacked_messages_per_{whose}", 20)])
    engine.round([*limit, ON.subscribe("A"), ON.flow("A", 1000)], 0)
    for _ in range(3):
        engine.publish(TOPIC, -1, [40, 40])
        engine.round([], 0)
    admin = Admin(f"delta:{engine.layout.root}")
    found = admin.explain(MessageId(-1, 3, 1), "s", TOPIC)["subscriptions"]["s"]
    assert (found["why"], found["limitOf"]) == ("unacked_limit", whose)


def test_consumers_that_joined_of_late(engine):
    classic = ON.policy("subscription_key_shared_use_classic_persistent_implementation", 1)
    sticky = {"subscription_type": "KeyShared", "key_shared_mode": "STICKY"}
    engine.round([classic, ON.subscribe("A", **sticky, hash_ranges="0-32767"), ON.flow("A", 20)], 0)
    keys = [(Key(f"k{number}"),) for number in range(8)]
    engine.publish(TOPIC, -1, [1] * 8, keys=keys)
    engine.round([], 0)
    assert "no_owner" in words(engine, *range(8))
    engine.round([ON.subscribe("B", **sticky, hash_ranges="32768-65535"), ON.flow("B", 9)], 0)
    engine.publish(TOPIC, -1, [1] * 8, keys=keys)
    engine.round([], 0)
    assert {*words(engine, *range(8, 16))} == {"pending", "recently_joined"}


def test_a_message_before_any_round_has_seen_it(engine):
    engine.round([ON.subscribe("A"), ON.flow("A", 1)], 0)
    engine.publish(TOPIC, -1, [1, 1])
    admin = Admin(f"delta:{engine.layout.root}")
    found = admin.explain(MessageId(-1, 1, 1), topic=TOPIC)
    assert (found["position"], found["subscriptions"]["s"]["why"]) == (None, "not_numbered")
    with pytest.raises(InvalidMessage, match="has no message"):
        admin.explain(MessageId(-1, 1, 2), topic=TOPIC)
    with pytest.raises(InvalidMessage, match="has no message"):
        admin.explain(MessageId(-1, 7, 0), topic=TOPIC)
    engine.round([], 0)
    with pytest.raises(InvalidMessage, match="has no message"):
        admin.explain(MessageId(-1, 7, 0), topic=TOPIC)
    assert words(engine, 0, 1) == ["pending", "no_permits"]
    BundleLease(engine.layout, "engine").release()
    assert words(engine, 0, 1) == ["pending", "no_broker"]


def test_a_subscription_that_is_set_aside(engine, monkeypatch):
    engine.round([ON.subscribe("A"), ON.flow("A", 1)], 0)
    engine.publish(TOPIC, -1, [1, 1])
    engine.round([], 0)
    monkeypatch.setattr(absorb, "_absorb_cursor", fails)
    engine.round([ON.flow("A", 1)], 0)
    admin = Admin(f"delta:{engine.layout.root}")
    found = admin.explain(MessageId(-1, 1, 1), topic=TOPIC)["subscriptions"]["s"]
    (entry,) = admin.set_aside()
    assert (found["why"], found["setAside"], found["error"]) == ("set_aside", entry["id"], "ValueError")
    assert found["sentence"].startswith("the broker failed on its subscription and set that aside: ValueError: ")
    assert f"'pulsar-spark set-aside retry {entry['id']}' tries again" in found["sentence"]


def test_a_topic_that_is_stopped(engine):
    engine.round([ON.subscribe("A"), ON.flow("A", 1)], 0)
    engine.publish(TOPIC, -1, [1, 1])
    engine.round([], 0)
    commit = TableLog(read_topic(engine.layout, TOPIC).path).file(2)
    engine.publish(TOPIC, -1, [1])
    commit.write_bytes(b"nonsense")
    engine.round([], 0)
    found = Admin(f"delta:{engine.layout.root}").explain(MessageId(-1, 2, 0), topic=TOPIC)["subscriptions"]["s"]
    assert found["why"] == "stopped" and "is not a Delta commit" in found["sentence"]
    assert words(engine, 0, 1) == ["pending", "no_permits"], "what was numbered before"


def test_what_is_no_longer_in_the_topic(engine):
    engine.round([ON.subscribe("A"), ON.flow("A", 3)], 0)
    for entries in ([1, 1], [1], [1], [1]):
        engine.publish(TOPIC, -1, entries)
        engine.round([], 0)
    topic = read_topic(engine.layout, TOPIC)
    engine.round([ON.ack(0, 1)], 0)
    (topic.path / TableLog(topic.path).commit(3).added[0].path).unlink()
    DeltaTable(str(topic.path)).delete("publish_id = '" + f"{4:032x}" + "'")
    assert words(engine, 0, 2, 3, 4) == ["acknowledged", "pending", "lost", "deleted"]
    trim_topic(engine.layout, topic, [-1], now=datetime.now(UTC))
    assert words(engine, 0, 1) == ["trimmed", "trimmed"]


def test_chunks(pulsar_broker, pulsar_client, admin):
    topic = create_topic(pulsar_broker.layout, "t")
    pulsar_client.subscribe("t", "s", **SHARED)
    arrive(pulsar_broker, "t", "done:0:2", "open:0:4", "done:1:2", "open:1:4", publish_time=datetime.now(UTC))
    pulsar_broker.settle()
    found = [admin.explain(MessageId(-1, ledger, 0), topic="t") for ledger in range(1, 5)]
    assert topic.partitions == 0
    assert [each["subscriptions"]["s"]["why"] for each in found] == [
        *("pending", "incomplete_chunk", "pending", "incomplete_chunk")
    ]
    assert [each["position"] for each in found] == [2, 1, 2, 3]
    assert found[1]["subscriptions"]["s"]["sentence"] == (
        "it is a chunk of an incomplete message, of which 2 of 4 chunks are there"
    )


def events(admin: Admin, message_id: MessageId, subscription: str = "s") -> list[str]:
    return [each["event"] for each in admin.explain(message_id, subscription)["life"]]


def test_who_acknowledged_it(pulsar_client, pulsar_clock, pulsar_broker, admin, why):
    shared = pulsar_client.subscribe("t", "s", **SHARED)
    alone = pulsar_client.subscribe("t", "alone", consumer_name="alone")
    producer = pulsar_client.create_producer("t")
    first, second = producer.send(b"x"), producer.send(b"y")
    now = pulsar_clock.now().isoformat()
    shared.acknowledge(shared.receive(WAIT))
    alone.receive(WAIT)
    alone.acknowledge_cumulative(alone.receive(WAIT))
    found = why(first)
    assert (found["why"], found["how"], found["consumerName"]) == ("acknowledged", "individual", "worker")
    assert found["sentence"] == f"consumer 'worker' acknowledged it individually at {now}"
    assert (why(second)["why"], why(first, "alone")["how"]) == ("pending", "cumulative")
    assert events(admin, first, "alone") == ["published", "delivered", "acknowledged"]
    shared.close()
    pulsar_clock.advance(seconds=1)
    assert events(admin, second) == ["published", "delivered", "released"]
    admin.set_policies("t", {"message_ttl_seconds": 3600})
    late = pulsar_client.subscribe("t", "late", **SHARED)
    late.close()
    assert why(first, "late")["how"] == "subscribed_later", "younger than its time to live"


def test_a_move_before_its_publish_did_not_acknowledge_it(pulsar_client, pulsar_clock, admin, why):
    consumer = pulsar_client.subscribe("t", "s", **SHARED)
    admin.clear_backlog("t", "s")
    pulsar_clock.advance(seconds=10)
    sent = pulsar_client.create_producer("t").send(b"x")
    consumer.acknowledge(consumer.receive(WAIT))
    assert why(sent)["how"] == "individual"


@pytest.mark.parametrize("how", ["skip", "clear_backlog", "expire", "seek"])
def test_who_moved_the_subscription(engine, how):
    engine.round([ON.create_subscription("Earliest")], 0)
    engine.publish(TOPIC, -1, [1, 1])
    engine.round([], 0)
    moves = {"skip": ON.skip(1), "clear_backlog": ON.clear_backlog(), "expire": ON.expire(1), "seek": ON.seek(1)}
    engine.round([moves[how] | {"request_time": datetime.fromtimestamp(9, UTC)}], 9000)
    requests = AppendTable(engine.layout.broker_table("requests"))
    requests.append(REQUESTS.rows([moves[how] | {"request_time": datetime.fromtimestamp(9, UTC)}]))
    found = Admin(f"delta:{engine.layout.root}").explain(MessageId(-1, 1, 0), topic=TOPIC)
    assert found["subscriptions"]["s"]["how"] == how
    assert found["life"][-1]["time"] == "1970-01-01T00:00:09+00:00"


def test_a_seek_back(engine):
    engine.round([ON.subscribe("A"), ON.flow("A", 5)], 0)
    engine.publish(TOPIC, -1, [1, 1])
    for requests in ([], [ON.ack(0, 1)], [], [ON.seek("earliest")], [ON.flow("A", 5)]):
        engine.round(requests, 0)
    found = Admin(f"delta:{engine.layout.root}").explain(MessageId(-1, 1, 0), topic=TOPIC)
    assert [each["event"] for each in found["life"]] == [
        *("published", "delivered", "acknowledged", "moved_back", "delivered")
    ]


def test_returns_within_a_round(engine):
    engine.round([ON.subscribe("A", max_redeliver_count=1), ON.flow("A", 5)], 0)
    engine.publish(TOPIC, -1, [1])
    engine.round([], 0)
    engine.round([ON.negative_ack("A", 0, is_unseen=True)], 0)
    engine.round([ON.negative_ack("A", 0)], 0)
    engine.round([ON.negative_ack("A", 0)], 0)
    found = Admin(f"delta:{engine.layout.root}").explain(MessageId(-1, 1, 0), topic=TOPIC)
    assert [(each["event"], each.get("redeliveryCount")) for each in found["life"]] == [
        ("published", None),
        ("delivered", 0),
        ("released", 0),
        ("delivered", 0),
        ("negatively_acknowledged", 1),
        ("delivered", 1),
        ("negatively_acknowledged", 2),
        ("dead_lettered", 2),
    ]
    assert found["subscriptions"]["s"]["why"] == "dead"


def test_time_to_live(engine):
    engine.round([ON.create_subscription("Earliest"), ON.policy("message_ttl_seconds", 5)], 0)
    engine.publish(TOPIC, -1, [1])
    engine.round([], 0)
    engine.round([], 600_000)
    found = Admin(f"delta:{engine.layout.root}").explain(MessageId(-1, 1, 0), topic=TOPIC)["subscriptions"]["s"]
    assert (found["why"], found["how"]) == ("acknowledged", "time_to_live")
    assert found["sentence"].endswith(": the time to live of its topic ended")


def test_dead_letters_and_retries(pulsar_client, pulsar_clock, admin, why):
    letters = {"dead_letter_policy": pulsar.ConsumerDeadLetterPolicy(1), "retry_enable": True}
    options = {**SHARED, **letters, "negative_ack_redelivery_delay_ms": 60_000}
    consumer = pulsar_client.subscribe("t", "s", **options)
    producer = pulsar_client.create_producer("t")
    dies, waits = producer.send(b"x"), producer.send(b"y")
    for _ in range(2):
        consumer.negative_acknowledge(consumer.receive(WAIT))
        if _ == 0:
            consumer.reconsume_later(consumer.receive(WAIT), 60_000)
            assert why(waits)["why"] == "put_off"
            assert why(waits)["letterTopic"] == f"{TOPIC}-s-RETRY"
        pulsar_clock.advance(seconds=60)
    found = why(dies)
    assert (found["why"], found["letterTopic"]) == ("dead", f"{TOPIC}-s-DLQ")
    letter = admin.get_messages_by_id(found["letterTopic"], *parse_message_id(found["letterId"])._place[:2])[0]
    assert letter.data() == b"x"
    assert events(admin, dies) == [
        *("published", "delivered", "negatively_acknowledged", "delivered", "negatively_acknowledged", "dead_lettered")
    ]


def test_a_letter_that_waits(engine, monkeypatch):
    dead = {"max_redeliver_count": 1, "dead_letter_topic": f"{NAMESPACE}/dlq"}
    engine.round([ON.subscribe("A", **dead), ON.flow("A", 5)], 0)
    engine.publish(TOPIC, -1, [1])
    engine.round([], 0)
    monkeypatch.setattr(letters, "rows_of", fails)
    for _ in range(2):
        engine.round([ON.negative_ack("A", 0)], 0)
        engine.round([], 0)
    assert words(engine, 0) == ["letter_waits"]


def fails(*_):
    raise ValueError("no letter can be made")


def test_the_command(pulsar_broker, pulsar_client, pulsar_root, why):
    pulsar_client.subscribe("t", "s", **SHARED)
    pulsar_client.subscribe("t", "other", **SHARED).close()
    sent = pulsar_client.create_producer("t", producer_name="p").send(b"secret", partition_key="k\ny")
    assert why(sent, "other")["why"] == "no_consumers"
    text = say(pulsar_root, "explain", str(sent), "--topic", "t", columns=200)
    assert text.startswith(f"message {sent} of persistent://public/default/t\n  published 20")
    assert "s: pending" in text and "Z  delivered on s to worker" in text
    assert r"by p, sequence id 0, key k\ny, position 0" in text and "secret" not in text
    assert "it is out at consumer 'worker' since 20" in text and "none is connected" in text
    found = json.loads(say(pulsar_root, "explain", "1:0", "-t", "t", "-s", "s", "--json"))
    assert [*found["subscriptions"]] == ["s"]
    assert [each["event"] for each in found["life"]] == ["published", "delivered"]
    with pytest.raises(SubscriptionNotFound, match="did you mean 'other'"):
        say(pulsar_root, "explain", "1:0", "-t", "t", "-s", "othr")
    with pytest.raises(TopicNotFound):
        say(pulsar_root, "explain", "1:0", "-t", "nothing")
    with pytest.raises(InvalidConfiguration, match="give --topic"):
        Admin(pulsar_broker.service_url).explain(parse_message_id("1:0"))


def test_partitions(pulsar_broker, pulsar_client, admin):
    create_topic(pulsar_broker.layout, "p", 2)
    pulsar_client.subscribe("p", "s", **SHARED)
    sent = [pulsar_client.create_producer("p").send(b"x") for _ in range(2)]
    pulsar_broker.settle()
    assert [admin.explain(each)["subscriptions"]["s"]["why"] for each in sent] == ["pending", "pending"]
    assert admin.explain(sent[0])["topic"].endswith(f"p-partition-{sent[0].partition()}")
    with pytest.raises(InvalidMessage, match="another partition"):
        admin.explain(MessageId(7, 1, 0), topic="p")
    with pytest.raises(NotAllowedError):
        admin.explain(MessageId(-1, 1, 0), topic="p")


def test_the_page_names_every_word():
    page = (REPOSITORY / "docs" / "how-to" / "monitor.md").read_text()
    assert [word for word in WORDS if f"`{word}`" not in page] == []
