"""Publishing frames to a topic whose backlog is above its quota: refused or held before anything is written, batch and
stream alike."""

import pytest
from pyspark.errors import StreamingQueryException

from pulsar_spark.errors import ProducerBlockedQuotaExceededError, ProducerBlockedQuotaExceededException
from pulsar_spark.frames import publish, publish_stream
from pulsar_spark.link import quota as quota_module
from pulsar_spark.link.quota import BacklogQuota
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.topics.topics import read_topic
from tests.support.requests import On
from tests.support.spark_engine import SparkEngine, new_engine

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)


@pytest.fixture
def engine(tmp_path, monkeypatch) -> SparkEngine:
    """A root whose topic has two entries, more than its quota allows; producers look at every send."""
    monkeypatch.setattr(quota_module, "LOOK_SECONDS", 0.0)
    engine = new_engine(None, tmp_path / "root")
    engine.create_topic(TOPIC)
    engine.publish(TOPIC, -1, [1, 1])
    engine.round([ON.create_subscription("Earliest"), ON.policy("backlog_quota_bytes", 1)], 0)
    return engine


@pytest.fixture
def messages(spark):
    return spark.createDataFrame([("a",), ("b",)], "payload string")


def published(engine: SparkEngine) -> int:
    """Publish commits of the topic beside that of the fixture."""
    return TableLog(read_topic(engine.layout, TOPIC).path).latest() - 1


def relieve(engine: SparkEngine) -> None:
    engine.round([ON.clear_backlog()], 1_000)
    engine.round([], 2_000)


def held(engine: SparkEngine, clock, waited) -> BacklogQuota:
    """A producer's view of the quota that calls *waited* instead of waiting."""
    return BacklogQuota(engine.layout, read_topic(engine.layout, TOPIC), clock=lambda: clock().timestamp(), wait=waited)


def test_it_is_refused_and_publishes_when_the_backlog_is_gone(engine, messages):
    engine.round([ON.policy("backlog_quota_policy", "producer_exception")], 0)
    with pytest.raises(ProducerBlockedQuotaExceededException, match="let its subscriptions catch up"):
        publish(messages, engine.layout.root, TOPIC)
    assert published(engine) == 0
    relieve(engine)
    assert publish(messages, engine.layout.root, TOPIC).messages == 2


def test_it_is_held_until_its_send_timeout(engine, messages, clock):
    begun = clock()
    with pytest.raises(ProducerBlockedQuotaExceededError, match="for 30 s"):
        publish(
            messages,
            engine.layout.root,
            TOPIC,
            quota=held(engine, clock, lambda seconds: clock.advance(seconds=10 * seconds)),
        )
    assert 30 <= (clock() - begun).total_seconds() < 31
    assert published(engine) == 0


@pytest.mark.parametrize("send_timeout_millis", [1_000, 0])
def test_it_is_held_until_the_backlog_is_gone(engine, messages, clock, send_timeout_millis):
    waits = []

    def wait(seconds):
        clock.advance(seconds=seconds)
        waits.append(seconds)
        if len(waits) == 3:
            relieve(engine)

    done = publish(
        messages, engine.layout.root, TOPIC, send_timeout_millis=send_timeout_millis, quota=held(engine, clock, wait)
    )
    assert (done.messages, len(waits)) == (2, 3)


def test_a_transaction_that_is_done_is_not_asked_again(engine, messages):
    engine.round([ON.policy("backlog_quota_policy", "producer_exception"), ON.policy("backlog_quota_bytes", 0)], 1_000)
    assert publish(messages, engine.layout.root, TOPIC, app_id="nightly", app_version=1).messages == 2
    engine.round([ON.policy("backlog_quota_bytes", 1)], 62_000)
    assert publish(messages, engine.layout.root, TOPIC, app_id="nightly", app_version=1).messages == 0
    with pytest.raises(ProducerBlockedQuotaExceededException):
        publish(messages, engine.layout.root, TOPIC, app_id="nightly", app_version=2)


def test_a_stream_that_is_refused_publishes_the_batch_when_it_starts_again(spark, engine, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "1.json").write_text('{"payload": "a"}\n')

    def run():
        stream = spark.readStream.schema("payload string").json(str(source))
        writer = publish_stream(stream, engine.layout.root, TOPIC).option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        )
        writer.trigger(availableNow=True).start().awaitTermination()

    engine.round([ON.policy("backlog_quota_policy", "producer_exception")], 0)
    with pytest.raises(StreamingQueryException, match="ProducerBlockedQuotaExceededException"):
        run()
    assert published(engine) == 0
    relieve(engine)
    run()
    assert published(engine) == 1
