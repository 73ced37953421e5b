"""Giving back: negative acknowledgements, timeouts, the limit of the dead letter policy (semantics 4.10-4.18, 4.26,
0.6)."""

import pytest

import pulsar_spark as pulsar
from pulsar_spark.client.acks.acknowledgement_tracker import AcknowledgementTracker
from pulsar_spark.client.acks.given_back import GivenBack
from pulsar_spark.link.channel import Channel
from tests.support.waiting import eventually, nothing_comes, receive_values, send

EARLIEST = dict(initial_position=pulsar.InitialPosition.Earliest)
SHARED = dict(consumer_type=pulsar.ConsumerType.Shared)


def returns(broker) -> list[tuple[int, int, int]]:
    return [(request.first, request.last, request.delay_ms) for request in broker.asked("negative_ack")]


def dead_letters(client) -> list[str]:
    """What lies in the dead letter topic, once something does."""
    reader = client.create_reader("t-s-DLQ", pulsar.MessageId.earliest)
    found = [reader.read_next(60_000).data().decode()]
    while reader.has_message_available():
        found.append(reader.read_next(60_000).data().decode())
    return found


def counted(messages: list) -> list[tuple[str, int]]:
    return [(message.data().decode(), message.redelivery_count()) for message in messages]


@pytest.fixture
def delays_ms(monkeypatch) -> list[int]:
    """Those with which entries were given back."""
    found, give_back = [], AcknowledgementTracker.give_back

    def note(tracker, positions, delay_ms, *others, **named):
        found.append(delay_ms)
        give_back(tracker, positions, delay_ms, *others, **named)

    monkeypatch.setattr(AcknowledgementTracker, "give_back", note)
    return found


def test_a_delay_is_at_least_100_ms(client, broker, delays_ms):
    send(client, "t", "m0")
    consumer = client.subscribe("t", "s", negative_ack_redelivery_delay_ms=0, **SHARED, **EARLIEST)
    consumer.negative_acknowledge(consumer.receive(60_000))
    assert delays_ms == [100]


@pytest.mark.parametrize("delay_ms, left_ms", [(100, 0), (1000, 0), (1001, 1001)])
def test_a_short_delay_passes_before_the_request(delay_ms, left_ms):
    """One round then reads it and delivers the entry again; a longer delay is kept by the broker."""
    given_back = GivenBack()
    given_back.add([7], delay_ms, 5.0)
    if not left_ms:
        assert given_back.take(5.0 + (delay_ms - 1) / 1000) == ([], [])
    assert given_back.next_time <= 5.02 + (delay_ms - left_ms) / 1000
    assert given_back.take(5.02 + (delay_ms - left_ms) / 1000)[0] == [{"first": 7, "last": 7, "delay_ms": left_ms}]
    given_back.add([7], 300, 5.0)
    ((row,), _) = given_back.take(5.1, is_last=True)
    assert 200 <= row["delay_ms"] <= 220 and not given_back


def test_requests_of_a_tick_that_was_sent_are_later_ones():
    given_back = GivenBack()
    first = given_back.add([7], 0, 5.004)
    assert given_back.add([8], 0, 5.005) is first and given_back.take(5.006)[1] == [first]
    second = given_back.add([5], 0, 5.007)
    assert first.time < second.time <= 5.007 and given_back.take(5.007)[1] == [second]


@pytest.mark.parametrize("name", ["Shared", "KeyShared"])
def test_what_comes_again_by_request_does_not_come_once_more_when_its_delay_is_over(client, broker, name):
    send(client, "t", "m0")
    options = {"negative_ack_redelivery_delay_ms": 1000, **EARLIEST}
    consumer = client.subscribe("t", "s", pulsar.ConsumerType[name], **options)
    consumer.negative_acknowledge(consumer.receive(60_000))
    consumer.redeliver_unacknowledged_messages()
    assert consumer.receive(60_000).data() == b"m0"
    assert not consumer._subscriptions[0].tracker.given_back


def test_a_backoff_grows_with_the_message_s_count_and_has_no_floor(client, broker, delays_ms):
    send(client, "t", "m0")
    backoff = pulsar.MultiplierRedeliveryBackoff(min_delay_ms=10, max_delay_ms=30, multiplier=2)
    consumer = client.subscribe("t", "s", negative_ack_redelivery_backoff=backoff, **SHARED, **EARLIEST)
    for count in range(3):
        message = consumer.receive(60_000)
        assert message.redelivery_count() == count
        consumer.negative_acknowledge(message)
    consumer.negative_acknowledge(consumer.receive(60_000).message_id())
    assert consumer.receive(60_000).redelivery_count() == 4
    assert delays_ms == [10, 20, 30, 10]


def test_an_entry_is_named_once_and_its_last_deadline_counts(client, broker, monkeypatch):
    monkeypatch.setattr(Channel, "gather", lambda self, source, delay, is_urgent=False: None)
    producer = client.create_producer("t", batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for value in (b"a0", b"a1"):
        producer.send_async(value, None)
    producer.flush()
    consumer = client.subscribe("t", "s", negative_ack_redelivery_delay_ms=7000, **SHARED, **EARLIEST)
    tracker = consumer._subscriptions[0].tracker
    messages = [consumer.receive(60_000) for _ in range(2)]
    tracker.give_back({0}, 9000)
    for message in messages:
        consumer.negative_acknowledge(message)
    assert [(row["first"], row["last"], row["delay_ms"]) for row in tracker.take_rows()] == [(0, 0, 7000)]
    assert tracker.take_rows() == []


def stopped_clock(consumer) -> list[float]:
    """The time of the consumer's timer of unacknowledged messages, in seconds; it passes when it is set."""
    now = [0.0]
    consumer._unacked._clock = lambda: now[0]
    return now


@pytest.mark.parametrize("topics", ["t", ["t", "u"]])
def test_what_is_given_back_or_acknowledged_does_not_time_out(client, broker, topics):
    send(client, "t", "m0", "m1", "m2")
    consumer = client.subscribe(
        topics, "s", unacked_messages_timeout_ms=10_000, negative_ack_redelivery_delay_ms=60_000, **SHARED, **EARLIEST
    )
    now = stopped_clock(consumer)
    messages = [consumer.receive(60_000) for _ in range(3)]
    consumer.negative_acknowledge(messages[0])
    consumer.acknowledge(messages[1])
    now[0] = 11.0
    consumer._redeliver_expired()
    assert counted([consumer.receive(60_000)]) == [("m2", 1)] and nothing_comes(consumer)
    assert sorted(returns(broker)) == [(0, 0, 60_000), (2, 2, 0)]


@pytest.mark.parametrize("name", ["Shared", "Exclusive"])
def test_what_is_not_acknowledged_in_time_comes_again(client, broker, name):
    send(client, "t", "m0", "m1", "m2")
    consumer = client.subscribe(
        "t", "s", consumer_type=pulsar.ConsumerType[name], unacked_messages_timeout_ms=10_000, **EARLIEST
    )
    now = stopped_clock(consumer)
    messages = [consumer.receive(60_000) for _ in range(3)]
    consumer.acknowledge(messages[1])
    eventually(lambda: broker.asked("ack"))
    now[0] = 9.9
    consumer._redeliver_expired()
    assert nothing_comes(consumer) and returns(broker) == []
    now[0] = 10.0
    consumer._redeliver_expired()
    assert counted([consumer.receive(60_000) for _ in range(2)]) == [("m0", 1), ("m2", 1)]


def test_a_batch_is_timed_until_all_of_it_is_acknowledged(client, broker):
    """What is left of it comes again; acknowledging the rest in time ends that (3.7, 4.11)."""
    producer = client.create_producer("t", batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for value in (b"a0", b"a1", b"a2"):
        producer.send_async(value, None)
    producer.flush()
    consumer = client.subscribe("t", "s", unacked_messages_timeout_ms=10_000, **SHARED, **EARLIEST)
    now = stopped_clock(consumer)
    consumer.acknowledge(consumer.receive(60_000))
    eventually(lambda: broker.asked("ack"))
    assert [consumer.receive(60_000).data() for _ in range(2)] == [b"a1", b"a2"]
    now[0] = 10.0
    consumer._redeliver_expired()
    again = [consumer.receive(60_000) for _ in range(2)]
    assert counted(again) == [("a1", 1), ("a2", 1)]
    consumer.acknowledge(again)
    now[0] = 20.0
    consumer._redeliver_expired()
    assert nothing_comes(consumer) and returns(broker) == [(0, 0, 0)]


def test_a_cumulative_acknowledgement_ends_the_timing_of_all_before(client, broker):
    """3.7."""
    send(client, "t", "m0", "m1", "m2", "m3")
    consumer = client.subscribe("t", "s", unacked_messages_timeout_ms=10_000, **EARLIEST)
    now = stopped_clock(consumer)
    messages = [consumer.receive(60_000) for _ in range(4)]
    consumer.acknowledge_cumulative(messages[2])
    eventually(lambda: broker.asked("cumulative_ack"))
    now[0] = 10.0
    consumer._redeliver_expired()
    assert eventually(lambda: returns(broker)) == [(3, 3, 0)]
    assert counted([consumer.receive(60_000)]) == [("m3", 1)] and nothing_comes(consumer)


def test_giving_back_takes_no_acknowledgement_back(client, broker):
    """Neither one that waits to be sent nor, of a batch, that of another message (3.10, 4.16, 4.18)."""
    producer = client.create_producer("t", batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for value in (b"a0", b"a1"):
        producer.send_async(value, None)
    producer.flush()
    send(client, "t", "m1")
    consumer = client.subscribe(
        "t", "s", ack_group_time_ms=60_000, negative_ack_redelivery_delay_ms=100, **SHARED, **EARLIEST
    )
    messages = [consumer.receive(60_000) for _ in range(3)]
    consumer.acknowledge(messages[0])
    consumer.acknowledge(messages[2])
    consumer.negative_acknowledge(messages[1])
    consumer.negative_acknowledge(messages[2])
    assert counted([consumer.receive(60_000)]) == [("a1", 1)] and nothing_comes(consumer)
    assert sorted((request.first, request.ack_set) for request in broker.asked("ack")) == [(0, [0b10]), (1, None)]


def test_a_timeout_with_a_backoff_waits_that_much_longer(client, broker):
    send(client, "t", "m0")
    backoff = pulsar.MultiplierRedeliveryBackoff(min_delay_ms=1000, max_delay_ms=5000, multiplier=3)
    consumer = client.subscribe(
        "t", "s", unacked_messages_timeout_ms=10_000, ack_timeout_redelivery_backoff=backoff, **SHARED, **EARLIEST
    )
    now = stopped_clock(consumer)
    for count, seconds in ((0, 11.0), (1, 13.0), (2, 15.0)):
        assert consumer.receive(60_000).redelivery_count() == count
        now[0] += seconds - 0.1
        consumer._redeliver_expired()
        assert len(returns(broker)) == count
        now[0] += 0.1
        consumer._redeliver_expired()
        assert eventually(lambda: len(returns(broker)) == count + 1)


def test_on_exclusive_everything_behind_what_comes_back_is_dropped_and_comes_again(client, broker):
    """The queue holds m3..m5 when m1 comes back: they are delivered again behind it, and the permits of the dropped
    ones are given again."""
    send(client, "t", *(f"m{number}" for number in range(6)))
    consumer = client.subscribe("t", "s", receiver_queue_size=10, negative_ack_redelivery_delay_ms=100, **EARLIEST)
    messages = [consumer.receive(60_000) for _ in range(3)]
    consumer.acknowledge(messages[0])
    consumer.negative_acknowledge(messages[1])
    eventually(lambda: consumer._subscriptions[0].generation)
    assert counted([consumer.receive(60_000) for _ in range(5)]) == [
        ("m1", 1),
        ("m2", 0),
        ("m3", 0),
        ("m4", 0),
        ("m5", 0),
    ]
    assert nothing_comes(consumer)
    consumer.close()
    assert sum(request.permits for request in broker.asked("flow")) == 10 + 3 + 5


def test_what_is_queued_of_an_entry_that_comes_again_is_dropped(client, broker):
    producer = client.create_producer("t", batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for number in range(3):
        producer.send_async(f"a{number}".encode(), None)
    producer.flush()
    consumer = client.subscribe(
        "t", "s", receiver_queue_size=10, negative_ack_redelivery_delay_ms=100, **SHARED, **EARLIEST
    )
    first = consumer.receive(60_000)
    consumer.acknowledge(first)
    consumer.negative_acknowledge(first)
    eventually(lambda: consumer._subscriptions[0]._newest)
    assert counted([consumer.receive(60_000) for _ in range(2)]) == [("a1", 1), ("a2", 1)] and nothing_comes(consumer)
    assert consumer._subscriptions[0]._newest == {}
    send(client, "t", *(f"m{number}" for number in range(20)))
    assert receive_values(consumer, 20) == [f"m{number}" for number in range(20)]


def test_a_message_is_shown_once_more_than_it_may_be_given_back(client, broker):
    send(client, "t", "m0", "m1")
    consumer = client.subscribe(
        "t",
        "s",
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(2),
        negative_ack_redelivery_delay_ms=100,
        **SHARED,
        **EARLIEST,
    )
    seen = []
    for _ in range(4):
        seen.append(consumer.receive(60_000))
        if seen[-1].data() == b"m0":
            consumer.negative_acknowledge(seen[-1])
    assert sorted(counted(seen)) == [("m0", 0), ("m0", 1), ("m0", 2), ("m1", 0)] and nothing_comes(consumer)
    assert dead_letters(client) == ["m0"]


def test_a_message_above_the_limit_is_not_shown_but_given_back(client, broker):
    """It came back too often at a consumer without a policy."""
    send(client, "t", "m0", "m1")
    lenient = client.subscribe("t", "s", negative_ack_redelivery_delay_ms=100, **SHARED, **EARLIEST)
    for count in range(3):
        message = [
            message
            for message in (lenient.receive(60_000) for _ in range(1 if count else 2))
            if message.data() == b"m0"
        ][0]
        lenient.negative_acknowledge(message)
    assert lenient.receive(60_000).redelivery_count() == 3
    lenient.close()
    strict = client.subscribe(
        "t", "s", dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(2), receiver_queue_size=1, **SHARED
    )
    assert receive_values(strict, 1) == ["m1"]
    assert dead_letters(client) == ["m0"]
    send(client, "t", "m2", "m3")
    assert receive_values(strict, 2) == ["m2", "m3"]


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"dead_letter_policy": pulsar.ConsumerDeadLetterPolicy(3)}, 30_000),
        ({"dead_letter_policy": pulsar.ConsumerDeadLetterPolicy(3), "unacked_messages_timeout_ms": 0}, 0),
        ({"dead_letter_policy": pulsar.ConsumerDeadLetterPolicy(3), "unacked_messages_timeout_ms": 10_000}, 10_000),
        ({"retry_enable": True}, 0),
        ({}, 0),
    ],
)
def test_a_dead_letter_policy_brings_a_timeout(client, options, expected):
    consumer = client.subscribe("t", "s", **options)
    assert consumer._settings.unacked_timeout_ms == expected and (consumer._unacked is not None) == (expected > 0)
