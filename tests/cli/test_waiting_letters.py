"""Letters that wait, as people see them: ``dlq waiting``, ``retry-waiting``, ``drop-waiting``, ``stats``. A real broker
answers, without Spark."""

import json
import threading

import pytest

from pulsar_spark.broker.requests.reading import read_request_batch
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.protocol.redelivery.letters import dead_letter_topic
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from tests.support.commands import say
from tests.support.requests import On
from tests.support.spark_engine import new_engine

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """Two messages of a batch and one by itself have died, and something else lies in the place of their dead letter
    topic."""
    monkeypatch.setenv("COLUMNS", "400")
    engine = new_engine(None, tmp_path / "root")
    engine.create_topic(TOPIC)
    engine.publish(TOPIC, -1, [2, 1], payload=b"the payload nobody prints")
    engine.round([ON.subscribe("A", max_redeliver_count=1, lease_ms=86_400_000), ON.flow("A", 9)], 1000)
    engine.layout.topic(parse_topic_name(dead_letter_topic(TOPIC, "s"))).write_text("a file")
    for second, asked in ((2, [ON.redeliver_all("A")]), (3, [ON.redeliver_all("A")]), (3, [])):
        engine.round(asked, 1000 * second)
    return engine


def run(engine, *arguments: str) -> str:
    return say(engine.layout.root, *arguments)


@pytest.fixture
def serving(engine):
    """A thread that does what is asked, in rounds."""
    stop = threading.Event()

    def serve():
        while not stop.wait(0.01):
            engine.rounds.run(
                *read_request_batch(engine.layout.broker_table("requests"), after=engine.rounds.bundle.requests_version)
            )

    thread = threading.Thread(target=serve)
    thread.start()
    yield engine
    stop.set()
    thread.join()


def test_what_waits_is_shown_with_its_cause(engine):
    letters = [json.loads(line) for line in run(engine, "dlq", "waiting", "--json").splitlines()]
    assert [
        (each["messages"], each["error"], each["letterTopic"], each["tries"], each["since"], each["nextTry"])
        for each in letters
    ] == [
        (
            messages,
            "NotADirectoryError",
            dead_letter_topic(TOPIC, "s"),
            1,
            "1970-01-01T00:00:03+00:00",
            "1970-01-01T00:00:04+00:00",
        )
        for messages in (2, 1)
    ]
    assert [(each["firstPosition"], each["lastPosition"], each["subscription"], each["kind"]) for each in letters] == [
        (0, 0, "s", "dead"),
        (1, 1, "s", "dead"),
    ]
    shown = run(engine, "dlq", "waiting")
    assert "NotADirectoryError" in shown
    assert "nobody prints" not in shown
    assert (
        run(engine, "dlq", "waiting", "other", "--json") == run(engine, "dlq", "waiting", "-s", "other", "--json") == ""
    )
    stats = json.loads(run(engine, "stats", TOPIC, "--json"))["subscriptions"]["s"]
    assert (stats["waitingLetters"], stats["letterlessMessages"], stats["msgBacklog"]) == (3, 0, 0)


def test_letters_are_tried_again_or_dropped(serving):
    name = json.loads(run(serving, "dlq", "waiting", "--json").splitlines()[0])["letter"]
    assert json.loads(run(serving, "dlq", "drop-waiting", "--letter", name, "--json")) == {"messages": 2}
    assert "letters of 0 messages" in run(serving, "dlq", "retry-waiting", "t", "-s", "other")
    serving.layout.topic(parse_topic_name(dead_letter_topic(TOPIC, "s"))).unlink()
    assert "letters of 1 messages" in run(serving, "dlq", "retry-waiting", "t", "-s", "s")
    assert "letters of 0 messages" in run(serving, "dlq", "drop-waiting", "--all"), "they were written behind the round"
    assert [letter.position for letter in serving.letters(TOPIC, "s")] == [1]


def test_dropping_all_must_be_said(engine):
    with pytest.raises(InvalidConfiguration, match="give a topic or a letter, or --all"):
        run(engine, "dlq", "drop-waiting")
    for command in ("retry", "drop"):
        with pytest.raises(InvalidConfiguration, match="--all"):
            run(engine, "set-aside", command)
    assert len(run(engine, "dlq", "waiting", "--json").splitlines()) == 2
