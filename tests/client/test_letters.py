"""Retry letters and the dead letters that follow from them (semantics 4.22-4.31)."""

from functools import partial

import pytest

import pulsar_spark as pulsar
from pulsar_spark.broker.letters.letter_requests import LetterRequests
from pulsar_spark.client.subscribing.letters import letter_topics as all_letter_topics
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.storage.delta.data_files import read_file
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.table_lock import append_lock
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import create_topic
from pulsar_spark.table_specs import REQUESTS
from tests.support.waiting import eventually, nothing_comes, receive_values

EARLIEST = dict(initial_position=pulsar.InitialPosition.Earliest)
SHARED = dict(consumer_type=pulsar.ConsumerType.Shared)
ORDERS = "persistent://public/default/orders"


def short(topic: str) -> str:
    return topic.removeprefix("persistent://public/default/")


@pytest.fixture
def consumer(client):
    return client.subscribe(
        "orders",
        "my-sub",
        retry_enable=True,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(2),
        **SHARED,
        **EARLIEST,
    )


def read_rows(broker, version: int) -> list[dict]:
    """The requests of a commit."""
    path = broker.layout.broker_table("requests")
    (file,) = TableLog(path).commit(version).added
    return read_file(path, file, REQUESTS.schema).to_pylist()


def letter(client, topic: str) -> pulsar.Message:
    return client.create_reader(topic, pulsar.MessageId.earliest).read_next(60_000)


def test_a_message_is_put_off_twice_and_then_dead(client, broker, consumer):
    """The outcome of the reference scenario retry_letter_topic, but for the cause and attempts that a dead letter
    carries here (0.27)."""
    sent = client.create_producer("orders").send(
        b"m0", properties={"p": "v"}, partition_key="k", ordering_key="o", event_timestamp=99
    )
    origin = {
        "p": "v",
        "REAL_TOPIC": ORDERS,
        "REAL_SUBSCRIPTION": "my-sub",
        "ORIGIN_MESSAGE_ID": str(sent),
        "ORIGIN_MESSAGE_IDY_TIME": str(sent),
        "DELAY_TIME": "2000",
    }
    seen = []
    for _ in range(3):
        message = consumer.receive(60_000)
        seen.append((short(message.topic_name()), message.properties(), message.redelivery_count()))
        consumer.reconsume_later(message, delay_millis=2000)
    assert seen == [
        ("orders", {"p": "v"}, 0),
        ("orders-my-sub-RETRY", {**origin, "RECONSUMETIMES": "1"}, 0),
        ("orders-my-sub-RETRY", {**origin, "RECONSUMETIMES": "2"}, 0),
    ]
    dead = letter(client, "orders-my-sub-DLQ")
    assert dead.properties() == {
        **origin,
        "RECONSUMETIMES": "3",
        "DEAD_LETTER_CAUSE": "max_reconsume_times",
        "DEAD_LETTER_ATTEMPTS": "3",
    }
    assert (dead.data(), dead.partition_key(), dead.ordering_key(), dead.event_timestamp()) == (b"m0", "k", "o", 99)
    assert dead._field("deliver_at_time") is None
    consumer.close()
    assert nothing_comes(client.subscribe(["orders", "orders-my-sub-RETRY"], "my-sub", **SHARED))


@pytest.mark.parametrize(
    "delay, written, is_delayed", [(None, "0", False), (0, "0", False), (-5, "0", False), (60_000, "60000", True)]
)
def test_the_letter_is_delivered_after_the_delay(client, consumer, delay, written, is_delayed):
    client.create_producer("orders").send(b"m0")
    message = consumer.receive(60_000)
    consumer.reconsume_later(message, delay)
    copy = letter(client, "orders-my-sub-RETRY")
    assert copy.properties()["DELAY_TIME"] == written
    due = copy._field("deliver_at_time")
    assert (due is not None) == is_delayed
    if is_delayed:
        assert 59_000 <= due.timestamp() * 1000 - message.publish_timestamp() <= 120_000


def test_a_copy_of_nothing_is_nothing(client, consumer):
    client.create_producer("orders").send(None)
    consumer.reconsume_later(consumer.receive(60_000))
    copy = letter(client, "orders-my-sub-RETRY")
    assert copy.has_null_value() and (copy.partition_key(), copy.ordering_key(), copy.event_timestamp()) == ("", "", 0)


SAID = {"RECONSUMETIMES": "9", "DELAY_TIME": "7", "DEAD_LETTER_REPLAYS": "3"}
SAID |= dict.fromkeys(("REAL_TOPIC", "REAL_SUBSCRIPTION", "ORIGIN_MESSAGE_ID", "ORIGIN_MESSAGE_IDY_TIME"), "mine")


def test_names_of_letters_are_set_by_the_system_alone(client, consumer):
    sent = client.create_producer("orders").send(b"m0", properties={"a": "1", "b": "1", **SAID})
    message = consumer.receive(60_000)
    assert message.properties() == {"a": "1", "b": "1", **SAID}, "delivered as it was published"
    consumer.reconsume_later(message, properties={"b": "2", **SAID})
    origin = {"REAL_TOPIC": ORDERS, "REAL_SUBSCRIPTION": "my-sub"}
    origin |= dict.fromkeys(("ORIGIN_MESSAGE_ID", "ORIGIN_MESSAGE_IDY_TIME"), str(sent))
    first = letter(client, "orders-my-sub-RETRY").properties()
    assert first == {"a": "1", "b": "2", **origin, "RECONSUMETIMES": "1", "DELAY_TIME": "0"}
    consumer.reconsume_later(consumer.receive(60_000), properties=SAID)
    assert consumer.receive(60_000).properties() == {**first, "RECONSUMETIMES": "2"}, "the count goes on"


@pytest.mark.parametrize("to", ["orders", "orders-my-sub-RETRY"])
@pytest.mark.parametrize("of", ["RETRY", "DLQ"])
def test_a_copied_letter_starts_its_own_count(client, consumer, to, of):
    client.create_producer("orders").send(b"m0", partition_key="k")
    for _ in range({"RETRY": 2, "DLQ": 3}[of]):
        consumer.reconsume_later(consumer.receive(60_000))
    copied = letter(client, f"orders-my-sub-{of}")
    if of == "RETRY":
        consumer.acknowledge(consumer.receive(60_000))
    sent = client.create_producer(to).send(b"copy", properties=copied.properties())
    message = consumer.receive(60_000)
    for count in ("1", "2"):
        consumer.reconsume_later(message)
        message = consumer.receive(60_000)
        assert (message.data(), message.properties()["RECONSUMETIMES"]) == (b"copy", count)
        assert message.properties()["ORIGIN_MESSAGE_ID"] == str(sent)


def test_properties_that_are_given_go_before_the_message_s(client, consumer):
    client.create_producer("orders").send(b"m0", properties={"a": "1", "b": "1"})
    consumer.reconsume_later(consumer.receive(60_000), properties={"b": "2", "DELAY_TIME": "7"})
    properties = letter(client, "orders-my-sub-RETRY").properties()
    assert {name: properties[name] for name in ("a", "b", "DELAY_TIME")} == {"a": "1", "b": "2", "DELAY_TIME": "0"}


@pytest.mark.parametrize("text", ["\u00b2", "-1", "9" * 5000])
def test_a_counter_that_anybody_wrote_and_is_no_number_counts_for_nothing(client, consumer, text):
    client.create_producer("orders").send(b"m0", properties={"RECONSUMETIMES": text})
    consumer.reconsume_later(consumer.receive(60_000))
    assert consumer.receive(60_000).properties()["RECONSUMETIMES"] == "1"


def test_one_request_acknowledges_and_asks_for_the_letter(client, broker, consumer):
    """So it is both or neither, and when the call returns it is stored: nothing that crashes afterwards undoes or
    repeats it."""
    client.create_producer("orders").send(b"m0")
    message = consumer.receive(60_000)
    with broker.paused():
        consumer.reconsume_later(message, 60_000)
        version = TableLog(broker.layout.broker_table("requests")).latest()
        rows = read_rows(broker, version)
    assert [(row["kind"], row["first"], row["last"], row["ack_set"]) for row in rows] == [
        ("reconsume_later", 0, 0, None)
    ]
    consumer.close()
    assert broker.asked("ack") == []


@pytest.mark.local_disk
def test_a_request_that_cannot_be_stored_is_an_error(broker, service_url):
    client = pulsar.Client(service_url, operation_timeout_seconds=1)
    consumer = client.subscribe("orders", "my-sub", retry_enable=True, **SHARED, **EARLIEST)
    client.create_producer("orders").send(b"m0")
    message = consumer.receive(60_000)
    with (
        append_lock(broker.layout.broker_table("requests")),
        pytest.raises(pulsar.Timeout, match="could not be written"),
    ):
        consumer.reconsume_later(message)
    assert eventually(lambda: broker.asked("reconsume_later")), "it may still take effect"
    client.close()


def test_a_list_is_put_off_in_one_commit(client, broker, consumer):
    producer = client.create_producer("orders")
    for number in range(4):
        producer.send(f"m{number}".encode())
    messages = [consumer.receive(60_000) for _ in range(4)]
    consumer.acknowledge(messages[3])
    with broker.paused():
        consumer.reconsume_later(messages[:3], properties={"why": "later"})
        rows = read_rows(broker, TableLog(broker.layout.broker_table("requests")).latest())
    assert [(row["kind"], row["first"]) for row in rows] == [
        ("ack", 3),
        *(("reconsume_later", position) for position in range(3)),
    ]
    letters = [consumer.receive(60_000) for _ in range(3)]
    assert sorted((copy.data(), copy.properties()["why"]) for copy in letters) == [
        (b"m0", "later"),
        (b"m1", "later"),
        (b"m2", "later"),
    ]
    consumer.reconsume_later([])
    with pytest.raises(ValueError):
        consumer.reconsume_later([letters[0], letters[1].message_id()])
    consumer.close()
    assert len(broker.asked("reconsume_later")) == 3


def test_put_off_twice_there_is_one_letter(client, broker, consumer):
    client.create_producer("orders").send(b"m0")
    message = consumer.receive(60_000)
    consumer.reconsume_later(message)
    consumer.reconsume_later(message)
    assert consumer.receive(60_000).data() == b"m0"
    assert len(broker.asked("reconsume_later")) == 2
    assert nothing_comes(consumer)


def test_what_is_acknowledged_is_not_put_off(client, broker, consumer):
    """In the order of the calls, though acknowledgements wait for each other."""
    client.create_producer("orders").send(b"m0")
    message = consumer.receive(60_000)
    consumer.acknowledge(message)
    consumer.reconsume_later(message)
    assert nothing_comes(consumer)


def refuse(*arguments):
    """In the place of a check that a request of this release's client always passes."""
    raise pulsar.InvalidMessage("the test says so")


def test_with_receipts_it_returns_when_the_broker_has_done_it(client, broker, monkeypatch):
    consumer = client.subscribe("orders", "s", retry_enable=True, ack_receipt_enabled=True, **SHARED, **EARLIEST)
    client.create_producer("orders").send(b"m0")
    message = consumer.receive(60_000)
    consumer.reconsume_later(message)
    assert broker.cursor(ORDERS, "s").mark_delete == 0
    monkeypatch.setattr(LetterRequests, "check_range", refuse)
    with pytest.raises(pulsar.InvalidMessage, match="the test says so"):
        consumer.reconsume_later(message)


@pytest.mark.parametrize("is_batch_index", [True, False])
def test_what_is_put_off_is_not_waited_for_any_more(client, broker, is_batch_index):
    """The acknowledgement timeout forgets it, of a batch when nothing is left; the letter is of one message of a batch
    in any case."""
    consumer = client.subscribe(
        "orders",
        "s",
        retry_enable=True,
        unacked_messages_timeout_ms=10_000,
        batch_index_ack_enabled=is_batch_index,
        **EARLIEST,
    )
    producer = client.create_producer("orders", batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for entry in ([b"b0", b"b1"], [b"m1"], [b"m2"]):
        for content in entry:
            producer.send_async(content, None)
        producer.flush()
    messages = [consumer.receive(60_000) for _ in range(4)]

    def waiting() -> set[int]:
        return {position for _, position in consumer._unacked._timeouts}

    consumer.reconsume_later(messages[0], 60_000)
    assert waiting() == {0, 1, 2}
    consumer.reconsume_later(messages[1], 60_000)
    assert waiting() == {1, 2}
    consumer.reconsume_later_cumulative(messages[3], 60_000)
    assert waiting() == set()
    assert [request.ack_set for request in broker.asked("reconsume_later")] == [[0b10], None, None]
    assert broker.asked("ack") + broker.asked("cumulative_ack") == []
    reader = client.create_reader("orders-s-RETRY", pulsar.MessageId.earliest)
    assert [reader.read_next(60_000).data() for _ in range(3)] == [b"b0", b"b1", b"m2"]


def test_only_the_message_of_a_batch_is_put_off(client, broker, consumer):
    producer = client.create_producer("orders", batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for number in range(3):
        producer.send_async(f"b{number}".encode(), None, partition_key=f"k{number}")
    producer.flush()
    messages = [consumer.receive(60_000) for _ in range(3)]
    consumer.reconsume_later(messages[1])
    copy = consumer.receive(60_000)
    assert (copy.data(), copy.partition_key(), copy.properties()["ORIGIN_MESSAGE_ID"]) == (
        b"b1",
        "k1",
        str(messages[1].message_id()),
    )
    consumer.close()
    assert [list(request.ack_set) for request in broker.asked("reconsume_later")] == [[0b101]]


def test_cumulative_acknowledges_all_and_copies_one(client, broker):
    producer = client.create_producer("orders")
    for number in range(3):
        producer.send(f"m{number}".encode())
    consumer = client.subscribe("orders", "s", retry_enable=True, **EARLIEST)
    messages = [consumer.receive(60_000) for _ in range(3)]
    consumer.reconsume_later_cumulative(messages[1], 0, {"why": "later"})
    copy = consumer.receive(60_000)
    assert (copy.data(), copy.properties()["why"], short(copy.topic_name())) == (b"m1", "later", "orders-s-RETRY")
    consumer.close()
    assert receive_values(client.subscribe("orders", "s"), 1) == ["m2"]


def test_cumulative_is_refused_where_messages_are_shared(client, broker, consumer):
    client.create_producer("orders").send(b"m0")
    message = consumer.receive(60_000)
    with pytest.raises(pulsar.CumulativeAcknowledgementNotAllowedError):
        consumer.reconsume_later_cumulative(message)
    assert not client.create_reader("orders-my-sub-RETRY", pulsar.MessageId.earliest).has_message_available()


def test_without_retry_letters_nothing_can_be_put_off(client):
    client.create_producer("orders").send(b"m0")
    consumer = client.subscribe("orders", "s", dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1), **EARLIEST)
    message = consumer.receive(60_000)
    for call in (consumer.reconsume_later, consumer.reconsume_later_cumulative):
        with pytest.raises(pulsar.InvalidConfiguration, match="retry_enable=True"):
            call(message)
    consumer.close()
    with pytest.raises(pulsar.AlreadyClosed):
        consumer.reconsume_later(message)


def test_what_cannot_be_put_off(client, broker, consumer):
    client.create_producer("orders").send(b"m0"), client.create_producer("other").send(b"x")
    message = consumer.receive(60_000)
    for wrong, options, error in (
        (message.message_id(), {}, ValueError),
        ("m0", {}, ValueError),
        (message, {"delay_millis": "1"}, ValueError),
        (message, {"delay_millis": 1 << 62}, ValueError),
        (message, {"properties": {"a": 1}}, ValueError),
        (letter(client, "other"), {}, pulsar.InvalidMessage),
    ):
        with pytest.raises(error):
            consumer.reconsume_later(wrong, **options)
    consumer.close()
    assert broker.asked("ack") + broker.asked("reconsume_later") == []


def test_letter_topics_are_named_after_the_first_topic_or_as_the_policy_says(tmp_path):
    letter_topics = partial(all_letter_topics, Layout(tmp_path), retry_enable=True)
    names = [f"persistent://public/default/{name}" for name in ("b", "a", "c")]
    found = letter_topics(names, "s", pulsar.ConsumerDeadLetterPolicy(3))
    assert (short(found.retry), short(found.dead)) == ("a-s-RETRY", "a-s-DLQ")
    names = [f"persistent://public/default/{name}" for name in ("\uff21", "\U0001d49c")]
    assert short(letter_topics(names, "s", pulsar.ConsumerDeadLetterPolicy(3)).dead) == "\U0001d49c-s-DLQ"
    found = letter_topics(names, "s", pulsar.ConsumerDeadLetterPolicy(3, "dead", retry_letter_topic="x/y/later"))
    assert (short(found.retry), short(found.dead)) == ("persistent://x/y/later", "dead")


def test_partitioned_letter_topics_that_are_named_after_the_subscription_alone_are_used_by_who_retries(client, broker):
    """4.22; a topic without partitions, one that is being made, and one that the policy names another for, is not."""
    layout = client._layout
    layout.topic(parse_topic_name("begun-RETRY")).mkdir(parents=True)
    for name, partitions in (("s-RETRY", 2), ("s-DLQ", 2), ("plain-RETRY", 0)):
        create_topic(layout, name, partitions)

    def names(subscription: str, dead_letter_topic: str | None = None, *, retry_enable: bool = True) -> tuple[str, str]:
        policy = pulsar.ConsumerDeadLetterPolicy(3, dead_letter_topic)
        topics = ["persistent://public/default/t"]
        found = all_letter_topics(layout, topics, subscription, policy, retry_enable=retry_enable)
        return short(found.retry), short(found.dead)

    assert names("s") == ("s-RETRY", "s-DLQ")
    assert names("s", retry_enable=False) == ("t-s-RETRY", "t-s-DLQ")
    assert names("s", "dead") == ("s-RETRY", "dead")
    assert names("plain") == ("t-plain-RETRY", "t-plain-DLQ")
    assert names("begun") == ("t-begun-RETRY", "t-begun-DLQ")
    consumer = client.subscribe(
        "t", "s", retry_enable=True, dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1), **SHARED
    )
    client.create_producer("t").send(b"x", partition_key="k")
    for topic in ("t", "s-RETRY"):
        message = consumer.receive(60_000)
        assert short(message.topic_name().partition("-partition-")[0]) == topic
        consumer.reconsume_later(message, delay_millis=0)
    dead = client.subscribe("s-DLQ", "d", initial_position=pulsar.InitialPosition.Earliest)
    assert dead.receive(60_000).data() == b"x"


def test_the_consumer_joins_the_retry_topic_with_the_same_subscription_and_dead_letter_topic(client, broker):
    create_topic(client._layout, "p2", 2)
    consumer = client.subscribe(["z", "p2"], "s", retry_enable=True, **SHARED)
    assert consumer.topic() == "persistent://public/default/z,persistent://public/default/p2"
    asked = broker.asked("subscribe")
    assert sorted((short(request.topic), request.partition) for request in asked) == [
        ("p2", 0),
        ("p2", 1),
        ("p2-s-RETRY", -1),
        ("z", -1),
    ]
    assert {
        (request.subscription, request.properties["dead_letter_topic"], request.properties["max_redeliver_count"])
        for request in asked
    } == {("s", "persistent://public/default/p2-s-DLQ", "16")}


def test_the_origin_of_a_message_of_a_partition_is_the_topic(client):
    create_topic(client._layout, "p2", 2)
    consumer = client.subscribe("p2", "s", retry_enable=True, **SHARED, **EARLIEST)
    client.create_producer("p2-partition-1").send(b"m0")
    consumer.reconsume_later(consumer.receive(60_000))
    assert letter(client, "p2-s-RETRY").properties()["REAL_TOPIC"] == "persistent://public/default/p2"


def test_the_retry_topic_may_be_named_among_the_topics(client, broker):
    client.subscribe(["orders", "orders-s-RETRY"], "s", retry_enable=True)
    assert sorted(short(request.topic) for request in broker.asked("subscribe")) == ["orders", "orders-s-RETRY"]


def test_the_dead_letter_topic_gets_its_initial_subscription(client, broker):
    policy = pulsar.ConsumerDeadLetterPolicy(1, "dead", initial_subscription_name="repair")
    producer = client.create_producer("orders")
    for _ in range(2):
        consumer = client.subscribe("orders", "s", retry_enable=True, dead_letter_policy=policy, **SHARED, **EARLIEST)
        producer.send(b"m0")
        for _ in range(2):
            consumer.reconsume_later(consumer.receive(60_000))
        consumer.close()
    asked = broker.asked("reconsume_later")
    assert [request.properties.get("initial_subscription_name") for request in asked] == [None, "repair"] * 2
    assert receive_values(client.subscribe("dead", "repair"), 2) == ["m0", "m0"]


def test_the_letter_names_its_consumer_as_its_producer(client, broker, consumer):
    client.create_producer("orders").send(b"m0")
    for attempts, suffix in ((1, "RETRY"), (2, "DLQ")):
        for _ in range(attempts):
            consumer.reconsume_later(consumer.receive(60_000))
        assert (
            letter(client, f"orders-my-sub-{suffix}").producer_name()
            == f"{ORDERS}-my-sub-{consumer.consumer_name()}-{suffix}"
        )


def test_a_client_closes_with_letters_about(client, broker, consumer):
    client.create_producer("orders").send(b"m0")
    consumer.reconsume_later(consumer.receive(60_000))
    client.close()
    assert eventually(lambda: len(broker.asked("close"))) == 2
