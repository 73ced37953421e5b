"""The consume job without Spark: options that are wrong before a session starts, errors of a transformation, and the
progress within a delivery."""

import contextlib
import logging
from types import SimpleNamespace

import pytest

import pulsar_spark as pulsar
from pulsar_spark.cli import delivery_progress
from pulsar_spark.cli.delivery_progress import LOG_SECONDS, await_termination
from pulsar_spark.errors import InvalidConfiguration, OperationNotSupported
from pulsar_spark.frames.consuming import call
from pulsar_spark.jobs import consume
from pulsar_spark.storage.spark import spark_root
from pulsar_spark.storage.topics.letter_topics import letter_topic
from pulsar_spark.testing.plain_broker import PlainBroker
from pulsar_spark.views.dead_letters import count_letters
from tests.frames.plain import positions

GIVEN = ["--root", "r", "--topic", "t", "--subscription", "s"]


@pytest.fixture
def no_spark(monkeypatch):
    monkeypatch.setattr(consume, "spark_session", lambda *_, **__: pytest.fail("Spark was started"))


@pytest.mark.parametrize(
    "options, words",
    [
        (["--target", "orders"], "target 'orders' is neither a path nor a table"),
        (["--target", "./raw", "--merge-on", ""], "merge_on"),
        (["--target", "./raw", "--dead-letter", "0"], "--dead-letter 0: give a number above 0"),
        (["--target", "./raw", "--transform", "nowhere:clean"], "--transform 'nowhere:clean': give module:function"),
        (["--target", "./raw", "--transform", "json"], "--transform 'json': give module:function"),
        (["--target", "./raw", "--transform", "json:__name__"], "--transform 'json:__name__' is no function"),
    ],
)
def test_wrong_options_are_refused_before_spark_starts(no_spark, options, words):
    with pytest.raises(InvalidConfiguration, match=words):
        consume.main([*GIVEN, *options])


def test_a_target_in_a_store_is_refused_before_spark_starts(no_spark):
    with pytest.raises(OperationNotSupported, match="object store"):
        consume.main([*GIVEN, "--target", "s3://bucket/raw"])


def test_a_transformation_may_lie_in_the_working_folder(no_spark, monkeypatch, tmp_path):
    (tmp_path / "cleaning_of_a_test.py").write_text("def clean(messages):\n    return messages\n")
    monkeypatch.chdir(tmp_path)
    given = consume.parse_arguments([*GIVEN, "--target", "a.b", "--transform", "cleaning_of_a_test:clean"])
    assert consume.load_function("--transform", given.transform)(7) == 7


def strict(messages):
    """A transformation that refuses all."""
    raise ValueError(f"{len(messages)} bad messages")


@pytest.fixture
def broker(tmp_path, monkeypatch):
    """With three messages, for a job without Spark."""
    monkeypatch.setattr(spark_root, "check_delta", lambda spark: None)
    monkeypatch.setattr(call.Caller, "_read", lambda self, delivery, *_: positions(delivery.exact()))
    monkeypatch.setattr(consume, "spark_session", lambda *_, **__: SimpleNamespace())
    with PlainBroker(tmp_path / "root") as broker:
        with contextlib.closing(pulsar.Client(f"delta:{broker.layout.root}")) as client:
            producer = client.create_producer("t")
            for number in range(3):
                producer.send(b"%d" % number)
        yield broker


def run_strict(broker, *options):
    given = ["--root", str(broker.layout.root), *GIVEN[2:], "--target", "./raw", "--available-now"]
    consume.main([*given, "--transform", f"{__name__}:strict", *options])


def test_an_error_of_the_transformation_names_it(broker):
    with pytest.raises(ValueError, match="3 bad messages") as raised:
        run_strict(broker)
    (note,) = raised.value.__notes__
    assert f"transform='{__name__}:strict'" in note and "/raw'" in note


@pytest.mark.long
def test_what_a_transformation_refuses_too_often_dies(broker):
    for _ in range(2):
        with pytest.raises(ValueError, match="3 bad messages"):
            run_strict(broker, "--dead-letter", "1")
    run_strict(broker, "--dead-letter", "1")
    letters = letter_topic(broker.layout, "t", "s")
    assert letters is not None
    assert sum(row["letters"] for row in count_letters(broker.layout, letters)) == 3


class Consumption:
    """Ends when its *deliveries*, one a look, are over."""

    def __init__(self, *deliveries):
        self._left = [None, *deliveries]
        self.totals = {"messages": 0}
        self.current_delivery = None

    def await_termination(self, timeout):
        assert timeout > 0
        if self._left:
            self.current_delivery = self._left.pop(0)
            return False
        return True


class Tracker:
    def getActiveStageIds(self):
        return [1, 2, 3]

    def getStageInfo(self, stage):
        return None if stage == 3 else SimpleNamespace(numTasks=4, numCompletedTasks=stage)


def test_a_long_delivery_is_logged_each_minute(caplog):
    """With what Spark has done of it; a delivery of less than a minute is not."""
    caplog.set_level(logging.INFO, delivery_progress.log.name)
    spark = SimpleNamespace(_sc=True, sparkContext=SimpleNamespace(statusTracker=Tracker))
    quick, long = (SimpleNamespace(messages=n, subscription="s", topic="t") for n in (5, 4_000_000))
    clock = iter(float(n) * LOG_SECONDS / 2 for n in range(100))
    await_termination(Consumption(quick, quick, long, long, long, long, long), spark, lambda: next(clock))
    assert [record.getMessage() for record in caplog.records] == [
        "s of t: writing 4,000,000 messages for 60 s, 3 of 8 tasks of this step done",
        "s of t: writing 4,000,000 messages for 2 min, 3 of 8 tasks of this step done",
    ]


def test_through_spark_connect_only_messages_are_counted():
    assert delivery_progress.tasks(SimpleNamespace()) == (0, 0)
