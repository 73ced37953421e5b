"""An option that is misspelt, of another connector, or in the wrong place, and is taken or answered without a hint, is
found here."""

import pytest

from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.frames.source import options as of_source
from pulsar_spark.frames.source.options import parse_options

GIVEN = {"root": "/data/pulsar", "topic": "orders"}


def refusal(**options: str) -> str:
    with pytest.raises(InvalidConfiguration) as refused:
        parse_options({**GIVEN, **options})
    return str(refused.value)


def test_options_are_texts_in_any_spelling():
    found = parse_options(
        {**GIVEN, "maxmessagespertrigger": "5", "max_bytes_per_trigger": "6", "Deduplicate": "FALSE", "create": "true"}
    )
    assert (found.root, found.topic) == ("/data/pulsar", "orders")
    assert (found.max_messages_per_trigger, found.max_bytes_per_trigger) == (5, 6)
    assert (found.deduplicate, found.create, found.subscription) == (False, True, None)


def test_topics_are_a_list():
    found = parse_options({"root": "r", "topics": "a, b,"})
    assert found.topics == ("a", "b")


def test_options_that_spark_adds_are_passed_over():
    assert parse_options({**GIVEN, "checkpointLocation": "/c"}).given == {"root", "topic"}


@pytest.mark.parametrize(
    "options, text",
    [
        ({"startingPositions": "earliest"}, "option 'startingPositions' is unknown; did you mean 'startingPosition'"),
        ({"xyz": "1"}, "option 'xyz' is unknown: give one of appId, "),
        ({"service.url": "pulsar://h"}, "option 'service.url' belongs to another source: give root instead"),
        ({"admin.url": "http://h"}, "give root instead"),
        ({"kafka.bootstrap.servers": "h:9092"}, "give root instead"),
        ({"kafka.security.protocol": "SSL"}, "there is no connection to a cluster"),
        ({"pulsar.client.authParams": "x"}, "there is no connection to a cluster"),
        ({"subscribe": "a"}, "give topic or topics instead"),
        ({"predefinedSubscription": "s"}, "give subscription instead"),
        ({"subscriptionNamePrefix": "s"}, "give subscription instead"),
        ({"startingOffsets": "latest"}, "give startingPosition instead"),
        ({"path": "/data"}, "give root instead"),
        ({"maxOffsetsPerTrigger": "1"}, "give maxMessagesPerTrigger instead"),
        ({"maxMessagesPerTrigger": "many"}, "option 'maxMessagesPerTrigger' is 'many': give a number of at least 1"),
        ({"maxMessagesPerTrigger": "0"}, "give a number of at least 1"),
        ({"maxMessagesPerTrigger": "9" * 20}, "and 9007199254740992 at most"),
        ({"deadLetterTopic": "dead"}, "give maxRedeliverCount as well"),
        ({"deduplicate": "yes"}, "option 'deduplicate' is 'yes': give true or false"),
        ({"topics": "a,b"}, "options topic and topics contradict each other"),
        ({"leaseMs": "1", "lease_ms": "2"}, "option 'leaseMs' is given twice, as 'lease_ms' too: give one"),
        ({"columns": "mine"}, "option 'columns' is 'mine': give 'pulsar_spark' or 'connector'"),
    ],
)
def test_a_wrong_turn_is_answered(options, text):
    assert text in refusal(**options)


@pytest.mark.parametrize(
    "option, ours",
    [
        ("assign", "topic or topics, and startingPosition"),
        ("subscribePattern", "topicsPattern"),
        ("endingOffsets", "endingPosition"),
        ("startingTimestamp", "startingPosition"),
        ("startingOffsetsByTimestamp", "startingPosition"),
        ("startingOffsetsByTimestampStrategy", "startingPosition"),
        ("endingOffsetsByTimestamp", "endingPosition"),
        ("minOffsetsPerTrigger", "trigger(processingTime=...)"),
        ("maxTriggerDelay", "trigger(processingTime=...)"),
        ("maxRecordsPerPartition", "maxMessagesPerTrigger"),
        ("minPartitions", "repartition() after the read"),
        ("kafkaConsumer.pollTimeoutMs", "operationTimeoutSeconds"),
        ("fetchOffset.numRetries", "operationTimeoutSeconds"),
        ("groupIdPrefix", "subscription"),
        ("kafka.group.id", "subscription"),
    ],
)
def test_options_of_kafka_are_answered_with_ours(option, ours):
    assert f"option '{option}' belongs to another source: give {ours} instead" == refusal(**{option: "1"})


def test_what_every_read_and_write_needs_is_named():
    with pytest.raises(InvalidConfiguration, match="there is no option 'root'"):
        parse_options({"topic": "t"})
    with pytest.raises(InvalidConfiguration, match="there is no topic: give one of the options topic, topics and"):
        parse_options({"root": "r"})


def test_each_option_has_its_uses():
    reading = parse_options({**GIVEN, "endingPosition": "latest"})
    reading.check_use(of_source.BATCH_READ)
    with pytest.raises(InvalidConfiguration, match="'endingPosition' does not belong to a stream without a subscr"):
        reading.check_use(of_source.STREAM_READ)
    with pytest.raises(InvalidConfiguration, match="'compression' does not belong to a batch read, but to a batch wri"):
        parse_options({**GIVEN, "compression": "LZ4"}).check_use(of_source.BATCH_READ)
