"""Housekeeping makes tables small and logs short, and nobody who reads, follows or writes them notices."""

import os
import re
import time
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, TableFeatures

import pulsar_spark as pulsar
from pulsar_spark.errors import (
    BrokerFenced,
    CorruptState,
    InvalidConfiguration,
    LogShortened,
    ProducerBlockedQuotaExceededException,
)
from pulsar_spark.frames.sinks.sent_history import History
from pulsar_spark.link.quota import BacklogQuota
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.delta import checkpoints
from pulsar_spark.storage.delta.checkpoints import make_checkpoint
from pulsar_spark.storage.delta.definitions import create_table
from pulsar_spark.storage.delta.log import TableLog, commits_left
from pulsar_spark.storage.delta.scan import dataset_of, open_table
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.ledgers.ledgers import ledgers_until
from pulsar_spark.storage.repair.examination import examine_root
from pulsar_spark.storage.topics.topics import read_topic
from pulsar_spark.storage.upkeep import joining, retention, shortening, upkeep
from pulsar_spark.storage.upkeep.housekeeping import Needs, keep_house
from pulsar_spark.storage.upkeep.joining import files_of, groups_of, join
from pulsar_spark.storage.upkeep.kept_tables import NEEDED, OWN_VERSIONS, kept_tables
from pulsar_spark.storage.upkeep.retention import promised_seconds
from pulsar_spark.storage.upkeep.shortening import shorten
from pulsar_spark.storage.upkeep.upkeep import unseen_files
from pulsar_spark.table_specs import REQUESTS
from pulsar_spark.views.activity import read_activity, round_time
from tests.support.crashes import Crash, crash_at_write
from tests.support.requests import On, request
from tests.support.spark_engine import SparkEngine, new_engine

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)
N, CHOSEN_SECONDS = 8, checkpoints.CHOSEN_SECONDS


@pytest.fixture(autouse=True)
def few_make_one(monkeypatch):
    monkeypatch.setattr(joining, "FILES", 4)
    for module in (checkpoints, shortening):
        monkeypatch.setattr(module, "CHOSEN_SECONDS", 0)


@pytest.fixture
def engine(tmp_path) -> SparkEngine:
    """So many rounds of a message each, the last of which are acknowledged."""
    engine = new_engine(None, tmp_path)
    engine.create_topic(TOPIC)
    requests = AppendTable(engine.layout.broker_table("requests"))
    for number in range(N):
        engine.publish(TOPIC, -1, [1], publish_time_ms=1000 * number, payload=b"%d" % number)
        rows = [ON.subscribe("A"), ON.flow("A", 1), *([ON.ack(number - 1)] if number > 4 else [])]
        version = requests.append(REQUESTS.rows(rows))
        engine.rounds.bundle.requests_version = version
        engine.round(rows, number)
    engine.restart(12_000)
    return engine


def keep(
    engine: SparkEngine, history_seconds: int = 10**6, time_travel_seconds: int = 0, versions: int | None = None
) -> Counter:
    """Keep house in all tables at once; what was done."""
    return keep_all(engine.layout, history_seconds, time_travel_seconds, versions)


def keep_all(
    layout: Layout, history_seconds: int = 10**6, time_travel_seconds: int = 0, versions: int | None = None
) -> Counter:
    """The same of a root, with checkpoints where there is something to shorten; so many *versions* of the broker's
    tables are enough."""
    done: Counter = Counter()
    for kept in kept_tables(layout, read_latest(layout, *NEEDED)):
        if TableLog(kept.path).exists():
            make_checkpoint(kept.path)
            steps = keep_house(
                kept.path,
                kept.needs,
                history_seconds=history_seconds,
                time_travel_seconds=time_travel_seconds,
                promises=kept.promises,
                versions=versions if kept.promises else None,
                now=lambda: time.time() + 2,
            )
            for step in steps:
                done[step.what] += step.number
    return done


def payloads(engine: SparkEngine) -> list[bytes]:
    """What a reader that begins at the first message gets."""
    client = pulsar.Client(f"delta:{engine.layout.root}")
    try:
        reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
        found = []
        while reader.has_message_available():
            found.append(reader.read_next(timeout_millis=60_000).data())
        return found
    finally:
        client.close()


def whole(engine: SparkEngine) -> tuple:
    """All that a start finds, and all that a reader reads."""
    latest = read_latest(engine.layout)
    return latest.round, [*map(latest.ranges, latest.cursors)], latest.cursors, latest.consumers, payloads(engine)


def versions(path: Path) -> list[int]:
    return sorted(TableLog(path).versions())


def test_all_is_as_it_was_and_rounds_go_on(engine):
    before, topic = whole(engine), read_topic(engine.layout, TOPIC).path
    done = keep(engine)
    assert done["files_joined"] >= 3 * N and done["log_shortened"] > 2 * N and done["files_removed"] >= 3 * N
    assert whole(engine) == before
    assert len(list(topic.glob("*.parquet"))) == N // 4 and len(versions(topic)) < 6
    assert list(examine_root(engine.layout)) == []
    engine.publish(TOPIC, -1, [1], payload=b"%d" % N)
    engine.round([ON.ack(N - 1), ON.flow("A", 5)], 20_000)
    engine.restart(21_000)
    assert keep(engine)["rows_removed"] == 0
    assert payloads(engine) == [b"%d" % number for number in range(N + 1)]
    assert engine.state(TOPIC, -1, "s")["mark_delete_position"] == -1


def test_rows_of_history_go_when_their_time_is_over_and_what_is_needed_stays(engine):
    engine.round([ON.ack(0, N - 1)], 13_000)
    engine.restart(14_000)
    before = whole(engine)
    tables = [engine.layout.broker_table(name) for name in ("requests", "cursor_ledger")]
    rows = [dataset_of(path).count_rows() for path in tables]
    assert keep(engine)["rows_removed"] == 0 and [dataset_of(path).count_rows() for path in tables] == rows
    AppendTable(tables[0]).append(REQUESTS.rows([ON.flow("A", 7)]))
    assert keep(engine, history_seconds=0)["rows_removed"] > 0
    assert dataset_of(tables[0]).to_table()["permits"].to_pylist() == [7], "it waits for a round"
    rounds = dataset_of(tables[1]).to_table()["round"]
    assert pc.min(rounds).as_py() == pc.max(rounds).as_py() == before[0], "the newest snapshot is a round's"
    assert whole(engine) == before


def test_rounds_that_delivered_what_is_out_still_stay(engine):
    """A sink asks them who had it, before it writes it again."""
    assert keep(engine, history_seconds=0)["rows_removed"] == N, "the requests"
    history = History(engine.layout, engine.topic_ids[TOPIC], "s")
    history.read_up_to(N)
    found = history.overlapping(-1, [(0, 99)], "B")
    assert found.rounds.tolist() == list(range(1, N + 1))


@pytest.mark.default
@pytest.mark.parametrize("goes_to_another", [False, True])
def test_rounds_that_delivered_what_was_given_back_since_stay(engine, goes_to_another):
    """Whoever had it may have written it, whether it waits now or another has it."""
    engine.round([ON.ack(0), ON.close("A")], 13_000)
    if goes_to_another:
        engine.round([ON.subscribe("B"), ON.flow("B", 100)], 14_000)
    engine.restart(15_000)
    keep(engine, history_seconds=0)
    rounds = dataset_of(engine.layout.broker_table("cursor_ledger")).to_table()["round"]
    assert pc.min(rounds).as_py() == 2, "what round 1 delivered is deleted"
    history = History(engine.layout, engine.topic_ids[TOPIC], "s")
    history.read_up_to(engine.rounds.bundle.round)
    found = history.overlapping(-1, [(0, 99)], "B")
    assert found.rounds.tolist() == list(range(2, N + 1))


def test_what_was_delivered_is_known_though_the_log_was_shortened_meanwhile(engine):
    history = History(engine.layout, engine.topic_ids[TOPIC], "s")
    history.read_up_to(3)
    keep(engine)
    for until in (5, N - 1, N):
        history.read_up_to(until)
    found = history.overlapping(-1, [(0, 99)], "B")
    assert sorted(found.rounds.tolist()) == list(range(1, N + 1))


def test_rates_count_rounds_whose_files_were_joined_and_are_gone(engine):
    path, now = engine.layout.broker_table("cursor_ledger"), datetime.fromtimestamp(12, UTC)
    before = read_activity(engine.layout, now)
    opened, groups = grouped(path)
    assert joined(path, opened, groups) and before.delivered.total() == N
    for file in {each.name for each in path.glob("*.parquet")} - {
        Path(uri).name for uri in open_table(path).file_uris()
    }:
        (path / file).unlink()
    assert read_activity(engine.layout, now) == before and round_time(engine.layout, 1) is not None


def test_topics_are_kept_as_their_policies_say_and_the_broker_s_tables_as_the_root_s(engine):
    """Of rows of the broker's tables the longest history of any topic counts, and no topic's time travel."""
    engine.create_topic(other := "persistent://public/default/other")
    engine.publish(other, -1, [1])
    hour, day = "3600", "86400"
    engine.round([ON.policy("time_travel_retention_seconds", day), ON.policy("history_retention_seconds", day)], 1)
    engine.round([On(other).policy("time_travel_retention_seconds", hour), On(other).policy("housekeeping", "0")], 2)
    names, week = ["requests", "cursor_ledger", "ledgers", "delay_index", "activity"], 7 * 86_400

    def kept() -> dict:
        return {each.name: each[3:] for each in kept_tables(engine.layout, read_latest(engine.layout, *NEEDED))}

    assert kept() == dict.fromkeys(names, (week, 3600, True, OWN_VERSIONS)) | {TOPIC: (86_400, 86_400, False, None)}
    of_root = {"namespace": "broker", "name": "time_travel_retention_seconds", "value": 2 * week}
    engine.round([request("policy", client="admin", properties=of_root)], 3)
    engine.round([ON.policy("time_travel_retention_seconds")], 4)
    assert kept() == dict.fromkeys(names, (week, 2 * week, True, None)) | {TOPIC: (86_400, 2 * week, False, None)}


def promised(path: Path) -> str | None:
    return open_table(path).metadata().configuration.get(retention.FILES_PROPERTY)


def test_the_broker_s_tables_say_how_long_their_files_stay_and_topics_do_not(engine):
    before, own = whole(engine), [engine.layout.broker_table(name) for name in ("requests", "cursor_ledger", "ledgers")]
    keep(engine, time_travel_seconds=3600)
    assert {promised(path) for path in own} == {"interval 3600 seconds"}
    assert promised(read_topic(engine.layout, TOPIC).path) is None
    assert "SET TBLPROPERTIES" in {each["operation"] for each in DeltaTable(str(own[0])).history()}
    assert whole(engine) == before and list(examine_root(engine.layout)) == []
    engine.round([ON.flow("A", 1)], 13_000)
    number = engine.rounds.bundle.round
    latest = [TableLog(path).latest() for path in own]
    assert not any(retention.write_promise(path, 3600) for path in own), "it is said already"
    assert [TableLog(path).latest() for path in own] == latest
    keep(engine, time_travel_seconds=7200)
    assert {promised(path) for path in own} == {"interval 7200 seconds"}
    engine.restart(14_000)
    assert engine.rounds.bundle.round > number and payloads(engine) == before[-1]


def test_what_somebody_else_promised_of_the_broker_s_tables_stays(engine):
    path = engine.layout.broker_table("ledgers")
    open_table(path).alter.set_table_properties({retention.FILES_PROPERTY: "interval 30 days"})
    assert keep(engine)["files_removed"] and promised(path) == "interval 30 days"
    assert len(list(path.glob("*.parquet"))) == N + N // 4, "what left it is there still"


@pytest.mark.parametrize(("appends", "is_made"), [(1, True), (3, True), (100, False)])
def test_a_promise_is_made_while_others_append(tmp_path, monkeypatch, appends, is_made):
    """What they append goes before it; where there is never room it is made another time."""
    create_table(tmp_path / "t", REQUESTS)
    other, row, metadata_of = AppendTable(tmp_path / "t"), REQUESTS.rows([dict(request_id="r")]), retention.metadata_of
    left = iter(range(appends))

    def append_before(opened: DeltaTable) -> dict:
        if next(left, None) is not None:
            other.append(row)
        return metadata_of(opened)

    monkeypatch.setattr(retention, "metadata_of", append_before)
    assert retention.write_promise(tmp_path / "t", 3600) is is_made
    rows = dataset_of(tmp_path / "t").count_rows()
    assert other.append(row) == rows + 1 + is_made and dataset_of(tmp_path / "t").count_rows() == rows + 1
    assert promised(tmp_path / "t") == ("interval 3600 seconds" if is_made else None)


OWN = ("requests", "cursor_ledger", "ledgers")


@pytest.mark.parametrize("name", OWN)
def test_who_opened_one_of_the_broker_s_tables_within_the_promise_reads_on(engine, name):
    """Files and commits of the version stay, whatever is done meanwhile; a new reader finds it, too."""
    path = engine.layout.broker_table(name)
    opened, version = open_table(path), TableLog(path).latest()
    rows = dataset_of(opened).count_rows()
    assert keep(engine, history_seconds=0, time_travel_seconds=3600)["files_joined"]
    for number in range(3):
        engine.round([ON.flow("A", 1)], 20_000 + number)
        keep(engine, history_seconds=0, time_travel_seconds=3600)
    assert dataset_of(opened).to_table().num_rows == dataset_of(open_table(path, version)).to_table().num_rows == rows


@pytest.mark.parametrize(
    ("apart", "versions", "kept"),
    [(1, 4, 300), (100, 4, 400), (100, 2, 300), (1000, 4, 3600), (1, None, 3600), (1, N + 5, 3600)],
)
def test_where_versions_come_quickly_so_many_are_kept_and_minutes_at_least(tmp_path, apart, versions, kept):
    """Commits so many seconds *apart*, the latest just now."""
    create_table(tmp_path / "t", REQUESTS)
    log, now = TableLog(tmp_path / "t"), time.time()
    for _ in range(N):
        AppendTable(tmp_path / "t").append(REQUESTS.rows([dict(request_id="r")]))
    for version in log.versions():
        then = now - apart * (log.latest() - version)
        os.utime(log.file(version), (then, then))
    assert retention.kept_seconds(tmp_path / "t", 3600, versions, now) == pytest.approx(kept, abs=0.1)


@pytest.mark.parametrize("name", OWN)
def test_of_many_versions_an_hour_old_those_go_that_nobody_was_promised(engine, name):
    """Who opened the table within the minutes that are promised reads on; older files and commits go, though no hour is
    over, and the table says what is promised."""
    path, requests = engine.layout.broker_table(name), AppendTable(engine.layout.broker_table("requests"))
    log = TableLog(path)
    keep(engine, time_travel_seconds=3600, versions=4)
    assert promised(path) == "interval 300 seconds" and log.earliest() <= 1
    age(path, 1 / 144)  # ten minutes
    opened, there = open_table(path), {*path.glob("*.parquet")}
    rows = dataset_of(opened).count_rows()
    for number in range(6):
        engine.publish(TOPIC, -1, [1], payload=b"%d" % (N + number))
        asked = [ON.flow("A", 1)]
        engine.rounds.bundle.requests_version = requests.append(REQUESTS.rows(asked))
        engine.round(asked, 20_000 + number)
        keep(engine, time_travel_seconds=3600, versions=4)
    assert log.earliest() > 1 and there - {*path.glob("*.parquet")}, "an hour is not over"
    assert dataset_of(opened).to_table().num_rows == rows
    assert payloads(engine) == [b"%d" % number for number in range(N + 6)]


@pytest.mark.parametrize("waiting", [0, 3])
def test_a_foreign_vacuum_by_what_the_broker_s_tables_say_loses_nothing(engine, waiting):
    """Delta's own takes the property where it is not told how long; requests may wait for a round."""
    keep(engine, time_travel_seconds=3600)
    for number in range(waiting):
        AppendTable(engine.layout.broker_table("requests")).append(REQUESTS.rows([ON.flow("A", 50 + number)]))
    before = whole(engine)
    for name in OWN:
        path = engine.layout.broker_table(name)
        for file in (path / "_delta_log").glob("*.json"):
            then = str(int((time.time() - 2 * 3600) * 1000))
            file.write_text(re.sub(r'"deletionTimestamp": ?\d+', f'"deletionTimestamp":{then}', file.read_text()))
        age(path, 1)
        DeltaTable(str(path)).vacuum(dry_run=False)
        assert len(list(path.glob("*.parquet"))) == len(open_table(path).file_uris()), name
    assert keep(engine)["log_shortened"] and whole(engine) == before
    asked = dataset_of(engine.layout.broker_table("requests")).to_table()["permits"].to_pylist()
    assert sorted(permits for permits in asked if permits and permits >= 50) == [50, 51, 52][:waiting]
    engine.restart(20_000)
    engine.round([ON.flow("A", 1)], 21_000)
    assert payloads(engine) == before[-1]


@pytest.mark.parametrize("is_back", [False, True])
def test_files_go_with_the_commits_that_took_them_out(tmp_path, is_back):
    """Also where the table's state has forgotten them; those that are back, or are nobody's, stay."""
    create_table(tmp_path / "t", REQUESTS)
    table = AppendTable(tmp_path / "t")
    for number in range(4):
        table.append(REQUESTS.rows([dict(request_id=str(number))]))
    opened = open_table(tmp_path / "t")
    assert joined(tmp_path / "t", opened, [files_of(opened)]) == [4]
    if is_back:
        DeltaTable(str(tmp_path / "t")).restore(4)
    retention.write_promise(tmp_path / "t", 3600)
    for file in (tmp_path / "t/_delta_log").glob("*.json"):
        then = str(int((time.time() - 2 * 3600) * 1000))
        file.write_text(re.sub(r'"deletionTimestamp": ?\d+', f'"deletionTimestamp":{then}', file.read_text()))
    (tmp_path / "t/part-of-a-commit-under-way.parquet").write_bytes(b"")
    make_checkpoint(tmp_path / "t")
    make_checkpoint(tmp_path / "t")
    steps = keep_house(
        tmp_path / "t", lambda: Needs(99, waiting=0), history_seconds=0, time_travel_seconds=0, now=lambda: 2**40
    )
    done = Counter()
    for step in steps:
        done[step.what] += step.number
    left = {file.name for file in (tmp_path / "t").glob("*.parquet")}
    there = {Path(uri).name for uri in open_table(tmp_path / "t").file_uris()}
    assert left - there <= {"part-of-a-commit-under-way.parquet"} and len(there) == (4 if is_back else 1)
    assert done["files_removed"] >= (1 if is_back else 4) and dataset_of(tmp_path / "t").count_rows() == 4


def test_files_that_were_back_for_a_while_stay_for_the_versions_that_have_them(tmp_path):
    """Somebody restored the table, and took back that."""
    create_table(tmp_path / "t", REQUESTS)
    table = AppendTable(tmp_path / "t")
    for number in range(4):
        table.append(REQUESTS.rows([dict(request_id=str(number))]))
    for _ in range(2):
        opened = open_table(tmp_path / "t")
        assert joined(tmp_path / "t", opened, [files_of(opened)]) == [4]
        with_files = TableLog(tmp_path / "t").latest() + 1
        DeltaTable(str(tmp_path / "t")).restore(4)
    DeltaTable(str(tmp_path / "t")).restore(with_files - 1)
    assert upkeep.remove_left(tmp_path / "t", range(with_files)) == 1, "of the first join, which was never back"
    assert dataset_of(open_table(tmp_path / "t", with_files)).to_table().num_rows == 4


def test_what_a_commit_says_it_took_out_elsewhere_stays(tmp_path):
    """Anybody may write to a topic's log."""
    create_table(tmp_path / "t", REQUESTS)
    AppendTable(tmp_path / "t").append(REQUESTS.rows([dict(request_id="r")]))
    outside = tmp_path / "other.parquet"
    outside.write_bytes(b"mine")
    [inside] = (tmp_path / "t").glob("*.parquet")
    checkpoint = tmp_path / "t/_delta_log/00000000000000000000.checkpoint.parquet"
    checkpoint.write_bytes(b"")
    for path in (
        "../other.parquet",
        str(outside),
        "%2E%2E/other.parquet",
        f"_delta_log/{checkpoint.name}",
        inside.name,
    ):
        text = f'{{"remove": {{"path": "{path}", "dataChange": true}}}}\n'
        TableLog(tmp_path / "t").file(TableLog(tmp_path / "t").latest() + 1).write_text(text)
    assert upkeep.remove_left(tmp_path / "t", range(10)) == 1
    assert outside.read_bytes() == b"mine" and checkpoint.exists() and not inside.exists()


# Followers that were away.


def test_who_follows_ledgers_goes_on_where_the_log_or_its_files_are_gone(engine):
    index, topic_id = LedgerIndex(engine.layout), engine.topic_ids[TOPIC]
    assert index.end(topic_id, -1) == N
    known = index._topics[topic_id][-1]
    engine.publish(TOPIC, -1, [1, 1])
    engine.restart(13_000)
    engine.round([], 14_000)
    keep(engine)
    assert [run.entries for run in index.runs(topic_id, -1, N - 1, N + 1)] == [1, 2]
    assert index._topics[topic_id][-1] is known and known.end_position == index.end(topic_id, -1) == N + 2


def test_a_reader_that_was_away_reads_on(engine):
    client = pulsar.Client(f"delta:{engine.layout.root}")
    try:
        reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
        received = [reader.read_next(timeout_millis=60_000).data() for _ in range(N)]
        assert not reader.has_message_available()
        for number in range(N, N + 3):
            engine.publish(TOPIC, -1, [1], payload=b"%d" % number)
        engine.round([], 13_000)
        engine.restart(14_000)
        keep(engine)
        received += [reader.read_next(timeout_millis=60_000).data() for _ in range(3)]
        assert received == [b"%d" % number for number in range(N + 3)]
        assert not reader.has_message_available()
        keep(engine)
        reader.seek(pulsar.MessageId.latest)
        reader = client.create_reader(TOPIC, pulsar.MessageId.latest, start_message_id_inclusive=True)
        assert reader.read_next(timeout_millis=60_000).data() == b"%d" % (N + 2), "its commit is no longer in the log"
        assert client.create_producer(TOPIC).send(b"x").ledger_id() > N + 3
    finally:
        client.close()


def test_all_runs_are_known_where_the_log_begins_behind_the_last_publish(engine):
    topic = read_topic(engine.layout, TOPIC)
    table, groups = grouped(topic.path)
    assert joined(topic.path, table, groups) == [4] * (N // 4)
    engine.round([ON.flow("A", 1)], 13_000)
    engine.publish(TOPIC, -1, [1])
    engine.round([ON.flow("A", 1)], 14_000)
    DeltaTable(str(topic.path)).optimize.compact()
    engine.round([ON.flow("A", 1)], 15_000)
    engine.restart(16_000)
    engine.publish(TOPIC, -1, [1, 1])
    last = TableLog(topic.path).latest()
    assert keep(engine)["log_shortened"] and TableLog(topic.path).earliest() == last
    for until, ends in ((last, N + 3), (last - 1, N + 1), (N, N)):
        assert ledgers_until(engine.layout, topic, until)[-1].end_position == ends
    engine.publish(TOPIC, -1, [1])
    make_checkpoint(topic.path)
    assert sum(shorten(topic.path, last + 1, 2**40)) > 0
    with pytest.raises(CorruptState, match=f"commit {last} is missing from the log and not numbered"):
        ledgers_until(engine.layout, topic, last + 1)


@pytest.mark.parametrize("is_shortened", [True, False])
def test_a_producer_that_was_idle_longer_than_rounds_are_kept_learns_what_holds_now(engine, is_shortened):
    """Rounds were taken out of the log, or their rows out of the table. A stream that publishes keeps the same."""
    engine.round([ON.policy("max_message_size", 7)], 13_000)
    now = [0.0]
    quota = BacklogQuota(engine.layout, read_topic(engine.layout, TOPIC), clock=lambda: now[0])
    assert (quota.refusal(0), quota.max_message_size) == (None, 7)
    engine.round([ON.policy("max_message_size"), ON.policy("backlog_quota_policy", "producer_exception")], 14_000)
    engine.publish(TOPIC, -1, [1])
    engine.round([ON.policy("backlog_quota_bytes", 1), ON.ack(0, N - 1)], 80_000)
    engine.restart(81_000)
    done = keep(engine, 0, 0 if is_shortened else 10**6)
    path = engine.layout.broker_table("cursor_ledger")
    if is_shortened:
        assert TableLog(path).is_shortened(N + 2)
    else:
        assert done["rows_removed"] > N and not done["log_shortened"]
        DeltaTable(str(path)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    default = BacklogQuota(engine.layout, read_topic(engine.layout, TOPIC)).max_message_size
    for _ in range(2):
        now[0] += 10
        assert isinstance(quota.refusal(0), ProducerBlockedQuotaExceededException)
        assert quota.max_message_size == default, "what was removed meanwhile holds no longer"


def test_writers_that_were_away_take_no_version_again(tmp_path):
    create_table(tmp_path / "t", REQUESTS)
    row = REQUESTS.rows([dict(request_id="r")])
    first, second, fenced = (AppendTable(tmp_path / "t") for _ in range(3))
    first._update()
    assert [second.append(row) for _ in range(6)] == [1, 2, 3, 4, 5, 6]
    fenced._update()
    assert [first.append(row), second.append_once(row, "app", 1)] == [7, 8]
    make_checkpoint(tmp_path / "t")
    assert sum(shorten(tmp_path / "t", 8, time.time() + 1)) == 8
    assert versions(tmp_path / "t") == [8]
    assert [first.append(row), AppendTable(tmp_path / "t").append(row)] == [9, 10]
    assert second.append_once(row, "app", 1) is None
    with pytest.raises(BrokerFenced, match="is at version 10, not 6"):
        fenced.append_fenced(row, 6)
    assert dataset_of(tmp_path / "t").count_rows() == 10


def test_a_writer_that_slept_between_its_look_and_its_link_takes_no_version_again(tmp_path, monkeypatch):
    create_table(tmp_path / "t", REQUESTS)
    row = REQUESTS.rows([dict(request_id="r")])
    sleeper, other = AppendTable(tmp_path / "t"), AppendTable(tmp_path / "t")
    write = sleeper._commit

    def sleep(*arguments):
        for _ in range(5):
            other.append(row)
        make_checkpoint(tmp_path / "t")
        assert sum(shorten(tmp_path / "t", 5, time.time() + 1)) == 5
        return write(*arguments)

    monkeypatch.setattr(sleeper, "_commit", sleep)
    assert sleeper.append(row) == 6
    assert versions(tmp_path / "t") == [5, 6] and dataset_of(tmp_path / "t").count_rows() == 6


def test_a_log_is_known_to_be_shortened_or_broken(tmp_path):
    create_table(tmp_path / "t", REQUESTS)
    table, log = AppendTable(tmp_path / "t"), TableLog(tmp_path / "t")
    life = log.life()
    for number in range(6):
        table.append(REQUESTS.rows([dict(request_id=str(number))]))
    log.file(1).rename(tmp_path / "1")
    assert (log.earliest(), log.is_shortened(0)) == (0, False), "a commit is missing: no checkpoint stands in for it"
    (tmp_path / "1").rename(log.file(1))
    make_checkpoint(tmp_path / "t")
    table.append(REQUESTS.rows([dict(request_id="6")]))
    assert sum(shorten(tmp_path / "t", 4, time.time() + 1)) == 0, "somebody has not followed so far"
    assert sum(shorten(tmp_path / "t", 7, time.time() - 60)) == 0, "too young"
    assert sum(shorten(tmp_path / "t", 7, time.time() + 1)) == 6
    assert (log.earliest(), log.latest(0), log.life()) == (6, 7, life)
    assert [log.is_shortened(known) for known in (-1, 0, 3, 4, 5, 6, 7)] == [True] * 4 + [False] * 3
    assert [log.has_news(known) for known in (3, 5, 6, 7)] == [True, True, True, False]
    assert (
        [commit.version for commit in log.commits(5)] == [commit.version for commit in commits_left(log, 0)] == [6, 7]
    )
    for behind in (-1, 0, 3):
        with pytest.raises(LogShortened, match=f"commits {behind + 1} to 5 are no longer in the log"):
            list(log.commits(behind))
    assert open_table(tmp_path / "t").version() == 7 and dataset_of(tmp_path / "t").count_rows() == 7


def test_checkpoints_cost_in_proportion_to_the_commits_and_few_are_left(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "CHECKPOINT_EVERY", 5)
    written = []
    monkeypatch.setattr(
        "pulsar_spark.storage.delta.commits.start_checkpoint",
        lambda table: written.append(make_checkpoint(table)) if table == tmp_path / "t" else None,
    )
    create_table(tmp_path / "t", REQUESTS)
    table = AppendTable(tmp_path / "t")
    for number in range(400):
        table.append(REQUESTS.rows([dict(request_id=str(number))]))
    assert written[:8] == [5, 10, 15, 20, 25, 30, 35, 40] and len(written) < 32, "400 / 5 would be 80"
    assert sum(written) < 10 * 400 and 400 - written[-1] <= 400 / 8 + 5
    left = [each.version for each in checkpoints.checkpoints(tmp_path / "t")]
    assert left == [5, written[-1]], "the day's first, and the newest"
    assert dataset_of(tmp_path / "t").count_rows() == 400


@pytest.mark.parametrize(
    ("said", "is_due"),
    [
        ('{"version": 1000, "size": 800}', True),
        ('{"version": 1000, "size": 801}', False),
        ('{"version": 1000, "size": 9000, "sizeInBytes": 100000}', True),
        ('{"version": 1000, "size": 9000, "sizeInBytes": 9000000}', False),
        ('{"version": 1000, "size": 9000, "sizeInBytes": null}', False),
        ('{"version": 1000, "size": 9000, "sizeInBytes": "much"}', True),
        ("[]", True),
        ("{", True),
    ],
)
def test_files_that_left_the_table_make_checkpoints_little_rarer(tmp_path, said, is_due):
    """They take few bytes. Where nobody can tell how large the last one is, there is another."""
    create_table(tmp_path / "t", REQUESTS)
    (tmp_path / "t/_delta_log/_last_checkpoint").write_text(said)
    assert checkpoints.is_due(tmp_path / "t", 1100) is is_due and not checkpoints.is_due(tmp_path / "t", 1101)


def test_what_was_the_newest_checkpoint_until_just_now_stays(tmp_path, monkeypatch):
    assert CHOSEN_SECONDS >= 60 * 60
    monkeypatch.setattr(checkpoints, "CHOSEN_SECONDS", CHOSEN_SECONDS)
    create_table(tmp_path / "t", REQUESTS)
    table, now, hour = AppendTable(tmp_path / "t"), time.time(), 60 * 60
    written = [now - 30 * hour, now - 29 * hour, now - 20 * hour, now - 10 * hour, now]
    for number, instant in enumerate(written, 1):
        table.append(REQUESTS.rows([dict(request_id=str(number))]))
        open_table(tmp_path / "t").create_checkpoint()
        os.utime(tmp_path / f"t/_delta_log/{number:020d}.checkpoint.parquet", (instant, instant))
    monkeypatch.setattr(checkpoints, "APART_SECONDS", 10**12)
    assert checkpoints.remove_checkpoints(tmp_path / "t") == [2, 3], "until just now the fourth was the newest"


def test_checkpoints_get_rarer_with_their_age_and_none_is_missing_where_a_log_is_to_begin():
    day, days, left = checkpoints.APART_SECONDS, 800, []
    for number in range(4 * days):
        now = 1_000_000 + number * day / 4
        left.append(checkpoints.Checkpoint(number, (), now))
        kept = checkpoints._kept(left, now + 1)
        left = [each for each in left if each.version in kept]
    ages = [0, *((now - each.written) / day for each in reversed(left))]
    assert len(left) < 24
    assert all(older - younger <= max(2, older / 2) for younger, older in zip(ages, ages[1:])), ages
    assert ages[-1] > days / 2, "whatever the retention, a log finds a beginning"


def test_a_log_begins_at_no_checkpoint_that_was_made_just_now(tmp_path, monkeypatch):
    monkeypatch.setattr(shortening, "CHOSEN_SECONDS", CHOSEN_SECONDS)
    create_table(tmp_path / "t", REQUESTS)
    table = AppendTable(tmp_path / "t")
    for number in range(3):
        table.append(REQUESTS.rows([dict(request_id=str(number))]))
    make_checkpoint(tmp_path / "t")
    age(tmp_path / "t/_delta_log", 30)
    table.append(REQUESTS.rows([dict(request_id="3")]))
    make_checkpoint(tmp_path / "t")
    os.utime(TableLog(tmp_path / "t").file(4), (time.time() - 10 * 86_400,) * 2)
    assert sum(shorten(tmp_path / "t", 4, time.time() - 7 * 86_400)) == 3
    assert [each.version for each in checkpoints.checkpoints(tmp_path / "t")] == [3, 4]


def test_the_checkpoint_at_which_a_log_begins_is_kept(tmp_path, monkeypatch):
    create_table(tmp_path / "t", REQUESTS)
    table = AppendTable(tmp_path / "t")
    for number in range(8):
        table.append(REQUESTS.rows([dict(request_id=str(number))]))
        open_table(tmp_path / "t").create_checkpoint()
    sum(shorten(tmp_path / "t", 3, time.time() + 1))
    assert TableLog(tmp_path / "t").earliest() == 4
    monkeypatch.setattr(checkpoints, "_kept", lambda found, now: set())
    assert checkpoints.remove_checkpoints(tmp_path / "t") == [5, 6, 7]
    assert DeltaTable(str(tmp_path / "t"), version=4).version() == 4


def age(folder: Path, days: float) -> None:
    """All files in the folder were written so long before."""
    for file in folder.rglob("*"):
        instant = file.stat().st_mtime - days * 86_400
        os.utime(file, (instant, instant))


def test_files_that_left_the_table_stay_as_long_as_was_promised_though_its_state_forgot_them(tmp_path):
    create_table(tmp_path / "t", REQUESTS)
    table = AppendTable(tmp_path / "t")
    for number in range(4):
        table.append(REQUESTS.rows([dict(request_id=str(number))]))
    age(tmp_path / "t", 20)
    opened = open_table(tmp_path / "t")
    assert joined(tmp_path / "t", opened, [files_of(opened)]) == [4]
    table.append(REQUESTS.rows([dict(request_id="4")]))
    age(tmp_path / "t", 20)
    for file in (tmp_path / "t/_delta_log").glob("*.json"):  # and so long ago the files were removed
        then = str(int((time.time() - 20 * 86_400) * 1000))
        file.write_text(re.sub(r'"deletionTimestamp": \d+', f'"deletionTimestamp": {then}', file.read_text()))
    age(tmp_path / "t/_delta_log", 20)
    make_checkpoint(tmp_path / "t")
    assert unseen_files(tmp_path / "t", time.time() - 30 * 86_400) == []
    assert len(unseen_files(tmp_path / "t", time.time() - 10 * 86_400)) == 4


@pytest.mark.parametrize(
    "interval, days",
    [("interval 30 days", 30), ("INTERVAL 2 weeks 12 hours", 14.5), ("1 day", 1), ("90 minutes", 1 / 16)],
)
def test_what_a_table_s_properties_promise_counts_too(tmp_path, interval, days):
    create_table(tmp_path / "t", REQUESTS)
    opened = open_table(tmp_path / "t")
    assert promised_seconds(opened) == 0
    opened.alter.set_table_properties({"delta.logRetentionDuration": interval})
    assert promised_seconds(open_table(tmp_path / "t")) == days * 86_400
    for number in range(3):
        AppendTable(tmp_path / "t").append(REQUESTS.rows([dict(request_id=str(number))]))
    make_checkpoint(tmp_path / "t")
    steps = partial(keep_house, tmp_path / "t", lambda: Needs(99), history_seconds=0, time_travel_seconds=0)
    assert not any(step.number for step in steps(now=lambda: time.time() + days * 86_400 - 60))
    assert any(step.what == "log_shortened" for step in steps(now=lambda: time.time() + days * 86_400 + 60))


@pytest.mark.parametrize("interval", ["soon", "3 months", "interval 3", "interval 1 day and more", ""])
def test_a_promise_nobody_understands_is_refused(interval):
    with pytest.raises(InvalidConfiguration, match=f"delta.logRetentionDuration '{interval}'"):
        retention._seconds("delta.logRetentionDuration", interval)


# What goes on meanwhile.


def joined(path: Path, table: DeltaTable, groups: Iterable) -> list[int]:
    return [size for step in join(path, table, groups) for size in step]


def grouped(path: Path) -> tuple[DeltaTable, list]:
    table = open_table(path)
    return table, list(groups_of(files_of(table)))


def test_two_that_join_the_same_files_double_nothing(engine):
    path = read_topic(engine.layout, TOPIC).path
    table, groups = grouped(path)
    assert joined(path, table, groups) == [4] * (N // 4)
    assert joined(path, table, groups) == []
    assert len(open_table(path).file_uris()) == len([*path.glob("*.parquet")]) - N == N // 4
    assert payloads(engine) == [b"%d" % number for number in range(N)]


@pytest.mark.parametrize("others", [1, 2])
def test_several_that_keep_house_at_once_lose_nothing(engine, monkeypatch, others):
    """As where a broker was taken over and does not know it yet: a step of one, a step of the next."""
    monkeypatch.setattr(shortening, "COMMITS_A_STEP", 3)
    engine.round([ON.ack(0, N - 3)], 13_000)
    engine.restart(14_000)
    before = whole(engine)
    for kept in kept_tables(engine.layout, read_latest(engine.layout, *NEEDED)):
        if not TableLog(kept.path).exists():
            continue
        make_checkpoint(kept.path)
        rows = dataset_of(kept.path).count_rows()
        options = {"history_seconds": 10**6, "time_travel_seconds": 0, "promises": kept.promises}
        keepers = [keep_house(kept.path, kept.needs, now=lambda: time.time() + 2, **options) for _ in range(1 + others)]
        while keepers:
            keepers = [each for each in keepers if next(each, None) is not None]
        assert dataset_of(kept.path).count_rows() == rows, kept.name
    assert whole(engine) == before and list(examine_root(engine.layout)) == []
    keep(engine)
    assert whole(engine) == before
    engine.round([ON.flow("A", 1)], 15_000)
    assert payloads(engine) == before[-1]


@pytest.mark.parametrize("foreign", ["optimize", "delete", "vacuum", "lost"])
def test_what_others_do_to_the_files_meanwhile_stays_done(engine, foreign):
    path = read_topic(engine.layout, TOPIC).path
    table, groups = grouped(path)
    if foreign == "delete":
        DeltaTable(str(path)).delete("publish_id = '00000000000000000000000000000001'")
    elif foreign == "lost":
        (path / groups[0][0].path).unlink()
    else:
        DeltaTable(str(path)).optimize.compact()
        if foreign == "vacuum":
            DeltaTable(str(path)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert joined(path, table, groups) == {"delete": [4], "lost": [3, 4]}.get(foreign, [])
    left = (
        sorted(dataset_of(path).to_table(filter=pc.field("entry_id") >= 0)["payload"].to_pylist())
        if (foreign != "lost")
        else []
    )
    first = 1 if foreign == "delete" else 0
    assert left in ([], sorted(b"%d" % number for number in range(first, N)))


def test_joined_files_share_a_commit_and_who_stops_in_between_leaves_none(tmp_path, monkeypatch):
    """Readers list a table's files again behind each commit that takes files out."""
    monkeypatch.setattr(joining, "GROUPS", 3)
    create_table(tmp_path / "t", REQUESTS)
    table = AppendTable(tmp_path / "t")
    for number in range(32):
        table.append(REQUESTS.rows([dict(request_id=str(number))]))
    opened, groups = grouped(tmp_path / "t")
    steps = join(tmp_path / "t", opened, groups)
    assert [next(steps) for _ in range(4)] == [[], [], [4, 4, 4], []]
    steps.close()
    assert len(list((tmp_path / "t").glob("*.parquet"))) == 32 + 3, "what was written and not committed is gone"
    DeltaTable(str(tmp_path / "t")).delete("request_id = '31'")
    assert joined(tmp_path / "t", opened, groups[3:]) == [4] * 4, "the last group has changed"
    assert TableLog(tmp_path / "t").latest() == 32 + 1 + 1 + 2
    assert dataset_of(tmp_path / "t").count_rows() == 31 and len(open_table(tmp_path / "t").file_uris()) == 3 + 4 + 3


def test_files_are_joined_by_size_each_row_a_few_times(tmp_path):
    create_table(tmp_path / "t", REQUESTS)
    table, rows = AppendTable(tmp_path / "t"), 0
    for number in range(64):
        table.append(REQUESTS.rows([dict(request_id=str(number))]))
        opened, groups = grouped(tmp_path / "t")
        rows += sum(sum(file.rows for file in group) for group in groups if joined(tmp_path / "t", opened, [group]))
    while groups:
        opened, groups = grouped(tmp_path / "t")
        rows += sum(sum(file.rows for file in group) for group in groups if joined(tmp_path / "t", opened, [group]))
    assert rows <= 3 * 64 and len(opened.file_uris()) <= 9
    rows = dataset_of(tmp_path / "t").to_table()["request_id"].to_pylist()
    assert sorted(rows, key=int) == [str(number) for number in range(64)]


def test_a_table_of_unknown_features_is_left_alone(engine):
    path = read_topic(engine.layout, TOPIC).path
    DeltaTable(str(path)).alter.add_feature([TableFeatures.DeletionVectors], True)
    topic = next(each for each in kept_tables(engine.layout, read_latest(engine.layout, *NEEDED)) if each.path == path)
    steps = keep_house(path, topic.needs, history_seconds=0, time_travel_seconds=0)
    assert {step.what for step in steps} == {"files_removed"} and len(open_table(path).file_uris()) == N


WRITES = (joining, "write_parts"), (Path, "write_text"), (Path, "unlink"), (os, "link"), (pq, "ParquetWriter")
"""A data file, a whole text, a link, or a removal."""


def test_a_crash_at_any_write_loses_nothing(engine, monkeypatch):
    monkeypatch.setattr(shortening, "COMMITS_A_STEP", 3)
    before, crashes, number = whole(engine), 0, 1
    while True:
        try:
            with crash_at_write(number, *WRITES):
                keep(engine, history_seconds=10**6)
            break
        except Crash:
            crashes += 1
        if crashes % 5 == 0:
            assert whole(engine) == before, number
        number += 1
    assert crashes >= 15 and whole(engine) == before
    engine.restart(30_000)
    assert payloads(engine) == before[-1]
