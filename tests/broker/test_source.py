"""A micro-batch is a round: what the query's source says, what Spark shows of it, and a broker that ends by itself."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming import StreamingQueryListener

import pulsar_spark as pulsar
from pulsar_spark.broker.runner import Broker
from pulsar_spark.broker.service import micro_batches, source
from pulsar_spark.broker.service.source import Feed, Moved, News, RoundReader, register_source
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.announcements import announcements_folder
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.requests import On
from tests.support.spark_engine import new_engine
from tests.support.waiting import eventually

PROJECT = Path(__file__).parents[2]
TOPIC = "persistent://public/default/t"


def test_a_feed_answers_with_other_offsets_until_the_broker_stops(monkeypatch):
    monkeypatch.setattr(source, "PATIENCE_SECONDS", 0.01)
    answers = [News([Moved("requests", 3, 5)], {"round": 7}), None, News([Moved("clock", 1, 1)], {"round": 7})]
    stopping = threading.Event()
    feed = Feed(lambda: answers.pop(0), stopping)
    try:
        reader = RoundReader(feed.path)
        rows, first = reader.read(reader.initialOffset())
        assert list(rows) == [("requests", 3, 5)] and first == {"round": 7, "number": 1}
        rows, same = reader.read(first)
        assert list(rows) == [] and same == first, "an offset that stays costs no micro-batch"
        rows, second = reader.read(first)
        assert list(rows) == [("clock", 1, 1)] and second == {"round": 7, "number": 2}
        stopping.set()
        rows, last = reader.read(second)
        assert list(rows) == [] and last == second
    finally:
        feed.close()


def test_a_reader_whose_feed_is_gone_has_nothing_to_say(monkeypatch):
    monkeypatch.setattr(source, "PATIENCE_SECONDS", 0.01)
    feed = Feed(lambda: None, threading.Event())
    feed.close()
    rows, offset = RoundReader(feed.path).read({"round": 3})
    assert list(rows) == [] and offset == {"round": 3}


@pytest.mark.parametrize(
    "error, is_said", [("EOFError()", False), ("BrokenPipeError(32, 'Broken pipe')", False), ("KeyError('x')", True)]
)
def test_spark_s_process_says_nothing_when_its_query_has_ended(error, is_said):
    """Its line to Spark broke before Spark ended it, as where the machine is busy."""
    program = (
        "from pulsar_spark.broker.service.source import RoundSource\n"
        "RoundSource({'path': 'nowhere'}).simpleStreamReader(None)\n"
        f"raise {error}"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 1 and ("Traceback" in ended.stderr) == is_said and bool(ended.stderr) == is_said


def commits(layout: Layout) -> int:
    return TableLog(layout.broker_table("cursor_ledger")).latest()


def test_a_broker_for_now_ends_when_nothing_is_left_and_nobody_is_connected(tmp_path):
    engine = new_engine(None, tmp_path / "root")
    engine.create_topic(TOPIC)
    engine.publish(TOPIC, -1, [1, 1])
    pulsar.Client(f"delta:{engine.layout.root}").close()
    on = On(TOPIC)
    engine.round([on.subscribe("c", lease_ms=2000), on.flow("c", 10)], 0)
    with PlainBroker(engine.layout.root, available_now=True) as broker:
        eventually(lambda: broker.rounds.bundle.leases)
        assert not broker.is_stopping, "somebody is connected"
        eventually(lambda: broker.is_stopping)
    bundle = broker.rounds.bundle
    assert [len(cursor.consumers) for cursor in bundle.cursors.values()] == [0]
    assert bundle.topics[TOPIC].end_position(-1) == 2 and not bundle.has_news()


class EndedUnderIt:
    """A micro-batch's rows when its query is being ended: Spark refuses to read them."""

    @property
    def _jdf(self):
        raise PySparkException("the job was cancelled")


def test_a_micro_batch_that_begins_while_the_broker_stops_asks_nothing_of_spark_and_is_no_failure(tmp_path):
    with PlainBroker(tmp_path / "root") as broker:
        broker.stop()
        broker._batches.run(EndedUnderIt(), 1)
    assert broker.failure is None


@pytest.mark.parametrize("is_running", [True, False])
def test_what_a_batch_meets_while_spark_is_stopped_is_no_failure_of_the_broker(tmp_path, monkeypatch, is_running):
    """A context that is being stopped still answers, with errors of its own that no rule can foresee."""

    def count(rows):
        raise RuntimeError("the plan's session is null")

    with PlainBroker(tmp_path / "root") as broker, broker.paused():
        monkeypatch.setattr(micro_batches, "count_rows", count)
        monkeypatch.setattr(micro_batches, "is_running", lambda spark: is_running)
        monkeypatch.setattr(broker._batches, "_run_open", lambda: None)
        monkeypatch.setattr(broker._batches, "_spark", object())
        broker._batches.run(None, 0)
        monkeypatch.undo()
        failure, broker.failure = broker.failure, None
        assert (str(failure) if is_running else failure) == ("the plan's session is null" if is_running else None)


def test_a_micro_batch_runs_rounds_until_it_was_open_for_long_enough(tmp_path, monkeypatch):
    """Its offset and rows say what the rounds before it were for, each log once."""
    engine = new_engine(None, tmp_path / "root")
    engine.create_topic(TOPIC)
    batches = Broker(None, engine.layout.root)._batches
    batches.rounds = engine.rounds
    began, look, publishes = engine.rounds.bundle.round, batches.look, iter(range(4))

    def publish_and_look() -> list:
        if next(publishes) == 2:
            monkeypatch.setattr(micro_batches, "OPEN_SECONDS", 0.0)
        engine.publish(TOPIC, -1, [1])
        return look()

    monkeypatch.setattr(batches, "look", publish_and_look)
    batches.run(None, 0)
    assert engine.rounds.bundle.topics[TOPIC].end_position(-1) == 3
    moved, offset = batches.take_news()
    assert (TOPIC, 0, 3) in moved and offset["round"] == engine.rounds.bundle.round > began
    assert [each.log for each in batches.take_news().moved] == ["clock"], "no round since"


@pytest.mark.parametrize("name", ["announced", "requests/_delta_log"])
def test_a_request_or_an_announcement_ends_the_pause_between_looks(tmp_path, monkeypatch, name):
    monkeypatch.setattr(micro_batches, "WATCHED_LOOK_SECONDS", 600)
    layout = Layout(tmp_path / "root")
    broker = PlainBroker(layout.root)
    announcements_folder(layout).mkdir(parents=True)
    with broker:
        if broker._batches._watch() is None:
            pytest.skip("nobody reports files here")
        looked, looks = threading.Event(), broker._batches.look
        monkeypatch.setattr(broker._batches, "look", lambda: looked.set() or looks())
        (layout.bundle_folder() / name / "x").touch()
        assert looked.wait(60)
        broker.stop()
        (layout.bundle_folder() / name / "y").touch()


class Told(StreamingQueryListener):
    def __init__(self):
        self.progress = []

    def onQueryStarted(self, event):
        pass

    def onQueryProgress(self, event):
        self.progress.append(event.progress)

    def onQueryTerminated(self, event):
        pass


def test_spark_shows_rounds(spark, tmp_path, monkeypatch):
    """Progress says which logs moved, and up to which round."""
    monkeypatch.setattr(micro_batches, "OPEN_SECONDS", 0.0)
    layout, told = Layout(tmp_path / "root"), Told()
    rounds = []
    session = spark.newSession()
    session.streams.addListener(told)
    try:
        with Broker(
            session, layout.root, on_round=lambda result, _: rounds.append(result), housekeeping=False
        ) as broker:
            client = pulsar.Client(f"delta:{layout.root}")
            producer = client.create_producer("t")
            consumer = client.subscribe("t", "s", initial_position=pulsar.InitialPosition.Earliest)
            for number in range(5):
                producer.send(b"%d" % number)
                message = consumer.receive(timeout_millis=60_000)
                assert message.data() == b"%d" % number
                consumer.acknowledge(message)
            client.close()
            eventually(
                lambda: broker.rounds.bundle.requests_version == TableLog(layout.broker_table("requests")).latest(), 60
            )

            def shown() -> list:
                return [each for each in broker._stream._query.recentProgress if each["numInputRows"]]

            eventually(lambda: len(shown()) >= len(rounds))
            batches = shown()
    finally:
        session.streams.removeListener(told)
    assert len(rounds) == commits(layout) - 1, "the first commit takes the bundle over"
    assert len(batches) <= len(rounds) + 10, "hardly a round found nothing to commit"
    offsets = [json.loads(each["sources"][0]["endOffset"]) for each in batches]
    assert all(
        earlier["requests"] <= later["requests"] and earlier["clock"] <= later["clock"]
        for earlier, later in zip(offsets, offsets[1:])
    )
    assert offsets[-1]["requests"] <= TableLog(layout.broker_table("requests")).latest()
    eventually(lambda: sum(progress.numInputRows for progress in told.progress))


def test_a_session_made_from_one_that_knows_the_format_knows_it_by_another_name(spark):
    first = spark.newSession()
    second = first.newSession()
    names = [register_source(session) for session in (first, second)]
    for session, name in zip((first, second), names):
        assert session.readStream.format(name).option("path", "nowhere").load().schema.fieldNames()[0] == "log"
