"""DataFrame consumers of a Key_Shared subscription: whose a key is, and the order of each key, whatever is given back.

Without Spark: a function gets (partition, position, redelivery count) of what it is delivered.
"""

import threading
from collections import defaultdict
from functools import partial

import pytest
from deltalake import DeltaTable

import pulsar_spark as pulsar
from pulsar_spark import ConsumerDeadLetterPolicy, ConsumerKeySharedPolicy, KeySharedMode
from pulsar_spark.broker.bundle import topic_state
from pulsar_spark.broker.committing.round_rows import rows_of_round
from pulsar_spark.errors import ConsumerAssignError, InvalidConfiguration, SubscriptionBusy
from pulsar_spark.frames import consume
from pulsar_spark.frames.consuming import backlog, call
from pulsar_spark.frames.deliveries.delivery import Acknowledged, Answer
from pulsar_spark.protocol.acknowledgement.cursor import Range
from pulsar_spark.protocol.keys.hash_ranges import SLOTS
from pulsar_spark.protocol.keys.selectors import ConsistentHashing, Member
from pulsar_spark.protocol.keys.sticky_key import sticky_key_hash
from pulsar_spark.storage.cursor_ledger.client_rows import client_rows
from pulsar_spark.storage.cursor_ledger.cursor_ledger import LatestRows
from pulsar_spark.storage.entries.slices import PositionRange
from pulsar_spark.storage.entries.topic_files import live_files
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.topics import read_topic
from tests.frames.plain import Seconds
from tests.support.hash_owners import select
from tests.support.named_entries import named as named_rows
from tests.support.waiting import eventually

KEYS = 20


def key_of(position: int) -> str:
    return f"key-{position % KEYS}"


def publish(broker, first: int, last: int) -> None:
    """Messages at positions *first* to *last*, a key each in turn."""
    client = pulsar.Client(f"delta:{broker.layout.root}")
    producer = client.create_producer("t")
    for position in range(first, last + 1):
        producer.send_async(b"x", None, partition_key=key_of(position))
    producer.flush()
    client.close()


class Handled:
    """A function that keeps what it handled; the deliveries *raises* says yes to, it does not handle."""

    def __init__(self, raises=lambda number, positions: False):
        self.positions, self.seen, self._raises = [], [], raises
        self.counts = {}

    def __call__(self, messages, delivery):
        positions = sorted(position for _, position, _ in messages)
        self.seen.append(positions)
        self.counts.update({position: count for _, position, count in messages})
        if self._raises(len(self.seen), positions):
            raise KeyError("not now")
        self.positions += positions

    def by_key(self) -> dict[str, list[int]]:
        found = defaultdict(list)
        for position in self.positions:
            found[key_of(position)].append(position)
        return dict(found)


def run(broker, function, name: str, *, subscription_type="KeyShared", **options):
    return consume(
        None, broker.layout.root, "t", "s", function, consumer_name=name, subscription_type=subscription_type, **options
    )


def in_order(first: int, last: int) -> dict[str, list[int]]:
    """What is handled of each key when all of it is, in order."""
    return {key_of(each): list(range(each, last + 1, KEYS)) for each in range(first, first + KEYS)}


def test_each_key_has_one_consumer_and_is_in_order(served):
    a, b = Handled(), Handled()
    with run(served, a, "a", max_messages=30), run(served, b, "b", max_messages=30):
        publish(served, 0, 299)
        assert eventually(lambda: len(a.positions) + len(b.positions) == 300)
        assert eventually(lambda: served.cursor("t", "s").mark_delete == 299)
    assert a.by_key().keys().isdisjoint(b.by_key()) and a.positions and b.positions
    assert a.by_key() | b.by_key() == in_order(0, 299)


def test_the_log_is_looked_at_often_only_while_nothing_is_handled(served):
    """Dozens of consumers of a session would take from each other what their functions need."""
    looks, consumptions = [], []

    def is_hurried(consumption):
        reader = consumption._consumer.connection.channel._rounds
        return reader in reader._bundle_log._eager

    def handle(messages, delivery):
        assert eventually(lambda: consumptions)
        looks.append(is_hurried(consumptions[0]))

    with run(served, handle, "a") as consumption:
        assert eventually(lambda: is_hurried(consumption))
        consumptions.append(consumption)
        publish(served, 0, 9)
        assert eventually(lambda: looks) and set(looks) == {False}
        assert eventually(lambda: is_hurried(consumption))


def test_hashes_are_looked_up_once_there_is_more_than_one_consumer(served, monkeypatch):
    """One that owns everything is sent what it is sent whatever the keys are; what it holds when another joins is told
    apart by key all the same."""
    looked_up, read = [], topic_state.read_hashes
    monkeypatch.setattr(topic_state, "read_hashes", lambda *asked: looked_up.append(1) or read(*asked))
    is_joined, a, b = threading.Event(), Handled(), Handled()

    def first(messages, delivery):
        a(messages, delivery)
        if 199 in a.positions:
            assert is_joined.wait(60)

    with run(served, first, "a", max_messages=100):
        publish(served, 0, 199)
        assert eventually(lambda: 199 in a.positions)
        assert not looked_up
        with run(served, b, "b"):
            publish(served, 200, 399)
            is_joined.set()
            assert eventually(lambda: len(a.positions) + len(b.positions) == 400)
    assert looked_up and b.positions
    of_a, of_b = a.by_key(), b.by_key()
    assert {key: of_a[key] + of_b.get(key, []) for key in of_a} == in_order(0, 399)


def when_more_has_come(consumptions: list) -> bool:
    """Wait for a delivery that is sent behind the one which is handled; true in the end."""
    return eventually(lambda: consumptions and not consumptions[0]._consumer._events.empty())


def test_what_was_sent_behind_a_give_back_is_not_handled_before_it(served):
    """Two deliveries are in flight when the first is given back; both come again, in order of each key."""
    clock, consumptions = Seconds(), []
    handled = Handled(lambda number, positions: number == 1 and when_more_has_come(consumptions))
    publish(served, 0, 199)
    with run(served, handled, "a", max_messages=60, clock=clock) as consumption:
        consumptions.append(consumption)
        assert eventually(lambda: len(served.asked("negative_ack")) == 2)
        publish(served, 200, 259)
        served.advance(3)
        clock.advance(3)
        assert eventually(lambda: len(handled.positions) == 260)
    assert handled.by_key() == in_order(0, 259)
    assert handled.seen[0] == list(range(60)), "what came too early is not shown"
    assert [{handled.counts[position] for position in each} for each in (range(60), range(60, 120))] == [{1}, {0}]


def test_of_what_was_sent_behind_a_row_only_its_key_is_held_back(served, monkeypatch):
    """One message of the first delivery is given back, and the function takes two behind it itself; of the second
    delivery all other keys are handled without it."""
    clock, consumptions, whole = Seconds(), [], call.answer

    def answer(delivery, result):
        back = PositionRange(-1, 7, 7)
        if delivery.ranges[0].first:
            return whole(delivery, result)
        assert when_more_has_come(consumptions)
        handled.positions.remove(7)
        return Answer([Acknowledged(-1, 0, 6), Acknowledged(-1, 8, 59)], [back])

    monkeypatch.setattr(call, "answer", answer)
    handled = Handled()
    publish(served, 0, 119)
    with run(served, handled, "a", max_messages=60, clock=clock) as consumption:
        consumptions.append(consumption)
        assert eventually(lambda: len(handled.positions) == 116)
        assert sorted({7, 67, 87, 107}.symmetric_difference(range(120))) == sorted(handled.positions)
        served.advance(3)
        clock.advance(3)
        assert eventually(lambda: len(handled.positions) == 120)
    assert handled.by_key() == in_order(0, 119) | {"key-7": [27, 47, 7, 67, 87, 107]}


def test_a_key_that_fails_holds_up_no_other(served):
    """Of one key every delivery fails; all others are handled."""
    handled = Handled(lambda number, positions: any(key_of(position) == "key-3" for position in positions))
    clock = Seconds()
    with run(served, handled, "a", max_messages=1, clock=clock) as consumption:
        publish(served, 0, 59)

        def others_are_done() -> bool:
            served.advance(1)
            clock.advance(1)
            return len(handled.positions) == 57

        assert eventually(others_are_done)
        assert consumption.is_active
    expected = in_order(0, 59)
    del expected["key-3"]
    assert handled.by_key() == expected


def test_a_run_leaves_what_is_behind_a_give_back_to_the_next_one(served):
    publish(served, 0, 99)
    first, second = Handled(lambda number, positions: number == 1), Handled()
    with run(served, first, "a", max_messages=30, available_now=True) as consumption:
        with pytest.raises(KeyError):
            consumption.await_termination(30)
    failed = {key_of(position) for position in first.seen[0]}
    assert failed and not failed & first.by_key().keys()
    with run(served, second, "a", available_now=True) as consumption:
        assert consumption.await_termination(30)
    assert second.by_key() | first.by_key() == in_order(0, 99)
    assert sorted(first.positions + second.positions) == list(range(100))


def neighbour_of(name: str, *positions: int) -> str:
    """A name whose consumer leaves the keys of these positions to the one of *name*."""
    for number in range(1000):
        other = f"other-{number}"
        both = ConsistentHashing().joined(Member(name, name)).joined(Member(other, other))
        if all(select(both, sticky_key_hash(key_of(position).encode())) == name for position in positions):
            return other
    raise AssertionError("every name takes one of them")


def test_a_run_does_not_wait_for_what_is_anothers(served):
    """The other one holds two messages and has no permits for more of its own."""
    publish(served, 0, 99)
    release, stuck = threading.Event(), Handled(lambda number, positions: not release.wait(60))
    mine = Handled()
    with run(served, stuck, "b", max_messages=1, on_error="stop"):
        assert eventually(lambda: stuck.seen)
        with run(served, mine, neighbour_of("b", 0, 1), available_now=True) as consumption:
            assert consumption.await_termination(20)
        release.set()
        assert eventually(lambda: len(stuck.positions) + len(mine.positions) == 100)
    assert mine.positions and mine.by_key().keys().isdisjoint(stuck.by_key())


def test_what_others_hold_is_counted_and_not_looked_at(served, monkeypatch):
    """One holds all of its own, which lie between the other's; that one has handled everything."""
    monkeypatch.setattr(LatestRows, "ranges", None)
    release, stuck, mine = threading.Event(), Handled(lambda number, positions: not release.wait(60)), Handled()
    publish(served, 0, 99)
    asleep = ConsumerKeySharedPolicy(KeySharedMode.Sticky, sticky_ranges=[(0, 32767)])
    awake = ConsumerKeySharedPolicy(KeySharedMode.Sticky, sticky_ranges=[(32768, 65535)])
    with (
        run(served, stuck, "b", key_shared_policy=asleep) as stuck_one,
        run(served, mine, "a", key_shared_policy=awake) as other,
    ):
        theirs = sum(sticky_key_hash(key_of(each).encode()) % 65536 < 32768 for each in range(100))
        assert eventually(lambda: len(mine.positions) == 100 - theirs)
        assert eventually(
            lambda: +served.cursor("t", "s").unacked == {stuck_one._consumer.connection.membership.consumer_id: theirs}
        )
        ledgers, me = LedgerIndex(served.layout), other._consumer.connection.membership.consumer_id
        make = partial(backlog.Backlog, served.layout, other._consumer.connection.topic, [-1], "s", ledgers)
        assert eventually(lambda: make().is_handled(me))
        release.set()


def test_a_run_ends_where_nobody_owns_the_rest(served):
    """Sticky ranges that leave a gap: what lies there waits for somebody who covers it."""
    publish(served, 0, 59)
    policy = ConsumerKeySharedPolicy(KeySharedMode.Sticky, sticky_ranges=[(0, 32767)])
    low, rest = Handled(), Handled()
    with run(served, low, "low", key_shared_policy=policy, available_now=True) as consumption:
        assert consumption.await_termination(20)
    owned = {key for key in in_order(0, 59) if SLOTS.place(sticky_key_hash(key.encode())) < 32768}
    assert low.by_key() == {key: found for key, found in in_order(0, 59).items() if key in owned}
    with run(served, rest, "all", subscription_type="Key_Shared", available_now=True) as consumption:
        assert consumption.await_termination(20)
    assert low.by_key() | rest.by_key() == in_order(0, 59)


def test_what_is_given_back_too_often_dies_and_the_rest_of_its_key_goes_on(served):
    handled = Handled(lambda number, positions: 3 in positions)
    clock = Seconds()
    publish(served, 0, 59)
    options = {"dead_letter_policy": ConsumerDeadLetterPolicy(1), "max_messages": 1, "clock": clock}
    with run(served, handled, "a", **options):

        def others_are_done() -> bool:
            served.advance(1)
            clock.advance(1)
            return len(handled.positions) == 59

        assert eventually(others_are_done)
    expected = in_order(0, 59)
    expected["key-3"].remove(3)
    assert handled.by_key() == expected
    assert handled.seen.count([3]) == 2


def test_a_policy_is_for_key_shared_alone_and_refusals_leave_nobody_behind(served):
    policy = ConsumerKeySharedPolicy(KeySharedMode.Sticky, sticky_ranges=[(0, 9)])
    with pytest.raises(InvalidConfiguration, match="does not apply to a subscription of type 'Shared'"):
        run(served, Handled(), "a", subscription_type="Shared", key_shared_policy=policy)
    with pytest.raises(ValueError, match="key_shared_policy"):
        run(served, Handled(), "a", key_shared_policy={"mode": "sticky"})
    with run(served, Handled(), "a", key_shared_policy=policy):
        with pytest.raises(ConsumerAssignError, match="overlaps"):
            run(served, Handled(), "b", key_shared_policy=policy)
        with pytest.raises(SubscriptionBusy, match="STICKY"):
            run(served, Handled(), "b")
        assert len(served.cursor("t", "s").consumers) == 1


NOBODYS = ConsumerKeySharedPolicy(KeySharedMode.Sticky, sticky_ranges=[(65535, 65535)])


def send_named(served, consumption) -> list[int]:
    """A round written by hand: the consumer is sent those of messages 0 to 39 with the lower half of all hashes."""
    hashes = [sticky_key_hash(key_of(position).encode()) for position in range(40)]
    mine = [position for position, each in enumerate(hashes) if each % 65536 < 32768]
    me = consumption._consumer.connection.membership.consumer_id
    ranges = [Range(at, at, "pending", me if at in mine else "other", 1000, 0, None, None, 1) for at in range(40)]
    cursor = served.cursor("t", "s")
    pages = named_rows(cursor.key, cursor.topic, ranges)
    rows = rows_of_round(1000, [{"kind": "round", "requests_version": 1 << 40}], pages)
    inbox = consumption._consumer.connection.channel._inbox
    inbox.dispatch(client_rows(rows), *inbox.recipients())
    return mine


def test_only_named_entries_are_handled(served):
    """What is gone between their ends is acknowledged."""
    publish(served, 0, 39)
    handled = Handled()
    with run(served, handled, "me", key_shared_policy=NOBODYS) as consumption:
        assert eventually(lambda: served.cursor("t", "s").consumers)
        mine = [position for position in range(40) if sticky_key_hash(key_of(position).encode()) % 65536 < 32768]
        gone = mine[0], mine[3]
        DeltaTable(str(read_topic(served.layout, "t").path)).delete(f"entry_id in {gone}")
        assert send_named(served, consumption) == mine
        assert eventually(lambda: handled.positions)
        assert handled.positions == [position for position in mine if position not in gone]
        assert eventually(lambda: len(acknowledged(served)) == len(mine))
    assert acknowledged(served) == mine


def test_what_is_lost_of_named_entries_stays_delivered(served):
    """The file of the second publish was taken by hand: nothing of the delivery is acknowledged by its round."""
    publish(served, 0, 19)
    (kept,) = live_files(read_topic(served.layout, "t").path)
    publish(served, 20, 39)
    handled = Handled()
    with run(served, handled, "me", key_shared_policy=NOBODYS) as consumption:
        assert eventually(lambda: served.cursor("t", "s").consumers)
        topic = read_topic(served.layout, "t")
        for path in set(live_files(topic.path)) - {kept}:
            (topic.path / path).unlink()
        mine = send_named(served, consumption)
        assert eventually(lambda: handled.positions)
        assert handled.positions == [position for position in mine if position < 20]
        assert eventually(lambda: acknowledged(served) == handled.positions)
        assert "MessagesLost" in consumption.last_progress["error"]


def test_a_delivery_of_named_entries_that_fails_is_given_back_by_position(served):
    publish(served, 0, 39)
    handled = Handled(lambda number, positions: True)
    with run(served, handled, "me", key_shared_policy=NOBODYS) as consumption:
        assert eventually(lambda: served.cursor("t", "s").consumers)
        mine = send_named(served, consumption)
        assert eventually(lambda: handled.seen)
        assert eventually(lambda: named(served, "negative_ack") == mine)
    assert handled.seen[0] == mine and not acknowledged(served)


def acknowledged(broker) -> list[int]:
    return named(broker, "ack")


def named(broker, kind: str) -> list[int]:
    """Positions that requests of a kind name."""
    return sorted(position for request in broker.asked(kind) for position in range(request.first, request.last + 1))
