"""Trimming takes whole ledgers that nobody needs, says so to the broker and to readers, and refuses the rest."""

from datetime import datetime, timezone

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

import pulsar_spark as pulsar
from pulsar_spark.broker.bundle.load_bundle import load_bundle
from pulsar_spark.errors import NotAllowedError
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.delta.scan import dataset_of
from pulsar_spark.storage.entries.topic_files import trimmed_ledgers
from pulsar_spark.storage.ledgers.whole_ledgers import whole_ledgers
from pulsar_spark.storage.topics.topics import read_topic
from pulsar_spark.storage.upkeep import trimming
from pulsar_spark.storage.upkeep.trimming import Trimmed, trim_topic
from tests.support.requests import On
from tests.support.spark_engine import SparkEngine, new_engine

TOPIC = "persistent://public/default/t"
ON, OTHER = On(TOPIC), On(TOPIC, subscription="other")


def at(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)


@pytest.fixture
def engine(tmp_path) -> SparkEngine:
    """Five ledgers of two entries, published at seconds 0, 10, 20, 30, 40."""
    engine = new_engine(None, tmp_path)
    engine.create_topic(TOPIC)
    for number in range(5):
        engine.publish(TOPIC, -1, [1, 1], publish_time_ms=10_000 * number)
    return engine


def trim(engine: SparkEngine, seconds: int = 1000, **options) -> Trimmed:
    topic = read_topic(engine.layout, TOPIC)
    (found,) = trim_topic(engine.layout, topic, topic.partition_indexes, now=at(seconds), **options)
    return found


def left(engine: SparkEngine) -> list[int]:
    """The ledgers whose rows are still in the table, counted from 0."""
    rows = dataset_of(read_topic(engine.layout, TOPIC).path).to_table()
    return sorted(int(publish_id, 16) - 1 for publish_id in pc.unique(rows["publish_id"]).to_pylist())


def test_what_every_subscription_has_acknowledged_goes_and_the_newest_ledger_stays(engine):
    engine.round([ON.create_subscription("Earliest"), OTHER.create_subscription("Earliest")], 1)
    engine.round([ON.clear_backlog(), OTHER.ack(0, 4), OTHER.ack(6)], 2)
    found = trim(engine, dry_run=True)
    assert (found.trim.ledger_id, found.trim.first_position, found.files, found.trim.kept_by) == (
        2,
        4,
        2,
        "subscription other",
    )
    assert left(engine) == [0, 1, 2, 3, 4]
    assert trim(engine) == found
    assert left(engine) == [2, 3, 4]
    assert trim(engine).files == 0
    engine.round([OTHER.clear_backlog()], 3)
    found = trim(engine)
    assert (found.trim.first_position, found.trim.kept_by) == (8, "the newest ledger stays")
    assert left(engine) == [4]


def test_nothing_goes_from_a_topic_nobody_subscribes_to_unless_a_retention_is_set(engine):
    engine.round([], 1)
    assert (trim(engine).files, trim(engine).trim.kept_by) == (0, "nobody subscribes and no retention is set")
    engine.round([ON.policy("retention_seconds", 100)], 1)
    assert trim(engine, seconds=119).trim.first_position == 4
    assert left(engine) == [2, 3, 4]


@pytest.mark.parametrize(
    "policies, seconds, kept",
    [
        ({}, 0, [4]),
        ({"retention_seconds": 25}, 50, [3, 4]),
        ({"retention_seconds": -1}, 10**6, [0, 1, 2, 3, 4]),
        ({"retention_seconds": 10**6, "retention_bytes": 2.5}, 50, [2, 3, 4]),
        ({"retention_bytes": 100}, 50, [0, 1, 2, 3, 4]),
    ],
)
def test_retention_keeps_what_is_acknowledged(engine, policies, seconds, kept):
    engine.round([ON.create_subscription("Earliest")], 1)
    size = engine.rounds.bundle.topic(TOPIC).ledgers(-1).runs[0].bytes
    set_ = [
        ON.policy(name, int(value * size) if name == "retention_bytes" else value) for name, value in policies.items()
    ]
    engine.round([ON.clear_backlog(), *set_], 2)
    trim(engine, seconds)
    assert left(engine) == kept


def test_the_guard_refuses_what_a_subscription_needs(engine):
    engine.round([ON.create_subscription("Earliest"), ON.ack(0, 4), ON.policy("retention_seconds", -1)], 1)
    engine.round([ON.ack(0, 4)], 2)
    with pytest.raises(NotAllowedError, match="'s' needs the entries from position 5 on"):
        trim(engine, before=6)
    assert left(engine) == [0, 1, 2, 3, 4]
    assert trim(engine, before=5).trim.first_position == 4, "whatever retention says"
    assert left(engine) == [2, 3, 4]


def test_what_is_not_numbered_stays(engine):
    engine.round([ON.create_subscription("Latest")], 1)
    engine.publish(TOPIC, -1, [1, 1], publish_time_ms=0)
    engine.publish(TOPIC, -1, [1, 1], publish_time_ms=0)
    trim(engine)
    assert left(engine) == [4, 5, 6]


@pytest.mark.parametrize("is_compacted", [False, True])
def test_who_publishes_while_the_ledgers_are_read_waits_for_nobody_and_his_rows_stay(engine, monkeypatch, is_compacted):
    """Reading a million of them takes seconds. His rows may have come to lie in one file with what goes."""
    engine.round([ON.create_subscription("Latest")], 1)

    def read(layout, topic_id):
        known = whole_ledgers(layout, topic_id)
        engine.published = -1  # the next publish id sorts before all others
        engine.publish(TOPIC, -1, [1], publish_time_ms=0)
        if is_compacted:
            DeltaTable(str(engine.tables[TOPIC].path)).optimize.compact()
        engine.round([ON.clear_backlog()], 2)
        return known

    monkeypatch.setattr(trimming, "whole_ledgers", read)
    trim(engine)
    assert left(engine) == ([-1, 0, 1, 2, 3, 4] if is_compacted else [-1, 4])


def test_files_of_several_ledgers_go_when_all_may(engine):
    engine.round([ON.create_subscription("Earliest")], 1)
    DeltaTable(str(engine.tables[TOPIC].path)).optimize.compact()
    engine.publish(TOPIC, -1, [1], publish_time_ms=0)
    engine.publish(TOPIC, -1, [1], publish_time_ms=0)
    engine.round([ON.ack(0, 7)], 2)
    assert (trim(engine).trim.first_position, trim(engine).files) == (8, 0)
    engine.round([ON.ack(0, 10)], 3)
    assert trim(engine).files == 2
    assert left(engine) == [6]


def test_a_merged_file_with_an_unnumbered_publish_stays(engine):
    engine.round([ON.create_subscription("Latest")], 1)
    engine.published = -1  # the next publish id sorts before all others
    engine.publish(TOPIC, -1, [1], publish_time_ms=0)
    engine.published = 10
    DeltaTable(str(engine.tables[TOPIC].path)).optimize.compact()
    assert trim(engine).files == 0
    assert left(engine) == [-1, 0, 1, 2, 3, 4]


def test_partitions_are_trimmed_each_by_itself(tmp_path):
    engine = new_engine(None, tmp_path)
    engine.create_topic(TOPIC, 2)
    for _ in range(3):
        for partition in (0, 1):
            engine.publish(TOPIC, partition, [1], publish_time_ms=0)
    first, second = On(TOPIC, 0), On(TOPIC, 1)
    engine.round([first.create_subscription("Earliest"), second.create_subscription("Earliest")], 1)
    engine.round([first.clear_backlog(), second.ack(0)], 2)
    topic = read_topic(engine.layout, TOPIC)
    found = trim_topic(engine.layout, topic, [0, 1], now=at(10))
    assert [(each.trim.first_position, each.files) for each in found] == [(2, 2), (1, 1)]
    rows = dataset_of(topic.path).to_table().select(["partition"]).to_pylist()
    assert sorted(row["partition"] for row in rows) == [0, 1, 1]
    engine.round([], 3)
    assert load_bundle(engine.layout).topic(TOPIC).trimmed == {0: 2, 1: 1}


def test_what_was_trimmed_stays_so_whatever_is_trimmed_later(tmp_path):
    """Of one partition less than before, of another more."""
    engine = new_engine(None, tmp_path)
    engine.create_topic(TOPIC, 2)
    for _ in range(4):
        for partition in (0, 1):
            engine.publish(TOPIC, partition, [1], publish_time_ms=0)
    first, second = On(TOPIC, 0), On(TOPIC, 1)
    engine.round([first.create_subscription("Earliest"), second.create_subscription("Earliest")], 1)
    engine.round([first.clear_backlog(), second.ack(0)], 2)
    topic = read_topic(engine.layout, TOPIC)
    trim_topic(engine.layout, topic, [0, 1], now=at(10))
    before = trimmed_ledgers(topic.path, [0, 1])
    engine.round([second.ack(1)], 3)
    trim_topic(engine.layout, topic, [0, 1], now=at(10), before=2)
    after = trimmed_ledgers(topic.path, [0, 1])
    assert after[0] == before[0] and after[1] > before[1]
    engine.round([], 4)
    assert load_bundle(engine.layout).topic(TOPIC).trimmed == {0: 3, 1: 2}


def test_nobody_gets_before_what_was_trimmed(engine):
    engine.round([ON.create_subscription("Earliest"), ON.ack(0, 6)], 1)
    engine.round([ON.ack(0, 6)], 2)
    trim(engine)
    engine.round([OTHER.create_subscription("Earliest"), ON.seek("earliest")], 3)
    assert engine.state(TOPIC, -1, "other")["read_position"] == 6
    assert engine.state(TOPIC, -1, "s")["read_position"] == 6
    for target in (ON.seek(2), ON.seek(publish_time_ms=0), ON.seek("earliest")):
        engine.round([target], 4)
        assert engine.state(TOPIC, -1, "s")["read_position"] == 6
    engine.round([ON.seek(9)], 5)
    assert engine.state(TOPIC, -1, "s")["read_position"] == 9
    engine.start()
    engine.round([ON.seek("earliest")], 6)
    assert engine.state(TOPIC, -1, "s")["read_position"] == 6, "a broker that starts knows it too"


def test_a_cursor_moved_back_at_that_very_time_is_moved_behind(engine):
    engine.round([ON.subscribe("A"), ON.ack(0, 6)], 1)
    engine.round([ON.ack(0, 6)], 2)
    latest = read_latest(engine.layout)
    engine.round([ON.seek("earliest")], 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pulsar_spark.storage.upkeep.trimming.read_latest", lambda layout, *kinds: latest)
        assert trim(engine).trim.first_position == 6
    result = engine.round([ON.flow("A", 9)], 4)
    assert [delivery.position for delivery in result["deliveries"]] == [6, 7, 8, 9]


def test_a_broker_that_died_before_its_round_still_learns_of_a_trim(engine, monkeypatch):
    engine.round([ON.create_subscription("Earliest")], 1)
    engine.round([ON.clear_backlog()], 2)
    trim(engine)
    engine.publish(TOPIC, -1, [1])

    def die(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(engine.rounds.tables.cursor_ledger, "append_fenced", die)
    with pytest.raises(KeyboardInterrupt):
        engine.round([], 3)
    engine.start()
    engine.rounds.take_over()
    engine.round([OTHER.create_subscription("Earliest")], 4)
    assert engine.state(TOPIC, -1, "other")["read_position"] == 8


@pytest.mark.parametrize("is_vacuumed", [False, True])
def test_a_reader_starts_behind_what_was_trimmed(engine, is_vacuumed):
    engine.round([ON.create_subscription("Earliest")], 1)
    engine.round([ON.clear_backlog()], 2)
    trim(engine)
    if is_vacuumed:
        DeltaTable(str(engine.tables[TOPIC].path)).vacuum(
            retention_hours=0, dry_run=False, enforce_retention_duration=False
        )
    client = pulsar.Client(f"delta:{engine.layout.root}")
    try:
        reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
        ids = []
        while reader.has_message_available():
            ids.append(reader.read_next(timeout_millis=60_000).message_id())
        assert [(each.ledger_id(), each.entry_id()) for each in ids] == [(5, 0), (5, 1)]
    finally:
        client.close()


@pytest.mark.parametrize("is_vacuumed", [False, True])
def test_a_reader_on_its_way_reads_what_files_there_are_and_passes_over_the_rest(engine, is_vacuumed):
    engine.round([ON.create_subscription("Earliest")], 1)
    client = pulsar.Client(f"delta:{engine.layout.root}")
    try:
        reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
        seen = [reader.read_next(timeout_millis=60_000).message_id().ledger_id()]
        engine.round([ON.clear_backlog()], 2)
        assert trim(engine).trim.kept_by == "the newest ledger stays", "a reader keeps nothing"
        if is_vacuumed:
            DeltaTable(str(engine.tables[TOPIC].path)).vacuum(
                retention_hours=0, dry_run=False, enforce_retention_duration=False
            )
        while reader.has_message_available():
            seen.append(reader.read_next(timeout_millis=60_000).message_id().ledger_id())
        assert seen == ([1, 1, 5, 5] if is_vacuumed else [1, 1, 2, 2, 3, 3, 4, 4, 5, 5])
    finally:
        client.close()
