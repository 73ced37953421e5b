"""The latest row of each fact wins: by keys that are said once, whichever kinds somebody reads."""

import pyarrow as pa
import pytest

from pulsar_spark.broker.committing.round_rows import rows_of_round
from pulsar_spark.storage.cursor_ledger.client_rows import client_rows
from pulsar_spark.storage.cursor_ledger.committed_rounds import rows_of
from pulsar_spark.storage.cursor_ledger.cursor_ledger import (
    HANGS_ON,
    KEYS,
    OF_ONE_ROUND,
    CursorKey,
    LatestRows,
    concerned,
    read_latest,
)
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.table_specs import CURSOR_LEDGER
from tests.support.requests import On, request
from tests.support.spark_engine import new_engine

TOPIC, OTHER = "persistent://public/default/t", "persistent://public/default/u"
FOUND_IN = {
    "round": ["round_row"],
    "topic": ["topics"],
    "cursor": ["cursors"],
    "consumer": ["consumers"],
    "range": [],
    "policy": ["policies", "owners"],
    "letter": ["letters"],
    "letterless": ["letterless"],
    "waiting_letter": ["waiting_letters"],
    "set_aside": ["set_aside"],
    "waiting_request": ["waiting_requests"],
}


def test_every_kind_of_the_table_has_a_key_or_counts_in_its_round_alone():
    meaning = next(column.meaning for column in CURSOR_LEDGER.columns if column.name == "kind")
    assert {kind.strip() for kind in meaning.split(",")} == {*KEYS, *OF_ONE_ROUND, "range"}
    assert {name for key in KEYS.values() for name in key} <= set(CURSOR_LEDGER.schema.names)


def ranges(latest: LatestRows) -> dict:
    return {key: latest.ranges(key) for key in latest.cursors}


@pytest.fixture
def layout(tmp_path):
    """A root on which much was made, changed, removed, and made again."""
    engine = new_engine(None, tmp_path)
    engine.create_topic(TOPIC)
    engine.create_topic(OTHER)
    one, two, other = On(TOPIC), On(TOPIC, subscription="s2"), On(OTHER)
    engine.publish(TOPIC, -1, [1] * 20)
    engine.publish(OTHER, -1, [1] * 5, deliver_at_ms=[2, None, 2, None, 9])
    engine.round([on.subscribe("A") for on in (one, two, other)] + [one.policy("message_ttl_seconds", 60)], 0)
    engine.round([on.flow("A", 10) for on in (one, two, other)] + [one.policy("backlog_quota_bytes", 5)], 1)
    engine.round(
        [one.ack(3, 4), two.ack(0, 2), two.unsubscribe("A"), other.close("A"), one.policy("message_ttl_seconds")], 2
    )
    engine.round([two.subscribe("B"), two.flow("B", 3), one.negative_ack("A", 1, 2, delay_ms=9)], 3)
    engine.round(
        [request("policy", properties={"namespace": "public/default", "name": "ttl_check_seconds", "value": 5})], 4
    )
    return engine.layout


@pytest.mark.parametrize("kind", HANGS_ON)
def test_who_reads_one_kind_finds_of_it_what_who_reads_all_finds(layout, kind):
    everything, found = read_latest(layout), read_latest(layout, kind)
    for name in FOUND_IN[kind]:
        assert getattr(found, name) == getattr(everything, name)
    if kind == "range":
        assert ranges(found) == ranges(everything)
    assert (found.round, found.version) == (everything.round, everything.version)


def test_who_follows_finds_what_who_begins_finds(layout):
    path = layout.broker_table("cursor_ledger")
    latest = LatestRows()
    latest.catch_up(path)
    removed = dict(kind="policy", topic="public/default", properties=[("ttl_check_seconds", None)], is_removed=True)
    AppendTable(path).append(rows_of_round(latest.round + 1, [removed, {"kind": "round"}], []))
    latest.catch_up(path)
    again = read_latest(layout)
    assert (latest.policies, latest.cursors, ranges(latest)) == (again.policies, again.cursors, ranges(again))
    assert latest.round == again.round and ("public/default", "ttl_check_seconds") not in latest.policies


@pytest.mark.parametrize("kind", HANGS_ON)
def test_who_follows_one_kind_round_by_round_finds_of_it_what_who_reads_all_finds(layout, kind):
    """Rounds that say they have nothing of it are passed over."""
    path, followed, everything = layout.broker_table("cursor_ledger"), LatestRows(kind), LatestRows()
    log = TableLog(path)
    for commit in log.commits(0):
        rows = rows_of(path, commit, None)
        everything.apply(rows)
        if not followed.version:
            followed.apply(rows_of(path, commit, followed.kinds))
            followed.version = commit.version
    followed.catch_up(path)
    for name in set(FOUND_IN[kind]) - {"round_row"}:
        assert getattr(followed, name) == getattr(everything, name)
    assert followed.version == log.latest()


def test_a_round_says_whom_it_concerns(layout):
    path = layout.broker_table("cursor_ledger")
    subscribed, acknowledged = (TableLog(path).commit(version) for version in (1, 3))
    assert {"A", "round", "cursor", "consumer", "policy", "topic"} < subscribed.concerns
    assert subscribed.may_concern(["x", "A"]) and not subscribed.may_concern(["x", "snapshot"])
    assert acknowledged.concerns >= {"range", "policy"}


def test_a_round_for_very_many_is_for_all():
    def whom(names):
        rows = rows_of_round(1, [{"kind": "reply", "request_id": name} for name in names], [])
        return concerned(rows, client_rows(rows))

    assert whom(f"a-b-{number}" for number in range(1000)) == ["a-b", "reply"]
    assert whom(f"{number}-1" for number in range(1000)) is None
    assert whom(f"a-{number}" for number in range(20_000)) is None


def test_what_is_removed_and_made_anew_in_one_round_is_there():
    key = CursorKey("id", -1, "s")
    place = dict(topic=TOPIC, **key._asdict())
    facts = [
        {"kind": "consumer", **place, "consumer_id": "A", "is_removed": True},
        {"kind": "cursor", **place, "is_removed": True},
        {"kind": "cursor", **place, "mark_delete_position": 7},
    ]
    latest = LatestRows()
    before = [{"kind": "cursor", **place}, {"kind": "consumer", **place, "consumer_id": "A"}]
    latest.apply(rows_of_round(1, before, []))
    latest.apply(pa.concat_tables([rows_of_round(2, facts, [])]))
    assert latest.cursors[key]["mark_delete_position"] == 7 and latest.consumers == {key: {}}
