"""OPTIMIZE, vacuum and checkpoints change nothing for those who follow versions, read by path, or start from
nothing."""

import os
import time

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import pulsar_spark as pulsar
from pulsar_spark.broker.bundle.load_bundle import load_bundle
from pulsar_spark.errors import CorruptState, NotAllowedError
from pulsar_spark.frames.sinks.delta_sink import History
from pulsar_spark.protocol.redelivery.letters import dead_letter_topic
from pulsar_spark.storage.cursor_ledger.committed_rounds import read_round, version_of_round
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.cursor_ledger.requests import read_requests
from pulsar_spark.storage.delta.checkpoints import make_checkpoint
from pulsar_spark.storage.delta.data_files import place_files
from pulsar_spark.storage.delta.definitions import create_table
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import dataset_of
from pulsar_spark.storage.delta.staged_files import StagedFile
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.ledgers.publish_times import first_published_at, last_published_before
from pulsar_spark.storage.ledgers.publishes import number_commit
from pulsar_spark.storage.topics.topics import read_topic
from pulsar_spark.storage.upkeep import upkeep
from pulsar_spark.storage.upkeep.upkeep import broker_tables, optimize, remove_unseen, unseen_files, vacuum
from pulsar_spark.table_specs import REQUESTS
from tests.storage.test_trimming import at
from tests.support.requests import On
from tests.support.spark_engine import SparkEngine, new_engine

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)


def rewrite(path) -> None:
    """The worst upkeep can do: every file replaced and the old ones gone at once."""
    optimize(path)
    DeltaTable(str(path)).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    make_checkpoint(path)


def rewrite_all(engine: SparkEngine) -> None:
    for path in [*broker_tables(engine.layout).values(), read_topic(engine.layout, TOPIC).path]:
        rewrite(path)


@pytest.fixture
def engine(tmp_path) -> SparkEngine:
    engine = new_engine(None, tmp_path)
    engine.create_topic(TOPIC)
    return engine


def test_rounds_go_on_before_and_after(engine):
    for number in range(4):
        engine.publish(TOPIC, -1, [1, 2], publish_time_ms=1000 * number, deliver_at_ms=[None, 90_000])
        engine.round([ON.subscribe("A"), ON.flow("A", 10)], number)
    before = engine.state(TOPIC, -1, "s")
    rewrite_all(engine)
    engine.publish(TOPIC, -1, [1], publish_time_ms=9000)
    result = engine.round([], 9000)
    assert [delivery.position for delivery in result["deliveries"]] == [8]
    assert engine.state(TOPIC, -1, "s")["pending"].items() > before["pending"].items()
    rewrite_all(engine)
    engine.start()
    engine.rounds.take_over()
    engine.round([ON.ack(0, 8)], 10_000)
    assert engine.state(TOPIC, -1, "s")["mark_delete_position"] == 8
    assert (engine.rounds.bundle.topic(TOPIC).end_position(-1), engine.rounds.bundle.topic(TOPIC).error) == (9, None)


def test_each_round_is_found_again_and_the_latest_rows_too(engine):
    engine.publish(TOPIC, -1, [1] * 5)
    for number in range(5):
        engine.round([ON.subscribe("A"), ON.flow("A", 1)], number)
    path = engine.layout.broker_table("cursor_ledger")
    before, latest = [read_round(path, version) for version in range(1, 6)], read_latest(engine.layout)
    rewrite(path)
    order = [("kind", "ascending"), ("first", "ascending"), ("request_id", "ascending")]
    assert [read_round(path, version).sort_by(order).to_pylist() for version in range(1, 6)] == [
        rows.sort_by(order).to_pylist() for rows in before
    ]
    after = read_latest(engine.layout)
    assert (after.round, after.consumers) == (latest.round, latest.consumers)
    assert [*map(after.ranges, after.cursors)] == [*map(latest.ranges, latest.cursors)]


def test_a_round_s_version_is_found_behind_those_that_change_nothing(engine):
    path = engine.layout.broker_table("cursor_ledger")
    for number in range(3):
        engine.round([ON.subscribe("A"), ON.flow("A", 1)], number)
        rewrite(path)
    versions = [version_of_round(path, number) for number in (1, 2, 3)]
    assert versions[0] == 1 and versions[2] > 3
    assert [read_round(path, version)["round"][0].as_py() for version in versions] == [1, 2, 3]
    assert version_of_round(path, 3, after=versions[1]) == versions[2]
    with pytest.raises(CorruptState, match="round 4"):
        version_of_round(path, 4)


@pytest.mark.parametrize("steps", [[3], [1, 2, 3], [2, 2, 3, 1]])
def test_what_was_delivered_is_known_by_round_whatever_lies_between(engine, steps):
    engine.publish(TOPIC, -1, [1] * 3)
    for number in range(3):
        engine.round([ON.subscribe("A"), ON.flow("A", 1)], number)
        rewrite(engine.layout.broker_table("cursor_ledger"))
    history = History(engine.layout, engine.topic_ids[TOPIC], "s")
    for seen, round_number in enumerate(steps):
        history.read_up_to(round_number)
        found = history.overlapping(-1, [(0, 9)], "B")
        assert sorted(zip(found.rounds.tolist(), found.firsts.tolist())) == [
            (number, number - 1) for number in range(1, max(steps[: seen + 1]) + 1)
        ]


def test_a_crash_before_the_letters_and_an_optimize_after_it_lose_no_letter(engine, monkeypatch):
    engine.publish(TOPIC, -1, [1])
    engine.round([ON.subscribe("A", max_redeliver_count=1), ON.flow("A", 9)], 1)
    engine.round([ON.negative_ack("A", 0)], 2)

    def die(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr("pulsar_spark.broker.round.pipeline.write_projections", die)
        with pytest.raises(KeyboardInterrupt):
            engine.round([ON.negative_ack("A", 0)], 3)
    rewrite_all(engine)
    engine.start()
    engine.rounds.take_over()
    assert len(engine.rows(dead_letter_topic(TOPIC, "s"))) == 1


@pytest.mark.parametrize("partitions", [0, 2])
def test_times_and_batch_sizes_are_found_where_the_rows_are_now(tmp_path, partitions):
    engine = new_engine(None, tmp_path)
    engine.create_topic(TOPIC, partitions)
    indexes = range(partitions) if partitions else [-1]
    for number in range(3):
        for index in indexes:
            engine.publish(TOPIC, index, [1, 2 + max(index, 0)], publish_time_ms=1000 * number + 500 * max(index, 0))
    engine.round([], 0)
    state = engine.rounds.bundle.topic(TOPIC)
    commits = list(TableLog(state.topic.path).commits(0))
    rewrite(state.topic.path)
    for index in indexes:
        shift = 0.5 * max(index, 0)
        assert first_published_at(state.topic.path, state.ledgers(index), at(1 + shift)) == 2
        assert last_published_before(state.topic.path, state.ledgers(index), at(1 + shift)) == 1
    runs = number_commit(state.topic.path, commits[0], {}, set())[indexes[0]]
    assert [run.batch_size for run in runs] == [1, 2]


def test_a_client_that_follows_versions_goes_on(engine):
    client = pulsar.Client(f"delta:{engine.layout.root}")
    try:
        producer = client.create_producer(TOPIC)
        reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
        sent = []
        for number in range(3):
            sent.append(producer.send(b"%d" % number))
            rewrite_all(engine)
        received = [reader.read_next(timeout_millis=60_000) for _ in range(3)]
        assert [message.data() for message in received] == [b"0", b"1", b"2"]
        assert [message.message_id() for message in received] == sent
        assert reader.has_message_available() is False
        assert client.create_reader(TOPIC, pulsar.MessageId.latest).has_message_available() is False
    finally:
        client.close()


def test_the_requests_that_wait_are_not_vacuumed_away(engine, monkeypatch):
    """Who closes when the broker has stopped leaves some; a file of theirs stays, though OPTIMIZE took it out of the
    table long ago, and nothing is refused."""
    engine.round([], 0)
    requests = engine.layout.broker_table("requests")
    AppendTable(requests).append(REQUESTS.rows([ON.create_subscription("Earliest")]))
    engine.rounds.bundle.requests_version = 1
    engine.round([ON.create_subscription("Earliest")], 1)
    AppendTable(requests).append(REQUESTS.rows([ON.clear_backlog()]))
    consumed, waiting = (TableLog(requests).commit(version).added[0].path for version in (1, 2))
    for name, hours in (("orphan.parquet", upkeep.NEW_HOURS + 1), ("fresh.parquet", upkeep.NEW_HOURS - 1)):
        (requests / name).write_text("of a writer that crashed, or has not committed yet")
        os.utime(requests / name, (time.time() - hours * 3600,) * 2)
    optimize(requests)
    assert vacuum(engine.layout, requests, hours=1, dry_run=True) == ["orphan.parquet"]
    monkeypatch.setattr(upkeep, "unseen_files", lambda table, before: unseen_files(table, time.time()))
    assert sorted(vacuum(engine.layout, requests, hours=1, dry_run=True)) == sorted([consumed, "orphan.parquet"])
    assert sorted(vacuum(engine.layout, requests, hours=1)) == sorted([consumed, "orphan.parquet"])
    assert (requests / waiting).exists() and not (requests / consumed).exists()
    assert (requests / "fresh.parquet").exists()
    assert [found.rows["kind"].to_pylist() for found in read_requests(requests, after=1)][0] == ["clear_backlog"]
    assert vacuum(engine.layout, engine.layout.broker_table("ledgers"), hours=1, dry_run=True) == []


def test_files_that_were_staged_long_ago_count_as_written_when_they_come_into_the_table(engine):
    """A commit of them may be under way."""
    path = engine.layout.broker_table("requests")
    source = path.parent / "staged.parquet"
    pq.write_table(REQUESTS.rows([ON.clear_backlog()]), source)
    os.utime(source, (time.time() - 10**6,) * 2)
    place_files(path, [StagedFile(source, "part-staged.parquet", {"numRecords": 1})])
    for hours in (1, upkeep.NEW_HOURS):
        assert unseen_files(path, time.time() - hours * 3600) == []
    os.utime(path / "part-staged.parquet", (time.time() - 10**6,) * 2)
    assert unseen_files(path, time.time() - 3600) == ["part-staged.parquet"]


def test_files_that_are_gone_are_not_removed_again(tmp_path):
    """The table tells of those that left it for a week."""
    create_table(tmp_path / "t", REQUESTS)
    for number in range(3):
        AppendTable(tmp_path / "t").append(REQUESTS.rows([dict(request_id=str(number))]))
    assert optimize(tmp_path / "t") == (3, 1)
    assert [len(some) for some in remove_unseen(tmp_path / "t", time.time(), frozenset())] == [3]
    assert list(remove_unseen(tmp_path / "t", time.time(), frozenset())) == []


def test_files_that_may_still_be_read_are_not_vacuumed_away(engine):
    with pytest.raises(NotAllowedError, match="at least 1 hour"):
        vacuum(engine.layout, engine.layout.broker_table("cursor_ledger"), hours=0)


def test_an_optimize_leaves_one_file_and_a_dry_run_all(engine):
    for _ in range(4):
        engine.publish(TOPIC, -1, [1])
    path = read_topic(engine.layout, TOPIC).path
    assert optimize(path, dry_run=True).files_removed == 4
    assert len(DeltaTable(str(path)).file_uris()) == 4
    assert optimize(path) == (4, 1)
    assert make_checkpoint(path) == 5
    assert load_bundle(engine.layout).topic(TOPIC).topic.topic_id == engine.topic_ids[TOPIC]


def test_an_optimize_between_a_round_s_check_and_its_commit_fences_nobody(engine, monkeypatch):
    engine.publish(TOPIC, -1, [1])
    engine.round([ON.subscribe("A"), ON.flow("A", 1)], 0)
    engine.round([ON.flow("A", 1)], 1)
    from pulsar_spark.storage.delta import tables

    commit, path = tables.commit, engine.layout.broker_table("cursor_ledger")

    def optimize_and_commit(table, *arguments, **options):
        if table == path:
            monkeypatch.undo()
            optimize(path)
        return commit(table, *arguments, **options)

    monkeypatch.setattr(tables, "commit", optimize_and_commit)
    engine.round([ON.ack(0)], 2)
    assert engine.state(TOPIC, -1, "s")["mark_delete_position"] == 0
    rounds = dataset_of(path).to_table()["round"]
    assert pc.max(rounds).as_py() == engine.rounds.bundle.round == 3


def test_files_stay_to_the_second(tmp_path):
    """Delta's vacuum counts in whole hours."""
    create_table(tmp_path / "t", REQUESTS)
    for number in range(3):
        AppendTable(tmp_path / "t").append(REQUESTS.rows([dict(request_id=str(number))]))
    optimize(tmp_path / "t")
    for file in (tmp_path / "t").glob("*.parquet"):
        os.utime(file, (time.time() - 10**6,) * 2)
    for seconds in (60, 90 * 60):
        commit = TableLog(tmp_path / "t").file(4)
        os.utime(commit, (time.time() - seconds + 30,) * 2)
        assert unseen_files(tmp_path / "t", time.time() - seconds) == []
    os.utime(commit, (time.time() - 61,) * 2)
    assert len(unseen_files(tmp_path / "t", time.time() - 60)) == 3
