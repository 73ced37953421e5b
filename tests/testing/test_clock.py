"""Something that does not follow the clock of tests, or that passes although it stands still, is found here."""

import re
import time
from datetime import timedelta

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.storage import clock as clocks
from pulsar_spark.testing.clock import Clock
from tests.support.waiting import DEADLINE_SECONDS, nothing_comes, receive_values, send

WAIT = DEADLINE_SECONDS * 1000
SHARED = {"consumer_type": pulsar.ConsumerType.Shared}


def test_it_stands_still_and_is_moved():
    with Clock() as clock:
        assert abs(clock.now().timestamp() - time.time()) < DEADLINE_SECONDS and not clock.is_stopped
        clock.stop()
        before = clock.now()
        assert clock.now() == before and clock.advance(hours=1, seconds=1) == before + timedelta(seconds=3601)
        assert clocks.now_micros() == round(clock.now().timestamp() * 1_000_000)
        assert clocks.monotonic() > time.monotonic() + 3600
        with pytest.raises(ValueError, match="would turn time back"):
            clock.advance(seconds=-1)
    assert abs(clocks.now_micros() - time.time_ns() // 1000) < DEADLINE_SECONDS * 1_000_000
    assert clocks.monotonic() <= time.monotonic()


def test_delayed_messages_come_due(pulsar_client, pulsar_clock):
    consumer = pulsar_client.subscribe("t", "s", **SHARED)
    producer = pulsar_client.create_producer("t")
    producer.send(b"relative", deliver_after=timedelta(minutes=5))
    producer.send(b"absolute", deliver_at=int(pulsar_clock.now().timestamp() * 1000) + 600_000)
    pulsar_clock.advance(minutes=4, seconds=59)
    assert nothing_comes(consumer, 20)
    pulsar_clock.advance(seconds=1)
    assert receive_values(consumer, 1) == ["relative"]
    pulsar_clock.advance(minutes=5)
    (late,) = [consumer.receive(WAIT)]
    assert late.data() == b"absolute"
    producer.send(b"published", event_timestamp=1)
    published = consumer.receive(WAIT).publish_timestamp()
    assert published == int(pulsar_clock.now().timestamp() * 1000)
    assert late.publish_timestamp() == published - 600_000


def test_negative_acknowledgements_come_back(pulsar_client, pulsar_clock):
    """Time also passes by itself, so half of the delay is left."""
    consumer = pulsar_client.subscribe("t", "s", negative_ack_redelivery_delay_ms=120_000, **SHARED)
    send(pulsar_client, "t", "x")
    consumer.negative_acknowledge(consumer.receive(WAIT))
    pulsar_clock.advance(minutes=1)
    assert nothing_comes(consumer, 20)
    pulsar_clock.advance(minutes=1)
    assert consumer.receive(WAIT).redelivery_count() == 1


def test_acknowledgement_timeouts_end(pulsar_client, pulsar_clock, pulsar_broker):
    consumer = pulsar_client.subscribe("t", "s", unacked_messages_timeout_ms=10_000, **SHARED)
    send(pulsar_client, "t", "x")
    message = consumer.receive(WAIT)
    pulsar_clock.advance(seconds=11)
    pulsar_broker.assert_redelivered(message, "s", 1)
    assert consumer.receive(WAIT).redelivery_count() == 1


def test_messages_expire(pulsar_client, pulsar_clock, pulsar_broker):
    pulsar_client.subscribe("t", "s", **SHARED).close()
    Admin(pulsar_broker.service_url).set_policy("public/default", "message_ttl_seconds", "3600")
    send(pulsar_client, "t", "x")
    pulsar_clock.advance(minutes=59)
    assert pulsar_broker.backlog("t", "s") == 1
    pulsar_clock.advance(hours=1)
    assert pulsar_broker.backlog("t", "s") == 0


def test_new_topics_of_a_pattern_are_found(pulsar_client, pulsar_clock):
    consumer = pulsar_client.subscribe(re.compile("persistent://public/default/order-.*"), "s", **SHARED)
    send(pulsar_client, "order-late", "x")
    pulsar_clock.advance(minutes=1)
    assert receive_values(consumer, 1) == ["x"]


def test_clients_stay_connected_and_their_requests_hold(pulsar_client, pulsar_clock):
    consumer = pulsar_client.subscribe("t", "s", **SHARED)
    pulsar_clock.advance(days=30)
    pulsar_client.subscribe("t", "later", **SHARED)
    send(pulsar_client, "t", "x")
    assert receive_values(consumer, 1) == ["x"] and consumer.is_connected()


def test_without_it_time_passes(pulsar_client):
    consumer = pulsar_client.subscribe("t", "s", negative_ack_redelivery_delay_ms=100, **SHARED)
    send(pulsar_client, "t", "x")
    consumer.negative_acknowledge(consumer.receive(WAIT))
    assert consumer.receive(WAIT).redelivery_count() == 1
