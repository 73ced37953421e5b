"""Deliveries of what came due as the client takes them: entries that lie anywhere in the topic, in the order they came
due, acknowledged and given back by position. Rounds are written by hand; messages, requests and files are real."""

import pulsar_spark as pulsar
from pulsar_spark.client.receiving import reading
from pulsar_spark.storage.cursor_ledger.client_rows import client_rows
from pulsar_spark.storage.delta.scan import open_table
from pulsar_spark.storage.topics.topics import read_topic
from pulsar_spark.table_specs import CURSOR_LEDGER
from tests.support.waiting import eventually, nothing_comes, receive_values


class Hand:
    """The rounds of a broker; the real one has numbered the messages and owns nobody's hashes."""

    def __init__(self, client, broker, values, batch=1, **options):
        self.broker, self.client, self.round = broker, client, 1000
        nobody = pulsar.ConsumerKeySharedPolicy(pulsar.KeySharedMode.Sticky, False, [(65_535, 65_535)])
        self.consumer = client.subscribe(
            "t", "s", consumer_type=pulsar.ConsumerType.KeyShared, key_shared_policy=nobody, **options
        )
        producer = client.create_producer(
            "t", batching_enabled=batch > 1, batching_max_messages=batch, batching_max_publish_delay_ms=60_000
        )
        self.subscription = self.consumer._subscriptions[0]
        self.topic = read_topic(client._layout, "t")
        for value in values:
            producer.send_async(value.encode(), None)
        producer.close()
        eventually(lambda: self.subscription.ledgers.end(self.topic.topic_id, -1) == len(values) // batch)

    def deliver(self, *positions, redelivery_count=0, ack_set=None, batch_size=1):
        """A round that sends the consumer these entries, which came due in this order."""
        self.round += 1
        place = {"topic": str(self.topic.name), "topic_id": self.topic.topic_id, "partition": -1, "subscription": "s"}
        delivered = {
            **{"kind": "range", "round": self.round, "delivery_round": self.round, "status": "pending"},
            **{"first": min(positions), "last": max(positions), "batch_size": batch_size},
            **{"consumer_id": self.consumer._consumer_id, "redelivery_count": redelivery_count, "ack_set": ack_set},
            "positions": positions,
        }
        rows = CURSOR_LEDGER.rows([{"kind": "round", "requests_version": 1 << 40}, place | delivered])
        inbox = self.client._channel._first._inbox
        inbox.dispatch(client_rows(rows), *inbox.recipients())

    def positions(self, kind):
        return sorted(at for asked in self.broker.asked(kind) for at in range(asked.first, asked.last + 1))


def test_in_the_order_they_came_due_and_acknowledged_by_position(client, broker, monkeypatch):
    """Also where they are read in several portions, each in one pass over the topic."""
    monkeypatch.setattr(reading, "DUE_ENTRIES", 3)
    hand = Hand(client, broker, "abcdefgh")
    hand.deliver(6, 1, 7, 0, 3)
    assert hand.subscription._queued == 5, "counted before anything is read"
    messages = [hand.consumer.receive(60_000) for _ in range(5)]
    assert [message.data() for message in messages] == [b"g", b"b", b"h", b"a", b"d"]
    for message in messages[:3]:
        hand.consumer.acknowledge(message)
    hand.consumer.negative_acknowledge(messages[3])
    eventually(lambda: hand.positions("ack") == [1, 6, 7] and hand.positions("negative_ack") == [0])
    assert nothing_comes(hand.consumer) and hand.subscription._queued == 0


def test_what_comes_again_takes_the_place_of_what_is_queued(client, broker):
    hand = Hand(client, broker, "abcdef")
    hand.deliver(4, 1, 3)
    hand.deliver(3, 1, redelivery_count=1)
    messages = [hand.consumer.receive(60_000) for _ in range(3)]
    assert [(each.data(), each.redelivery_count()) for each in messages] == [(b"e", 0), (b"d", 1), (b"b", 1)]
    assert nothing_comes(hand.consumer) and hand.subscription._queued == 0


def test_batches_and_what_of_them_is_acknowledged(client, broker):
    hand = Hand(client, broker, "abcdefgh", batch=2)
    hand.deliver(3, 0, 2, batch_size=2)
    hand.deliver(1, batch_size=2, ack_set=[0b10])
    assert receive_values(hand.consumer, 7) == [*"ghabef", "d"] and nothing_comes(hand.consumer)


def test_dead_ones_are_given_back(client, broker):
    policy = pulsar.ConsumerDeadLetterPolicy(1)
    hand = Hand(client, broker, "abcdef", dead_letter_policy=policy)
    hand.deliver(5, 0, 2, redelivery_count=2)
    assert nothing_comes(hand.consumer)
    eventually(lambda: hand.positions("negative_ack") == [0, 2, 5])


def test_deleted_ones_are_acknowledged(client, broker):
    hand = Hand(client, broker, "abcdef")
    open_table(hand.topic.path).delete("cast(payload as string) in ('b', 'e')")
    hand.deliver(4, 5, 1, 0)
    assert receive_values(hand.consumer, 2) == ["f", "a"] and nothing_comes(hand.consumer)
    eventually(lambda: hand.positions("ack") == [1, 4])
    assert hand.subscription._queued == 0


def test_a_file_is_read_once_for_all_that_lies_in_it(only_in_files, client, broker, monkeypatch):
    hand = Hand(client, broker, "abcdefgh")
    paths = {run.path for run in hand.subscription.ledgers.runs(hand.topic.topic_id, -1, 0, 7)}
    entries, asked = hand.subscription.entries, []
    read = entries.read

    def noted(table, run, *rest):
        asked.append(run.path)
        return read(table, run, *rest)

    monkeypatch.setattr(entries, "read", noted)
    hand.deliver(5, 0, 7, 2, 4, 1, 6, 3)
    assert receive_values(hand.consumer, 8) == [*"fahcebgd"]
    assert sorted(asked) == sorted(paths)
