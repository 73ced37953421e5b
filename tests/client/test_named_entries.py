"""Deliveries that name their entries, as the client takes them: of those between their ends only these are shown,
counted, acknowledged and given back. Rounds are written by hand; messages, requests and files are real."""

import os

import pytest

import pulsar_spark as pulsar
from pulsar_spark.broker.committing.round_rows import rows_of_round
from pulsar_spark.protocol.acknowledgement.cursor import Range
from pulsar_spark.protocol.subscriptions.permits import Permits
from pulsar_spark.storage.cursor_ledger.client_rows import client_rows
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import open_table
from pulsar_spark.storage.topics.topics import read_topic
from tests.support.named_entries import named
from tests.support.waiting import eventually, nothing_comes, receive_values

OTHERS = "somebody else's"
KEYS = ["k0", "k1", "k2"]


class Hand:
    """The rounds of a broker; the real one has numbered the messages and owns nobody's hashes."""

    def __init__(self, client, broker, *values, partition_keys=KEYS, **options):
        self.broker, self.client, self.round = broker, client, 1000
        nobody = pulsar.ConsumerKeySharedPolicy(pulsar.KeySharedMode.Sticky, False, [(65_535, 65_535)])
        self.consumer = client.subscribe(
            "t", "s", consumer_type=pulsar.ConsumerType.KeyShared, key_shared_policy=nobody, **options
        )
        producer = client.create_producer("t")
        for number, value in enumerate(values):
            producer.send(value.encode(), partition_key=partition_keys[number % len(partition_keys)])
        producer.close()
        self.subscription = self.consumer._subscriptions[0]
        topic = read_topic(client._layout, "t")
        eventually(lambda: self.subscription.ledgers.end(topic.topic_id, -1) == len(values))
        self.cursor = broker.cursor("t", "s")

    def deliver(self, *states, redelivery_count=0, ack_set=None, batch_size=1):
        """A round that sends the consumer the entries at positions 0, 1, 2... whose state is True, or a redelivery
        count, and somebody else those whose is False; None = not sent."""
        self.round += 1
        mine, count = self.consumer._consumer_id, redelivery_count
        ranges = [
            Range(at, at, "pending", mine if each else OTHERS, self.round, each or 0, None, ack_set, batch_size)
            if type(each) is int
            else Range(at, at, "pending", mine if each else OTHERS, self.round, count, None, ack_set, batch_size)
            for at, each in enumerate(states)
            if each is not None
        ]
        pages = named(self.cursor.key, self.cursor.topic, ranges)
        rows = rows_of_round(self.round, [{"kind": "round", "requests_version": 1 << 40}], pages)
        inbox = self.client._channel._first._inbox
        inbox.dispatch(client_rows(rows), *inbox.recipients())

    def asked(self, kind):
        return [(request.first, request.last) for request in self.broker.asked(kind)]

    def positions(self, kind):
        return sorted(position for first, last in self.asked(kind) for position in range(first, last + 1))

    @property
    def permits(self) -> int:
        return sum(request.permits for request in self.broker.asked("flow"))


def test_only_named_entries_are_shown_and_acknowledged_one_by_one(client, broker):
    hand = Hand(client, broker, *"abcdefghi", receiver_queue_size=4)
    before = hand.permits
    hand.deliver(True, False, False, True, None, False, True, None, None)
    assert hand.subscription._queued == 3, "counted before anything is read"
    assert receive_values(hand.consumer, 2) == ["a", "d"]
    message = hand.consumer.receive(60_000)
    assert (message.data(), message.partition_key()) == (b"g", "k0") and nothing_comes(hand.consumer)
    for number in (0, 3, 6):
        hand.consumer.acknowledge(pulsar.MessageId(-1, number + 1, 0))
    eventually(lambda: hand.positions("ack") == [0, 3, 6])
    assert hand.subscription._queued == 0 and hand.permits - before == 2, "half the queue at once, one is kept"


def test_entries_that_lie_scattered_and_those_that_do_not(client, broker):
    hand = Hand(client, broker, *"abcdefghi")
    hand.deliver(True, False, True, True, False, None, None, None, None)
    assert sorted(receive_values(hand.consumer, 3)) == ["a", "c", "d"]
    hand.deliver(None, None, None, None, None, True, True, True, True)
    assert sorted(receive_values(hand.consumer, 4)) == ["f", "g", "h", "i"] and nothing_comes(hand.consumer)


def test_entries_of_several_states_come_in_order(client, broker):
    """A round hands out its entries by position, also where several rows name them."""
    hand = Hand(client, broker, *"abcdefghi")
    hand.deliver(True, 1, True, False, 1, True, 2, None, True)
    assert receive_values(hand.consumer, 7) == list("abcefgi") and nothing_comes(hand.consumer)


def test_what_comes_again_takes_the_place_of_the_same_entries_only(client, broker):
    """Its ends lie around other entries that are queued here too."""
    hand = Hand(client, broker, *"abcdefghi")
    hand.deliver(True, True, None, True, True, None, True, True, None)
    hand.deliver(None, None, None, True, None, None, True, None, None, redelivery_count=1)
    hand.deliver(None, True, None, None, None, None, None, None, None, redelivery_count=2)
    messages = [hand.consumer.receive(60_000) for _ in range(6)]
    assert sorted((each.data(), each.redelivery_count()) for each in messages) == [
        (b"a", 0),
        (b"b", 2),
        (b"d", 1),
        (b"e", 0),
        (b"g", 1),
        (b"h", 0),
    ]
    assert nothing_comes(hand.consumer) and hand.subscription._queued == 0


def test_a_queue_that_shrinks_gives_back_what_was_not_read(client, broker, monkeypatch):
    """All that was sent from a round on; what came again in it takes the place of nothing any more."""
    hand = Hand(client, broker, *"abcdefghi")
    hand.deliver(True, False, None, True, False, None, None, None, None)
    assert receive_values(hand.consumer, 1) == ["a"]
    hand.deliver(None, None, True, None, None, True, False, None, None)
    hand.deliver(None, None, None, None, None, None, None, True, True, redelivery_count=1)
    first = hand.round - 1
    monkeypatch.setattr(Permits, "too_many", lambda self, queued, **_: 3)
    hand.subscription._queue_watch.shrink()
    eventually(lambda: broker.asked("redeliver_all"))
    (asked,) = broker.asked("redeliver_all")
    assert (asked.first, asked.properties["since_round"]) == (2, str(first))
    assert hand.subscription._queued == 1
    assert receive_values(hand.consumer, 1) == ["d"] and nothing_comes(hand.consumer)


def test_what_is_dead_is_given_back_and_nothing_between(client, broker):
    hand = Hand(client, broker, *"abcdefghi", dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1))
    hand.deliver(True, True, None, True, False, None, True, None, None, redelivery_count=2)
    assert nothing_comes(hand.consumer)
    eventually(lambda: hand.positions("negative_ack") == [0, 1, 3, 6])
    assert hand.subscription._queued == 0


def test_batches_and_what_of_them_is_acknowledged(client, broker):
    hand = Hand(client, broker)
    producer = client.create_producer(
        "t", batching_enabled=True, batching_max_messages=2, batching_max_publish_delay_ms=60_000
    )
    for number in range(8):
        producer.send_async(str(number).encode(), None, partition_key=KEYS[number // 2 % 2])
    producer.flush()
    topic = read_topic(client._layout, "t")
    eventually(lambda: hand.subscription.ledgers.end(topic.topic_id, -1) == 4)
    hand.deliver(True, False, True, False, batch_size=2, ack_set=(0b10,))
    assert hand.subscription._queued == 2
    assert receive_values(hand.consumer, 2) == ["1", "5"] and nothing_comes(hand.consumer)
    assert hand.subscription._queued == 0


def deleted(hand: Hand, *values: str) -> None:
    wanted = ", ".join(f"'{value}'" for value in values)
    table = open_table(read_topic(hand.client._layout, "t").path)
    table.delete(f"cast(payload as string) in ({wanted})")


def test_deleted_entries_are_acknowledged_and_leave_the_queue(client, broker):
    hand = Hand(client, broker, *"abcdefghi", receiver_queue_size=4)
    before = hand.permits
    hand.deliver(True, False, False, True, False, False, True, False, False)
    deleted(hand, "d", "e")
    assert receive_values(hand.consumer, 2) == ["a", "g"]
    assert nothing_comes(hand.consumer)
    eventually(lambda: hand.subscription._queued == 0)
    assert hand.positions("ack") == [3]
    assert hand.permits - before == 2


def all_that_comes(consumer) -> list:
    """Values of messages, and what is said of lost ones."""
    found = []
    while True:
        try:
            found.append(consumer.receive(300).data().decode())
        except pulsar.MessagesLost as lost:
            found.append((lost.ledger_id, lost.ranges))
        except pulsar.Timeout:
            return found


@pytest.mark.local_disk
def test_lost_entries_are_named_to_whom_they_were_sent(client, broker):
    hand = Hand(client, broker, *"abcdefghi")
    topic = read_topic(client._layout, "t")
    hand.deliver(True, False, False, True, False, False, True, False, False)
    for version in (4, 5):
        os.unlink(topic.path / TableLog(topic.path).commit(version).added[0].path)
    assert sorted(all_that_comes(hand.consumer), key=str) == sorted(["a", "g", (4, ((0, 0),))], key=str)
    assert hand.subscription._queued == 0
    hand.deliver(True, False, False, None, False, False, True, False, False)
    assert all_that_comes(hand.consumer) == ["a", "g"], "nothing of these is missing"
