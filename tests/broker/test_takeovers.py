"""Two brokers of one bundle, where one does not know yet that it was taken over, or does not know what it committed:
nothing is done twice, and nothing behind the other's back."""

import errno

import pytest

from pulsar_spark.broker.bundle import split
from pulsar_spark.broker.bundle.load_bundle import load_bundle
from pulsar_spark.broker.bundle.split import split_bundle
from pulsar_spark.broker.requests.request import requests_of
from pulsar_spark.broker.round.rounds import Rounds
from pulsar_spark.errors import BrokerFenced
from pulsar_spark.storage.cursor_ledger.committed_rounds import read_round
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.topics.bundles import layouts_of
from pulsar_spark.table_specs import REQUESTS
from tests.support.faults import faults
from tests.support.requests import On
from tests.support.spark_engine import SparkEngine

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)


def another(engine: SparkEngine) -> Rounds:
    """A broker that takes the bundle over."""
    rounds = Rounds(load_bundle(engine.layout), engine.planner.run, lambda: engine.now_ms * 1000, "another")
    rounds.take_over()
    return rounds


def permits(engine: SparkEngine) -> int:
    engine.committed()
    return engine.state(TOPIC, -1, "s")["consumers"]["A"]["permits"]


@pytest.mark.local_disk
def test_a_broker_that_was_taken_over_while_its_disk_failed_stops(engine):
    """It reads the bundle again, which is another's by now."""
    engine.round([ON.subscribe("A"), ON.flow("A", 1)], 0)
    with faults(first=1, count=1000), pytest.raises(OSError):
        engine.round([ON.flow("A", 1)], 1)
    another(engine)
    with pytest.raises(BrokerFenced, match="another broker serves this bundle"):
        engine.round([ON.flow("A", 1)], 2)
    ledger = engine.layout.broker_table("cursor_ledger")
    (last,) = read_round(ledger, TableLog(ledger).latest(), ["round"]).to_pylist()
    assert last["broker_id"] == "another"


def test_what_a_round_did_that_was_not_heard_of_is_not_done_again(engine, monkeypatch):
    rows = [ON.subscribe("A"), ON.flow("A", 5)]
    requests = requests_of(REQUESTS.rows(rows), 1)
    append = engine.rounds.tables.cursor_ledger.append_fenced

    def append_and_fail(*arguments) -> None:
        append(*arguments)
        raise OSError(errno.EIO, "the answer is lost")

    with monkeypatch.context() as failing, pytest.raises(OSError):
        failing.setattr(engine.rounds.tables.cursor_ledger, "append_fenced", append_and_fail)
        engine.rounds.run(requests, 1)
    engine.rounds.run(requests, 1)
    assert engine.rounds.bundle.requests_version == 1 and permits(engine) == 5


def test_a_broker_commits_nothing_while_its_bundle_is_split(engine, monkeypatch):
    """What it did behind the clone the upper part would not know."""
    engine.round([ON.subscribe("A"), ON.flow("A", 1)], 0)
    clone, tried = split._clone, []

    def clone_and_try(*layouts) -> None:
        clone(*layouts)
        with pytest.raises(BrokerFenced):
            engine.round([ON.flow("A", 1)], 1)
        tried.append(True)

    monkeypatch.setattr(split, "_clone", clone_and_try)
    split_bundle(engine.layout)
    assert tried


def test_what_a_bundle_says_after_a_split_is_of_its_own_topics_alone(engine):
    """Its first round says all there is, so that nothing of the other part is left before it."""
    names = [f"persistent://public/default/t{number}" for number in range(8)]
    for name in names:
        engine.create_topic(name)
        engine.round([On(name).subscribe("A"), On(name).flow("A", 1)], 0)
    served = split_bundle(engine.layout)
    found = [{row["topic"] for row in read_latest(each).cursors.values()} for each in layouts_of(engine.layout)]
    assert found == [{name for name in names if part.holds(name)} for part in served] and all(found)
