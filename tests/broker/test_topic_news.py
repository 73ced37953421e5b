"""A look asks the logs of topics that were announced, and a few others in turn, however many topics there are; what
nobody announced is found all the same."""

import errno
import os
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

import pulsar_spark as pulsar
from pulsar_spark.broker.bundle import topic_news
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.storage.delta import commits
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import MAX_FILE_NAME
from pulsar_spark.storage.topics.announcements import announce, announcement_of, announcements_folder, take_announced
from pulsar_spark.storage.topics.topics import delete_topic, read_topic
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.requests import On
from tests.support.spark_engine import SparkEngine, new_engine

MANY, IN_TURN = 12, 3
TOPICS = [f"persistent://public/default/t{number}" for number in range(MANY)]
LOOKS = -(-MANY // IN_TURN)
"""So many looks ask every topic's log."""


@pytest.fixture
def engine(tmp_path, monkeypatch) -> SparkEngine:
    """Topics that have been looked at."""
    monkeypatch.setattr(topic_news, "IN_TURN", IN_TURN)
    monkeypatch.setattr(topic_news, "A_SECOND", 0)
    engine = new_engine(None, tmp_path / "root")
    for topic in TOPICS:
        engine.create_topic(topic)
    engine.round([On(TOPICS[5]).subscribe("A"), On(TOPICS[5]).flow("A", 100)], 1)
    os.utime(engine.layout.namespace("public", "default"), (1, 1))  # long ago: nothing may have come unseen since
    engine.rounds.bundle.scan()
    return engine


@pytest.fixture
def unannounced(monkeypatch) -> None:
    """Publishers die between their commit and what they say of it."""
    monkeypatch.setattr(commits, "announce", lambda table: None)


@pytest.fixture
def asked(monkeypatch) -> list[str]:
    """The topics whose logs were asked."""
    asked, has = [], TableLog.has

    def note(log, version):
        name = log.folder.parent.name
        asked.extend([name] if name.startswith("t") else [])
        return has(log, version)

    monkeypatch.setattr(TableLog, "has", note)
    return asked


def announced(engine: SparkEngine) -> list[str]:
    return sorted(os.listdir(announcements_folder(engine.layout)))


def path(engine: SparkEngine, topic: str) -> Path:
    return read_topic(engine.layout, topic).path


def end(engine: SparkEngine, topic: str) -> int:
    return engine.rounds.bundle.topics[topic].end_position(-1)


def moved(engine: SparkEngine) -> list[str]:
    return [name for name, _ in engine.rounds.bundle.moved()]


def test_a_look_asks_what_was_announced_and_some_in_turn(engine, asked):
    engine.publish(TOPICS[5], -1, [1])
    engine.publish(TOPICS[7], -1, [1, 1])
    assert announced(engine) == ["public,default,t5", "public,default,t7"]
    asked.clear()
    assert set(moved(engine)) == {TOPICS[5], TOPICS[7]} and announced(engine) == []
    assert len(set(asked)) <= 2 + IN_TURN
    assert set(moved(engine)) == {TOPICS[5], TOPICS[7]}, "until they are numbered"
    asked.clear()
    assert len(engine.round([], 2)["deliveries"]) == 1
    assert (end(engine, TOPICS[5]), end(engine, TOPICS[7])) == (1, 2)
    assert len(set(asked)) <= 2 + IN_TURN
    seen = set()
    for _ in range(LOOKS):
        asked.clear()
        assert not engine.rounds.bundle.has_news() and len(set(asked)) <= 2 + IN_TURN
        seen.update(asked)
    assert len(seen) == MANY


def test_what_was_announced_while_nobody_looked_is_a_file_a_topic(engine):
    for _ in range(5):
        for topic in TOPICS[:2]:
            engine.publish(topic, -1, [1])
    assert len(announced(engine)) == 2
    engine.round([], 2)
    assert announced(engine) == [] and [end(engine, topic) for topic in TOPICS[:2]] == [5, 5]


def test_a_publisher_that_dies_behind_its_commit_is_found_in_turn(engine, unannounced):
    engine.publish(TOPICS[5], -1, [1])
    assert announced(engine) == []
    assert any(engine.rounds.bundle.has_news() for _ in range(LOOKS))
    assert len(engine.round([], 2)["deliveries"]) == 1


def test_rounds_alone_find_it_too(engine, unannounced):
    engine.publish(TOPICS[5], -1, [1])
    for number in range(LOOKS):
        engine.run([], 10 + number)
    assert end(engine, TOPICS[5]) == 1


def test_after_a_long_round_as_many_have_their_turn_as_in_looks_meanwhile(engine, unannounced, monkeypatch):
    for topic in TOPICS:
        engine.publish(topic, -1, [1])
    monkeypatch.setattr(topic_news, "A_SECOND", 10**9)
    for _ in range(2):  # what is left of the turn, and the next
        engine.run([], 10)
    assert [end(engine, topic) for topic in TOPICS] == [1] * MANY


def test_somebody_else_s_append_is_found_in_turn(engine):
    engine.publish(TOPICS[5], -1, [1])
    engine.round([], 2)
    log = TableLog(path(engine, TOPICS[5]))
    DeltaTable(str(log.folder.parent)).delete("entry_id = 0")
    assert log.latest() == 2
    assert any(engine.rounds.bundle.has_news() for _ in range(LOOKS))


def test_who_asks_something_of_a_topic_has_its_log_asked_before(engine, unannounced):
    engine.publish(TOPICS[9], -1, [1, 1])
    engine.round([On(TOPICS[9]).subscribe("B", initial_position="Latest"), On(TOPICS[9]).flow("B", 9)], 2)
    assert end(engine, TOPICS[9]) == 2
    assert engine.state(TOPICS[9], -1, "s")["mark_delete_position"] == 1


def test_a_start_asks_all(engine, unannounced):
    for topic in TOPICS:
        engine.publish(topic, -1, [1])
    engine.restart(2)
    engine.run([], 3)
    assert [end(engine, topic) for topic in TOPICS] == [1] * MANY


def test_what_is_announced_during_a_look_is_for_that_one_or_the_next(engine, monkeypatch):
    """The files are removed before the logs are asked, so a publish in between is never lost."""

    def take_and_publish(layout):
        names = take_announced(layout)
        if not engine.published:
            engine.publish(TOPICS[0], -1, [1])
        return names

    monkeypatch.setattr(topic_news, "take_announced", take_and_publish)
    first = moved(engine)
    assert announced(engine) == ["public,default,t0"] and first in ([], [TOPICS[0]])
    assert moved(engine) == [TOPICS[0]]


def test_a_root_without_the_folder_is_served_in_turn(engine):
    shutil.rmtree(announcements_folder(engine.layout))
    engine.publish(TOPICS[5], -1, [1])
    assert not announcements_folder(engine.layout).exists()
    assert any(engine.rounds.bundle.has_news() for _ in range(LOOKS))


def test_what_stands_in_the_folder_and_is_none_holds_up_nobody(engine):
    folder = announcements_folder(engine.layout)
    (folder / "somebody's").mkdir()
    (folder / "public,default,gone").touch()
    (folder / "nonsense").touch()
    engine.publish(TOPICS[5], -1, [1])
    assert moved(engine) == [TOPICS[5]] and announced(engine) == ["somebody's"]


def test_a_folder_that_may_not_be_looked_into_holds_up_no_topic(engine, monkeypatch):
    """Another user's, beside the topics; whoever runs these tests may look into any."""
    exists = TableLog.exists

    def closed(log) -> bool:
        if log.folder.parent.name == "closed":
            raise PermissionError(errno.EACCES, "Permission denied", str(log.folder))
        return exists(log)

    monkeypatch.setattr(TableLog, "exists", closed)
    namespace = engine.layout.namespace("public", "default")
    (namespace / "closed").mkdir()
    engine.create_topic("persistent://public/default/new")
    assert engine.rounds.bundle.scan() == []
    assert {*engine.rounds.bundle.topics} == {*TOPICS, "persistent://public/default/new"}


def test_a_topic_made_again_is_asked(engine):
    delete_topic(engine.layout, TOPICS[3])
    engine.round([], 2)
    announce(engine.layout.topic(parse_topic_name(TOPICS[3])))
    assert moved(engine) == []
    engine.create_topic(TOPICS[3])
    engine.publish(TOPICS[3], -1, [1])
    engine.run([], 3)
    engine.run([], 4)
    assert end(engine, TOPICS[3]) == 1


def test_only_topics_are_announced(engine):
    engine.round([On(TOPICS[2]).subscribe("C")], 2)
    announce(engine.layout.broker_table("requests"))
    announce(path(engine, TOPICS[2]) / "_compacted" / "view")
    assert announced(engine) == []


def test_names_that_are_too_long_together_are_told_by_a_digest(tmp_path):
    parts = ("a" * 90, "b" * 90, "c" * 90)
    name = announcement_of(tmp_path.joinpath(*parts))
    assert len(name) <= MAX_FILE_NAME and "," not in name
    assert name != announcement_of(tmp_path.joinpath(*parts[:2], "d" * 90))


def test_a_client_announces_what_it_sent(engine):
    client = pulsar.Client(f"delta:{engine.layout.root}")
    producer = client.create_producer(TOPICS[4])
    producer.send(b"x")
    assert announced(engine) == ["public,default,t4"]
    client.close()


def test_a_broker_that_is_to_end_asks_all_before(engine, unannounced):
    engine.publish(TOPICS[5], -1, [1])
    engine.round([On(TOPICS[5]).close("A")], 2)
    engine.publish(TOPICS[8], -1, [1])
    with PlainBroker(engine.layout.root, available_now=True) as broker:
        broker.wait(60)
    assert broker.rounds.bundle.topics[TOPICS[8]].end_position(-1) == 1
