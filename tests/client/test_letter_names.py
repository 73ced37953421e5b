"""Letter topics that cannot exist: refused when a consumer or a producer asks, before anything is made."""

import pytest

import pulsar_spark as pulsar
from pulsar_spark.frames.consuming.letters import FrameLetters
from pulsar_spark.storage.topics.topics import create_topic

TOPIC, SUBSCRIPTION, CAPITALS = "t" * 20, "s" * 190, "A" * 84


@pytest.fixture
def client(layout):
    client = pulsar.Client(f"delta:{layout.root}", operation_timeout_seconds=1)
    yield client
    client.close()


def policy(**names) -> pulsar.ConsumerDeadLetterPolicy:
    return pulsar.ConsumerDeadLetterPolicy(1, **names)


@pytest.mark.parametrize(
    "asked, what",
    [
        ({"subscription_name": SUBSCRIPTION, "dead_letter_policy": policy()}, "dead letter topic .* 15 too many"),
        (
            {"subscription_name": "s", "dead_letter_policy": policy(dead_letter_topic=CAPITALS)},
            "dead letter topic .* 5 too many",
        ),
        ({"subscription_name": SUBSCRIPTION, "retry_enable": True}, "retry letter topic .* 17 too many"),
        (
            {
                "subscription_name": SUBSCRIPTION,
                "retry_enable": True,
                "dead_letter_policy": policy(retry_letter_topic="r"),
            },
            "dead letter topic .* 15",
        ),
        (
            {"subscription_name": "s", "retry_enable": True, "dead_letter_policy": policy(retry_letter_topic=CAPITALS)},
            "retry letter topic .* 5 too",
        ),
    ],
)
def test_a_subscription_is_refused_by_name(client, layout, asked, what):
    with pytest.raises(pulsar.InvalidTopicName, match=what):
        client.subscribe(TOPIC, **asked)
    assert layout.namespaces() == []


def test_a_producer_on_a_topic_that_cannot_be(client, layout):
    with pytest.raises(pulsar.InvalidTopicName, match="5 too many"):
        client.create_producer(CAPITALS)
    assert layout.namespaces() == []


def test_a_dataframe_consumer_is_refused_likewise(layout):
    topic = create_topic(layout, TOPIC)
    with pytest.raises(pulsar.InvalidTopicName, match="15 too many.*dead_letter_topic"):
        FrameLetters(layout, topic, SUBSCRIPTION, "c", policy(), retry_enable=False)
    with pytest.raises(pulsar.InvalidTopicName, match="17 too many.*retry_letter_topic"):
        FrameLetters(layout, topic, SUBSCRIPTION, "c", policy(dead_letter_topic="graves"), retry_enable=True)
    FrameLetters(layout, topic, SUBSCRIPTION, "c", policy(dead_letter_topic="graves"), retry_enable=False)
