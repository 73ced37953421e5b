"""Brokers share the bundles of a root: one that comes gets its share, what one that is killed had is taken over."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from unittest.mock import Mock

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.broker.bundle.split import split_bundle
from pulsar_spark.broker.service import process, shared
from pulsar_spark.broker.service.shared import Shared
from pulsar_spark.errors import CorruptState
from pulsar_spark.protocol.topics.bundles import WHOLE, quotas, share
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import BUNDLES, Layout
from pulsar_spark.storage.topics.bundles import layout_of, layouts_of
from pulsar_spark.storage.topics.topics import read_topic
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.broker.sharing_broker import sharing
from tests.broker.test_bundles import topics_in
from tests.support.waiting import eventually


@pytest.fixture
def four(root):
    """A root of four bundles, and a topic in each."""
    for _ in range(2):
        for layout in layouts_of(Layout(root)):
            split_bundle(layout)
    halves = [quarter for half in WHOLE.split() for quarter in half.split()]
    return root, [name for quarter in halves for name in topics_in(quarter)]


def served(root) -> dict[str, int]:
    found = [each["broker"] for each in Admin(f"delta:{root}").bundles()]
    return {broker: found.count(broker) for broker in found if broker}


@pytest.mark.parametrize("bundles", [1, 2, 3, 7])
@pytest.mark.parametrize("brokers", [1, 2, 3, 5])
def test_however_they_come_all_is_served_evenly_and_then_nothing_changes(bundles, brokers):
    names = [f"b{number}" for number in range(brokers)]
    held: dict[str, list[str]] = {}
    free = [str(number) for number in range(bundles)]
    changes = 0
    for come in range(1, brokers + 1):
        held |= {name: held.get(name, []) for name in names[:come]}
        is_settled = False
        while not is_settled:
            is_settled = True
            for me in names[:come]:
                decided = share(me, held, len(free))
                for bundle in decided.give_up:
                    held[me].remove(bundle), free.append(bundle)
                for _ in range(decided.take):
                    held[me].append(free.pop())
                changes += len(decided.give_up)
                is_settled &= not decided.give_up and not decided.take
        counts = [len(each) for each in held.values()]
        assert sum(counts) == bundles and max(counts) - min(counts) <= 1
        assert {name: len(each) for name, each in held.items()} == quotas(held, bundles)
    assert changes <= bundles * brokers


def test_who_comes_gets_a_share_and_who_goes_gives_it_back(four):
    root, topics = four
    with sharing(root) as first, closing(pulsar.Client(f"delta:{root}")) as client:
        consumer = client.subscribe(topics, "s")
        producers = {name: client.create_producer(name) for name in topics}
        assert served(root) == {first.broker_id: 4}
        sent, received = set(), []

        def exchange(word: str) -> None:
            for name, producer in producers.items():
                producer.send(f"{word} {name}".encode())
                sent.add(f"{word} {name}")
            while len(received) < len(sent):
                message = consumer.receive(60_000)
                received.append(message.data().decode())
                consumer.acknowledge(message)

        exchange("alone")
        with sharing(root) as second:
            eventually(lambda: served(root) == {first.broker_id: 2, second.broker_id: 2})
            exchange("both")
        eventually(lambda: served(root) == {first.broker_id: 4})
        exchange("alone again")
        assert sorted(received) == sorted(sent)
    layout = Layout(root)
    left = layout.store.names(layout.root / BUNDLES / "brokers")
    assert not [name for name in left if name.endswith(".json")], "nothing is left of who was there"


def test_a_full_disk_ends_nothing(four, monkeypatch):
    root, _ = four
    with sharing(root) as alone:
        eventually(lambda: served(root) == {alone.broker_id: 4})
        with monkeypatch.context() as full:
            full.setattr(shared, "layouts_of", Mock(side_effect=OSError(errno.ENOSPC, "no space")))
            eventually(lambda: shared.layouts_of.call_count >= 2)
        assert alone.failure is None and served(root) == {alone.broker_id: 4}


def test_what_a_killed_broker_served_is_taken_over_and_nothing_is_lost_or_twice(four):
    root, topics = four
    with closing(pulsar.Client(f"delta:{root}")) as client, sharing(root) as left:
        killed = subprocess.Popen([sys.executable, "-m", "tests.broker.sharing_broker", str(root)])
        try:
            eventually(lambda: sorted(served(root).values()) == [2, 2])
            consumer = client.subscribe(topics, "s", pulsar.ConsumerType.Shared)
            producers = [client.create_producer(name) for name in topics]
            received = []
            for number in range(40):
                producers[number % 4].send(b"%d" % number)
                if number == 20:
                    killed.send_signal(signal.SIGKILL)
            while len(received) < 40:
                message = consumer.receive(60_000)
                received.append(int(message.data()))
                consumer.acknowledge(message)
        finally:
            killed.kill()
            killed.wait()
        assert sorted(received) == list(range(40))
        eventually(lambda: served(root) == {left.broker_id: 4})
        admin = Admin(f"delta:{root}")
        eventually(lambda: all(admin.stats(name)["subscriptions"]["s"]["msgBacklog"] == 0 for name in topics))
        assert len({layout_of(Layout(root), name).bundle for name in topics}) == 4


def test_a_run_until_nothing_is_left_is_of_all_bundles_and_of_what_one_asks_of_another(four):
    """A message of the first bundle dies: its letter lies in another one, whose broker is asked for a subscription."""
    root, topics = four
    letters = next(name for name in topics if name != topics[0])
    policy = pulsar.ConsumerDeadLetterPolicy(1, dead_letter_topic=letters, initial_subscription_name="read")
    with closing(pulsar.Client(f"delta:{root}")) as client:
        with sharing(root):
            consumer = client.subscribe(
                topics[0],
                "s",
                pulsar.ConsumerType.Shared,
                dead_letter_policy=policy,
                negative_ack_redelivery_delay_ms=0,
            )
            for name in topics:
                Admin(f"delta:{root}").create_subscription(name, "kept", "earliest", create=True)
            for name in topics:
                client.create_producer(name).send(name.encode())
            consumer.negative_acknowledge(consumer.receive(60_000))
            again = consumer.receive(60_000)
        with ThreadPoolExecutor() as pool:
            consumer.negative_acknowledge(again)
            letters_log = TableLog(read_topic(Layout(root), letters).path)
            before = letters_log.latest()

            def close() -> None:
                eventually(lambda: letters_log.latest() > before)
                consumer.close()

            closing_it = pool.submit(close)
            run = sharing(root, available_now=True)
            run.start()
            run.wait()
            closing_it.result(60)
    assert served(root) == {}
    stats = Admin(f"delta:{root}").stats
    assert all(stats(name)["subscriptions"]["kept"]["msgBacklog"] for name in topics)
    assert stats(letters)["subscriptions"]["read"]["msgBacklog"] == 2


@pytest.mark.local_disk
def test_a_run_until_nothing_is_left_waits_for_what_a_broker_that_is_gone_seems_to_serve(four, monkeypatch):
    """One of another machine, of which only its lease can tell; one that is there is not waited for to end."""
    root, topics = four
    monkeypatch.setattr(shared, "LEASE_SECONDS", 2.0)
    with sharing(root) as there:
        eventually(lambda: served(root) == {there.broker_id: 4})
        with sharing(root, available_now=True) as beside:
            beside.wait()
        eventually(lambda: served(root) == {there.broker_id: 4})
    with closing(pulsar.Client(f"delta:{root}")) as client:
        for name in topics:
            client.create_producer(name).send(b"m")
    for layout in layouts_of(Layout(root)):
        gone = {"broker_id": "gone", "host": "elsewhere", "pid": 1, "until": time.time() + 1.5}
        (layout.bundle_folder() / "lease.json").write_text(json.dumps(gone))
    before = [TableLog(layout.broker_table("ledgers")).latest() for layout in layouts_of(Layout(root))]
    run = sharing(root, available_now=True)
    run.start()
    run.wait()
    assert [TableLog(layout.broker_table("ledgers")).latest() for layout in layouts_of(Layout(root))] == [
        version + 1 for version in before
    ]


def test_a_run_until_nothing_is_left_ends_with_what_went_wrong(four):
    root, _ = four

    def fail(bundle: str, broker_id: str):
        raise CorruptState(f"bundle {bundle}")

    run = Shared(root, fail, available_now=True)
    run.start()
    with pytest.raises(CorruptState, match="bundle 0x"):
        run.wait()


def test_a_bundle_is_split_while_it_is_served_and_a_broker_comes(root):
    """What flows meanwhile is delivered, and all that is acknowledged is done with."""
    topics = [name for half in WHOLE.split() for name in topics_in(half)]
    with sharing(root) as first, closing(pulsar.Client(f"delta:{root}")) as client, ThreadPoolExecutor() as pool:
        consumer = client.subscribe(topics, "s", pulsar.ConsumerType.Shared)
        producers, received, is_over = [client.create_producer(name) for name in topics], set(), threading.Event()

        def receive() -> None:
            while not is_over.is_set():
                try:
                    message = consumer.receive(200)
                except pulsar.Timeout:
                    continue
                received.add(message.data())
                consumer.acknowledge(message)

        receiving, sent = pool.submit(receive), set()

        def send(word: str) -> None:
            for name, producer in zip(topics * 5, producers * 5, strict=True):
                sent.add(content := f"{word} {len(sent)} {name}".encode())
                producer.send(content)

        send("before")
        splitting = pool.submit(Admin(f"delta:{root}").split_bundle, str(WHOLE))
        send("meanwhile")
        halves = splitting.result(60)
        with sharing(root) as second:
            quarters = Admin(f"delta:{root}").split_bundle(halves[1])
            send("behind")
            eventually(lambda: sorted(served(root).values()) == [1, 2])
            assert served(root).keys() == {first.broker_id, second.broker_id}
            eventually(lambda: received >= sent)
            admin = Admin(f"delta:{root}")
            eventually(lambda: all(admin.stats(name)["subscriptions"]["s"]["msgBacklog"] == 0 for name in topics))
        is_over.set()
        receiving.result(60)
    assert [each["bundle"] for each in Admin(f"delta:{root}").bundles()] == [halves[0], *quarters]
    assert received == sent


def test_brokers_of_a_root_of_one_bundle_share_it_once_it_is_split(root):
    """One serves it, and one stands by."""
    topics = [name for half in WHOLE.split() for name in topics_in(half)]
    command = [sys.executable, "-m", "tests.broker.serving_broker", str(root)]
    brokers = [subprocess.Popen(command) for _ in range(2)]
    try:
        with closing(pulsar.Client(f"delta:{root}")) as client:
            consumer = client.subscribe(topics, "s")
            for name in topics:
                client.create_producer(name).send(name.encode())
            Admin(f"delta:{root}").split_bundle(str(WHOLE))
            eventually(lambda: sorted(served(root).values()) == [1, 1])
            found = set()
            while len(found) < 2:
                message = consumer.receive(60_000)
                found.add(message.data().decode())
                consumer.acknowledge(message)
        assert found == set(topics)
        for each in brokers:
            each.send_signal(signal.SIGTERM)
        assert [each.wait(60) for each in brokers] == [0, 0] and served(root) == {}
    finally:
        for each in brokers:
            each.kill()
            each.wait()


def test_a_bundle_that_somebody_serves_alone_is_no_share_of_his(four):
    """Else it were for him to take one more, which he does not."""
    root, _ = four
    with PlainBroker(root, bundle=layouts_of(Layout(root))[0].bundle) as alone, sharing(root) as sharer:
        eventually(lambda: served(root) == {alone.broker_id: 1, sharer.broker_id: 3})
        looked = Mock(wraps=shared.share)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shared, "share", looked)
            eventually(lambda: looked.call_count >= 3)
        assert served(root) == {alone.broker_id: 1, sharer.broker_id: 3}


@pytest.mark.parametrize("when", ["close", "make"])
def test_a_broker_that_is_told_to_stop_while_it_begins_to_share_stops(root, monkeypatch, when):
    """The root was split while it stood by."""
    shares = []

    class StandingBy(PlainBroker):
        def __init__(self, spark, root, *, bundle: str, **options):
            super().__init__(root, bundle=bundle)

        def start(self) -> bool:
            split_bundle(self.layout)
            return True

        def close(self) -> None:
            if when == "close":
                os.kill(os.getpid(), signal.SIGTERM)

    def make_share(*_: object, **options) -> Shared:
        if when == "make":
            os.kill(os.getpid(), signal.SIGTERM)
        shares.append(sharing(root))
        return shares[-1]

    monkeypatch.setattr(process, "Broker", StandingBy)
    monkeypatch.setattr(process, "Shared", make_share)
    late: list[bool] = []
    ending = threading.Timer(30, lambda: (late.append(True), shares[0].stop()))
    ending.start()
    process.run_broker(root, spark=Mock())
    ending.cancel()
    assert len(shares) == 1 and served(root) == {} and not late
