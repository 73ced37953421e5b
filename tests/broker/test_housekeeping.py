"""A broker keeps house in the background unless it is told not to, for itself and nobody else, and stops when it is
told."""

import inspect
import json
import logging
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import pulsar_spark as pulsar
from pulsar_spark.broker.committing import snapshots
from pulsar_spark.broker.committing.commit import REQUESTS_UNSAID
from pulsar_spark.broker.runner import Broker
from pulsar_spark.broker.service.process import run_broker
from pulsar_spark.broker.upkeep import housekeeping
from pulsar_spark.broker.upkeep.housekeeping import Housekeeping
from pulsar_spark.cli import app
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.delta import checkpoints, table_parts
from pulsar_spark.storage.delta.checkpoints import make_checkpoint
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import dataset_of, open_table
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes.lease import BundleLease
from pulsar_spark.storage.topics.topics import delete_topic, read_topic
from pulsar_spark.storage.upkeep import joining, shortening
from pulsar_spark.storage.upkeep.housekeeping import Done, Needs, keep_house
from pulsar_spark.storage.upkeep.joining import files_of, groups_of, join
from pulsar_spark.storage.upkeep.kept_tables import Kept
from pulsar_spark.storage.upkeep.shortening import shorten
from pulsar_spark.storage.upkeep.upkeep import remove_left
from pulsar_spark.table_specs import REQUESTS
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.faults import faults
from tests.support.requests import On
from tests.support.spark_engine import SparkEngine, new_engine
from tests.support.waiting import eventually

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)


@pytest.fixture(autouse=True)
def hurried(monkeypatch):
    """Few files become one, often, and at once."""
    monkeypatch.setattr(joining, "FILES", 4)
    monkeypatch.setattr(checkpoints, "CHECKPOINT_EVERY", 10)
    monkeypatch.setattr(shortening, "CHOSEN_SECONDS", 0)
    for name, value in {"LOOK_SECONDS": 0.05, "COMMITS": 8, "IDLE_SECONDS": 0.2, "REST": 0}.items():
        monkeypatch.setattr(housekeeping, name, value)


@pytest.fixture
def engine(tmp_path) -> SparkEngine:
    engine = new_engine(None, tmp_path)
    engine.create_topic(TOPIC)
    for number in range(8):
        engine.publish(TOPIC, -1, [1], payload=b"%d" % number)
        engine.round([ON.subscribe("A"), ON.flow("A", 1)], number)
    engine.restart(9000)
    return engine


def files(engine: SparkEngine) -> int:
    return len(open_table(read_topic(engine.layout, TOPIC).path).file_uris())


def housekeeper(engine: SparkEngine) -> Housekeeping:
    """Of a broker that has the lease."""
    assert BundleLease(engine.layout, "me").take()
    return Housekeeping(engine.layout, "me", engine.rounds.note_housekeeping)


def test_clients_go_on_while_the_broker_keeps_house_and_it_says_what_it_did(tmp_path, caplog):
    root = tmp_path / "root"
    with (
        caplog.at_level(logging.WARNING, "pulsar_spark.broker.upkeep.housekeeping"),
        PlainBroker(root, housekeeping=True) as broker,
    ):
        client = pulsar.Client(f"delta:{root}")
        consumer = client.subscribe("t", "s", initial_position=pulsar.InitialPosition.Earliest)
        producer, received = client.create_producer("t"), []
        for number in range(40):
            producer.send(b"%d" % number)
            if number % 2:
                for message in (consumer.receive(60_000), consumer.receive(60_000)):
                    received.append(message.data())
                    consumer.acknowledge(message)
        topic = read_topic(Layout(root), TOPIC).path
        eventually(lambda: len(open_table(topic).file_uris()) <= 20)
        producer.send(b"40")
        assert (received, consumer.receive(60_000).data()) == ([b"%d" % number for number in range(40)], b"40")

        def told() -> list[dict]:
            said = CliRunner().invoke(
                app, ["maintain", "housekeeping", "--root", str(root), "--json"], catch_exceptions=False
            )
            return json.loads(said.output)

        eventually(lambda: any((row["table"], row["what"]) == (TOPIC, "files_joined") for row in told()))
        assert {row["what"] for row in told()} <= {"files_joined"}, "nothing is old enough to go"
        reader = client.create_reader("t", pulsar.MessageId.earliest)
        assert [reader.read_next(60_000).data() for _ in range(41)] == [b"%d" % number for number in range(41)]
        client.close()
        assert broker.failure is None
    assert [record.message for record in caplog.records] == []


def test_a_broker_keeps_house_unless_it_is_told_not_to(tmp_path):
    with PlainBroker(tmp_path / "root") as broker:
        assert broker._side_work.housekeeping is None
    with PlainBroker(tmp_path / "root", housekeeping=True) as broker:
        eventually(broker._side_work.housekeeping.is_ours)
    for function in (Broker, run_broker):
        assert inspect.signature(function).parameters["housekeeping"].default is True


def test_who_was_taken_over_does_nothing(engine):
    keeper = housekeeper(engine)
    BundleLease(engine.layout, "me").release()
    assert BundleLease(engine.layout, "other").take()
    before = [TableLog(path).latest() for path in _tables(engine)]
    keeper.look()
    assert not keeper.is_ours() and [TableLog(path).latest() for path in _tables(engine)] == before


def _tables(engine: SparkEngine) -> list[Path]:
    names = ("requests", "cursor_ledger", "ledgers")
    return [*(engine.layout.broker_table(name) for name in names), read_topic(engine.layout, TOPIC).path]


def test_a_full_disk_is_said_once_and_it_is_tried_again(engine, caplog, monkeypatch):
    monkeypatch.setattr(housekeeping, "COMMITS", 0)
    keeper, before = housekeeper(engine), dataset_of(read_topic(engine.layout, TOPIC).path).count_rows()
    for _ in range(2):
        with caplog.at_level(logging.WARNING), faults(first=1, count=1000):
            keeper.look()
    said = [record.message for record in caplog.records if "housekeeping" in record.message]
    assert len(said) == len(_tables(engine)) and all(
        "failed and is tried again" in line and "No space left" in line for line in said
    )
    assert files(engine) == 8 and len([*read_topic(engine.layout, TOPIC).path.glob("*.parquet")]) == 8
    keeper.look()
    assert files(engine) == 2 and dataset_of(read_topic(engine.layout, TOPIC).path).count_rows() == before
    engine.restart(10_000)
    assert engine.rounds.bundle.topic(TOPIC).end_position(-1) == 8


def test_on_a_full_disk_what_is_to_go_goes(engine):
    """It needs no room, and makes some."""
    path = engine.layout.broker_table("requests")
    AppendTable(path).append(REQUESTS.rows([ON.flow("A", 1)]))
    make_checkpoint(path)
    assert sum(shorten(path, 2**40, time.time() + 2))
    for _ in range(8):
        AppendTable(path).append(REQUESTS.rows([ON.flow("A", 1)]))
    opened = open_table(path)
    assert sum(map(sum, join(path, opened, groups_of(files_of(opened))))) == 8
    make_checkpoint(path)
    there, log = len([*path.glob("*.parquet")]), len(TableLog(path).versions())
    steps = keep_house(
        path,
        lambda: Needs(2**40, waiting=0),
        history_seconds=10**6,
        time_travel_seconds=0,
        promises=True,
        now=lambda: time.time() + 2,
    )
    done = Counter()
    with faults(first=1, count=1000), pytest.raises(OSError, match="No space left"):
        for step in steps:
            done[step.what] += step.number
    assert done == {"log_shortened": log - 1, "files_removed": 8} and len([*path.glob("*.parquet")]) == there - 8


LIMITED = """
import logging, resource, sys
from pulsar_spark.broker.upkeep.housekeeping import Housekeeping
from pulsar_spark.storage.upkeep import joining
from pulsar_spark.storage.layout import Layout

logging.basicConfig(level=logging.WARNING)
joining.FILES = 4
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
Housekeeping(Layout(sys.argv[1]), "me").look()
"""


def test_what_the_system_lets_nobody_write_loses_nothing(engine):
    """The limit is the system's, so that native code meets it too: commits fit, data files do not."""
    topic, keeper = read_topic(engine.layout, TOPIC).path, housekeeper(engine)
    before, there = dataset_of(topic).to_table().sort_by("publish_id"), {*topic.glob("*.parquet")}
    command = [sys.executable, "-c", LIMITED, str(engine.layout.root)]
    limited = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert limited.returncode == 0, limited.stderr
    said = [line for line in limited.stderr.splitlines() if f"housekeeping of {TOPIC} failed" in line]
    assert len(said) == 1 and "File too large" in said[0]
    assert files(engine) == 8 and {*topic.glob("*.parquet")} == there
    keeper.look()
    assert files(engine) == 2 and dataset_of(topic).to_table().sort_by("publish_id") == before


def test_one_table_that_fails_holds_up_no_other(engine, caplog):
    keeper = housekeeper(engine)
    (engine.layout.broker_table("ledgers") / "_delta_log" / f"{3:020d}.json").write_text("{")
    with caplog.at_level(logging.WARNING):
        keeper.look()
    assert [record.args[0] for record in caplog.records if "is tried again" in record.message] == ["ledgers"]
    assert files(engine) == 2


@pytest.mark.parametrize("failing", ["read_latest", "kept_tables", "keep_house", "TableLog"])
def test_whatever_fails_once_it_goes_on_afterwards(engine, caplog, monkeypatch, failing):
    keeper, working, failures = housekeeper(engine), getattr(housekeeping, failing), []

    def fails(*arguments, **options):
        failures.append(failing)
        raise pa.ArrowInvalid("not now")

    monkeypatch.setattr(housekeeping, "AGAIN_SECONDS", 0)
    monkeypatch.setattr(housekeeping, failing, fails)
    with caplog.at_level(logging.WARNING):
        keeper.start()
        eventually(lambda: len(failures) > 4)
        monkeypatch.setattr(housekeeping, failing, working)
        eventually(lambda: files(engine) == 2)
    keeper.close()
    said = [record for record in caplog.records if "not now" in record.getMessage()]
    assert len({record.args[0] for record in said}) == len(said) > 0, "once for each table"
    assert all(record.exc_info for record in said), "nobody expected it"


def test_each_look_gives_memory_back_also_where_nothing_can(engine, monkeypatch):
    given = []
    monkeypatch.setattr(housekeeping, "give_memory_back", lambda: given.append(1))
    keeper = housekeeper(engine)
    keeper.start()
    eventually(lambda: len(given) > 1)
    keeper.close()
    monkeypatch.undo()
    monkeypatch.setattr(table_parts.ctypes, "CDLL", lambda name: object())
    assert table_parts.give_memory_back() is None


def test_topics_that_were_deleted_are_forgotten(engine):
    keeper, path = housekeeper(engine), read_topic(engine.layout, TOPIC).path
    keeper.look()
    assert path in keeper._next_look
    delete_topic(engine.layout, TOPIC)
    engine.round([], 10_000)
    keeper.look()
    assert path not in keeper._next_look and keeper._next_look


def test_it_rests_and_ends_in_the_middle_when_it_is_told(engine, monkeypatch):
    steps = []

    def endless(table: Path, *_, **options) -> Iterator[Done]:
        while True:
            steps.append(table)
            yield Done(table, "files_joined", 1)

    monkeypatch.setattr(housekeeping, "REST", 10**9)
    monkeypatch.setattr(housekeeping, "keep_house", endless)
    keeper = housekeeper(engine)
    keeper.start()
    eventually(lambda: steps)
    keeper.close()
    assert not keeper._background._thread.is_alive() and steps == [engine.layout.broker_table("requests")]


def test_it_rests_the_shorter_the_more_waits(engine, monkeypatch):
    rests, keeper = [], housekeeper(engine)
    path = engine.layout.broker_table("requests")
    monkeypatch.setattr(housekeeping, "REST", 9)
    monkeypatch.setattr(keeper, "_step_by_step", lambda kept, done, rest: rests.append(rest) or True)
    kept = Kept("requests", path, None, 0, 0)
    newest = TableLog(path).latest()
    for behind in (housekeeping.COMMITS, housekeeping.BEHIND, 9 * housekeeping.BEHIND):
        keeper._next_look[path] = newest - behind + housekeeping.COMMITS, 0.0
        keeper._look_at(kept)
    assert rests == [9, 9, 1]


def test_what_it_did_is_in_the_next_round_and_makes_none_by_itself(engine):
    before = engine.rounds.bundle.round
    engine.rounds.note_housekeeping(TOPIC, "files_joined", 64)
    engine.run([], 10_000)
    assert engine.rounds.bundle.round == before
    engine.run([ON.flow("A", 1)], 11_000)
    engine.run([ON.flow("A", 1)], 12_000)
    rows = dataset_of(engine.layout.broker_table("cursor_ledger")).to_table().to_pylist()
    said = [row for row in rows if row["kind"] == "housekeeping"]
    assert [(row["topic"], row["status"], row["entries"], row["round"]) for row in said] == [
        (TOPIC, "files_joined", 64, before + 1)
    ]


def test_that_signs_of_life_are_consumed_is_said_now_and_then(engine):
    before, version = engine.rounds.bundle.round, engine.rounds.bundle.requests_version
    engine.rounds.run([], version + REQUESTS_UNSAID - 1)
    assert engine.rounds.bundle.round == before
    engine.rounds.run([], version + REQUESTS_UNSAID)
    engine.rounds.run([], version + REQUESTS_UNSAID + 1)
    assert engine.rounds.bundle.round == before + 1
    assert read_latest(engine.layout, "round").round_row["requests_version"] == version + REQUESTS_UNSAID


def shortened(path: Path) -> None:
    make_checkpoint(path)
    assert sum(shorten(path, TableLog(path).latest(), 2**40)) > 0


def without_files(path: Path) -> None:
    """Its files were joined long ago, and nothing has come since for which a checkpoint was due."""
    opened, before = open_table(path), TableLog(path).latest()
    assert list(join(path, opened, [list(files_of(opened))]))
    assert remove_left(path, range(before + 1, TableLog(path).latest() + 1)) and TableLog(path).has(1)


@pytest.mark.parametrize("consumer_type", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared])
@pytest.mark.parametrize("lease_ends", [True, False])
@pytest.mark.parametrize("kept", [shortened, without_files])
def test_a_client_that_was_away_longer_than_the_log_is_kept_begins_again(
    only_in_files, tmp_path, monkeypatch, kept, lease_ends, consumer_type
):
    """Whether or not the broker has let it go meanwhile: what it was dealt in rounds that are gone comes again."""
    monkeypatch.setattr(snapshots, "SNAPSHOT_EVERY", 1)  # behind which a log may begin
    root = tmp_path / "root"
    with PlainBroker(root) as broker:
        client = pulsar.Client(f"delta:{root}")
        earliest = pulsar.InitialPosition.Earliest
        consumer = client.subscribe("t", "s", consumer_type=consumer_type, initial_position=earliest)
        producer = client.create_producer("t")
        producer.send(b"0")
        assert consumer.receive(60_000).data() == b"0"
        path = Layout(root).broker_table("cursor_ledger")
        (consumer_id,) = broker.cursor("t", "s").consumers
        rounds = client._channel._first._rounds
        with broker.paused():
            eventually(lambda: rounds.seen == broker.rounds.bundle.version and not rounds.has_news)
            seen, rounds.seen = rounds.seen, 2**40
            if lease_ends:
                broker.end_lease(consumer_id)
        sent = [b"0", b"1"] if lease_ends else [b"0", b"away", b"1"]
        if not lease_ends:
            producer.send(b"away")
            eventually(lambda: broker.cursor("t", "s").read_position == 2)
        with broker.paused():
            kept(path)
            rounds.seen = seen if kept is without_files else 0
        producer.send(b"1")
        received = [consumer.receive(60_000) for _ in sent]
        assert [message.data() for message in received] == sent, "it subscribed again"
        assert {message.redelivery_count() for message in received} == {0}
        client.close()
