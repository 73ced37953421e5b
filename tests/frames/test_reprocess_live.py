"""Dead letters sent back to one subscription while a broker runs: its consumers get them again, nobody else does."""

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.frames.letters.reprocess import reprocess_dead_letters
from pulsar_spark.protocol.redelivery.letters import dead_letter_topic, retry_letter_topic
from tests.support.processes import broker_process
from tests.support.waiting import DEADLINE_SECONDS, eventually, receive_values

TOPIC = "persistent://public/default/orders"


@pytest.fixture
def broker(root):
    with broker_process(root) as process:
        yield process


@pytest.fixture
def client(root, broker):
    client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=60)
    yield client
    client.close()


def subscribe(client, name: str, **options) -> pulsar.Consumer:
    return client.subscribe(
        TOPIC,
        name,
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
        negative_ack_redelivery_delay_ms=100,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1),
        **options,
    )


def let_die(consumer: pulsar.Consumer, messages: int) -> None:
    """Give everything back, twice, which is once too often."""
    for _ in range(2 * messages):
        consumer.negative_acknowledge(consumer.receive(1000 * DEADLINE_SECONDS))


def test_only_the_subscription_they_died_on_gets_them_again(spark, root, client):
    admin = Admin(f"delta:{root}")
    admin.create_partitioned_topic(TOPIC, 2)
    billing, audit = subscribe(client, "billing"), subscribe(client, "audit")
    producer = client.create_producer(TOPIC)
    for number in range(4):
        producer.send(str(number).encode(), properties={"colour": "red"})
    assert sorted(receive_values(audit, 4)) == ["0", "1", "2", "3"]
    let_die(billing, 4)
    letters = dead_letter_topic(TOPIC, "billing")
    eventually(lambda: letters in admin.topics("public/default") and admin.stats(letters)["msgInCounter"] == 4)
    billing.close()
    assert [topic["topic"] for topic in admin.list_topics()] == [TOPIC, letters], "there is no retry letter topic yet"

    done = reprocess_dead_letters(
        spark, root, TOPIC, subscription="billing", job_id="repair", where="payload <> X'33'", to="subscription"
    )

    assert (done.matched, done.sent) == (3, 3)
    retrying = subscribe(client, "billing", retry_enable=True)
    again = [retrying.receive(1000 * DEADLINE_SECONDS) for _ in range(3)]
    assert sorted(message.data() for message in again) == [b"0", b"1", b"2"]
    assert {
        (
            message.topic_name(),
            *(
                message.properties()[name]
                for name in ("colour", "REAL_TOPIC", "REAL_SUBSCRIPTION", "DEAD_LETTER_REPLAYS")
            ),
        )
        for message in again
    } == {(retry_letter_topic(TOPIC, "billing"), "red", TOPIC, "billing", "1")}
    stats = admin.stats(TOPIC)
    assert stats["msgInCounter"] == 4, "nothing was published to the topic itself"
    assert stats["subscriptions"]["audit"]["msgBacklog"] == 4
    assert list(admin.stats(retry_letter_topic(TOPIC, "billing"))["subscriptions"]) == ["billing"]
