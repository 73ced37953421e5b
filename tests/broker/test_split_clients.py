"""What clients and administrators that were there before a bundle was split meet behind it."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from typer.testing import CliRunner

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.broker.bundle import other_bundles
from pulsar_spark.broker.bundle.split import split_bundle
from pulsar_spark.broker.requests.request import Request
from pulsar_spark.cli import app
from pulsar_spark.storage.delta.checkpoints import make_checkpoint
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.bundles import layouts_of
from pulsar_spark.storage.topics.topics import read_topic
from pulsar_spark.storage.upkeep import shortening
from pulsar_spark.storage.upkeep.shortening import shorten
from pulsar_spark.table_specs import REQUESTS
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.broker.test_bundles import HIGH, LOWER, both
from tests.support.waiting import eventually

EARLIEST = dict(initial_position=pulsar.InitialPosition.Earliest)


def test_a_receipt_that_is_waited_for_during_a_split_comes(root):
    """What it is for is in the table of the other bundle, whose broker carries it out."""
    with closing(pulsar.Client(f"delta:{root}")) as client, ThreadPoolExecutor() as pool:
        with PlainBroker(root):
            consumer = client.subscribe(HIGH, "s", ack_receipt_enabled=True, **EARLIEST)
            producer = client.create_producer(HIGH)
            for number in range(3):
                producer.send(b"%d" % number)
            messages = [consumer.receive(60_000) for _ in range(3)]
            consumer.acknowledge(messages[0])
        asked = TableLog(Layout(root).broker_table(REQUESTS.name))
        before = asked.latest()
        acknowledging = pool.submit(consumer.acknowledge, messages[1])
        eventually(lambda: asked.latest() > before)
        split_bundle(Layout(root))
        lower, upper = both(root)
        with lower, upper:
            acknowledging.result(60)
            eventually(lambda: upper.cursor(HIGH, "s").mark_delete == 1)
            assert consumer.receive(60_000).data() == b"2"


@pytest.mark.local_disk
def test_a_reader_that_was_there_before_reads_what_the_new_bundle_numbered(root, monkeypatch):
    """Of a log that begins later by now: then the numbering says what there is."""
    monkeypatch.setattr(shortening, "CHOSEN_SECONDS", 0)
    with closing(pulsar.Client(f"delta:{root}")) as client:
        producer = client.create_producer(HIGH)
        with PlainBroker(root) as broker:
            producer.send(b"0")
            eventually(lambda: is_numbered(broker, 1))
        shortened(root)
        reader = client.create_reader(HIGH, pulsar.MessageId.earliest)
        assert reader.read_next(60_000).data() == b"0"
        split_bundle(Layout(root))
        with both(root)[1] as upper:
            for number in (1, 2):
                producer.send(b"%d" % number)
            eventually(lambda: is_numbered(upper, 3))
        shortened(root)
        assert [reader.read_next(60_000).data() for _ in range(2)] == [b"1", b"2"]


def is_numbered(broker: PlainBroker, end: int) -> bool:
    topics = broker.rounds.bundle.topics
    return HIGH in topics and topics[HIGH].end_position(-1) == end


def shortened(root) -> None:
    path = read_topic(Layout(root), HIGH).path
    make_checkpoint(path)
    assert sum(shorten(path, TableLog(path).latest(), time.time() + 1)) > 0


def test_other_bundles_are_asked_again_after_a_while_and_what_was_asked_is_forgotten(root, monkeypatch):
    asked = []
    monkeypatch.setattr(other_bundles, "ask_others", lambda layout, requests: asked.extend(requests))
    split_bundle(Layout(root))
    wanted = Request(**dict.fromkeys(Request._fields) | {"topic": HIGH, "partition": -1, "subscription": "s"})
    with both(root)[0] as lower, lower.paused():
        rounds = lower.rounds
        for _ in range(2):
            assert rounds._of_ours([wanted]) == []
        assert asked == [wanted]
        later = rounds.bundle.now._replace(own=rounds.bundle.now.own + other_bundles.SENT_AGAIN)
        monkeypatch.setattr(rounds.bundle, "now", later)
        assert rounds._of_ours([]) == [] and not rounds._sent.sent
        rounds._of_ours([wanted])
        assert asked == [wanted, wanted]


@pytest.mark.local_disk
def test_the_status_is_of_all_bundles(root):
    split_bundle(Layout(root))
    admin = Admin(f"delta:{root}")
    assert admin.broker_status() is None
    with PlainBroker(root, bundle=layouts_of(Layout(root))[1].bundle) as upper:
        found = admin.broker_status()
        assert (found["broker_id"], found["unserved"]) == (upper.broker_id, [str(LOWER)])
        said = CliRunner().invoke(app, ["broker", "status", "--root", str(root)])
        assert said.exit_code == 3 and f"no broker serves bundle {LOWER}" in said.stdout
    assert admin.doctor() == []
