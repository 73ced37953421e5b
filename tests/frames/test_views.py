"""The SQL views over hand-written rounds."""

import pytest
from chispa import assert_df_equality

from pulsar_spark.protocol.keys.selectors import Member, Sticky
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.table_specs import CURSOR_LEDGER
from pulsar_spark.views.view_specs import DRAINING_HASHES, HASH_OWNERS, VIEWS
from pulsar_spark.views.views import create_views
from tests.admin.broker_double import BrokerDouble
from tests.admin.test_key_shared_stats import HASHES, SPLIT, A, B, commit, flights, pending

T = {"topic": "persistent://public/default/t", "topic_id": "t-1", "partition": -1, "subscription": "s"}
OTHER = {**T, "subscription": "other"}
MAPPED = {**T, "subscription": "m"}
GONE = {**T, "topic": "persistent://public/default/gone", "topic_id": "t-2"}

DEALT = {"kind": "range", "status": "pending", "consumer_id": "a", "delivery_round": 2, "redelivery_count": 0}
ROUNDS = {
    1: [
        {"kind": "round"},
        {**T, "kind": "cursor", "mark_delete_position": -1, "read_position": 10},
        {**T, "kind": "consumer", "consumer_id": "a", "permits": 5},
        {**T, "kind": "consumer", "consumer_id": "b", "permits": 5},
        {**T, "kind": "range", "first": 0, "last": 9, "status": "pending", "consumer_id": "a", "delivery_round": 1},
        {**OTHER, "kind": "cursor", "mark_delete_position": 3},
        {**OTHER, "kind": "consumer", "consumer_id": "c"},
        {**OTHER, "kind": "range", "first": 4, "last": 4, "status": "pending", "consumer_id": "c"},
        {**GONE, "kind": "cursor", "mark_delete_position": 1},
        {**GONE, "kind": "consumer", "consumer_id": "d"},
    ],
    # Entries are acknowledged and given back, others dealt, a consumer leaves.
    2: [
        {"kind": "round", "is_snapshot": True},
        {**T, "kind": "cursor", "mark_delete_position": 4, "read_position": 8200},
        {**T, "kind": "range", "first": 5, "last": 6, "status": "acknowledged"},
        {**T, "kind": "range", "first": 7, "last": 9, "status": "replay", "redelivery_count": 1},
        {**T, **DEALT, "first": 10, "last": 31, "positions": [10, 20, 30, 31], "entries": 4},
        {**T, **DEALT, "first": 8192, "last": 8199},
        {**MAPPED, "kind": "cursor", "mark_delete_position": 0},
        {**MAPPED, "kind": "range", "first": 1, "last": 9, "status": "pending", "consumer_id": "a"},
        {**T, "kind": "consumer", "consumer_id": "b", "is_removed": True},
    ],
    # One cursor goes, and is made again; a topic goes; ranges replace a part of one; a part of a delivery is answered.
    3: [
        {"kind": "round"},
        {**MAPPED, "kind": "range", "first": 3, "last": 4, "status": "acknowledged"},
        {**MAPPED, "kind": "range", "first": 5, "last": 5, "status": "replay", "redelivery_count": 1},
        {**OTHER, "kind": "cursor", "is_removed": True},
        {**GONE, "kind": "topic", "is_removed": True, "subscription": None, "partition": None},
        {**T, **DEALT, "first": 31, "last": 9000, "status": "acknowledged"},
    ],
    4: [{"kind": "round"}, {**OTHER, "kind": "cursor", "mark_delete_position": 0}],
}


@pytest.fixture
def views(spark, layout):
    ledger = AppendTable(layout.broker_table("cursor_ledger"))
    for number, rows in ROUNDS.items():
        ledger.append(CURSOR_LEDGER.rows([dict(row, round=number) for row in rows]))
    return create_views(spark, layout.root)


def test_the_latest_round_wins(spark, views):
    cursors = spark.sql("select subscription, mark_delete_position, round from cursors")
    assert_df_equality(
        cursors,
        spark.createDataFrame([("s", 4, 2), ("other", 0, 4), ("m", 0, 2)], cursors.schema),
        ignore_row_order=True,
    )
    pending = spark.sql("select subscription, first, last, entries, status, redelivery_count from pending_acks")
    found = [("s", 7, 9, 3, "replay", 1), *(("s", at, at, 1, "pending", 0) for at in (10, 20, 30))]
    of_map = [(1, 2, "pending", None), (5, 5, "replay", 1), (6, 9, "pending", None)]
    found += [("m", first, last, last + 1 - first, *says) for first, last, *says in of_map]
    assert_df_equality(pending, spark.createDataFrame(found, pending.schema), ignore_row_order=True)
    consumers = spark.sql("select subscription, consumer_id, permits from consumers")
    assert_df_equality(consumers, spark.createDataFrame([("s", "a", 5)], consumers.schema), ignore_row_order=True)
    rounds = spark.sql("select round, is_snapshot from rounds")
    assert_df_equality(
        rounds,
        spark.createDataFrame([(1, None), (2, True), (3, None), (4, None)], rounds.schema),
        ignore_row_order=True,
    )


def test_sql_over_views_takes_parameters(spark, views):
    """Delta's SQL parser ignores them; the session has Spark fill them in afterwards."""
    for name in views:
        assert spark.sql(f"SELECT * FROM {name} WHERE :given = 1", args={"given": 1}).columns
        assert spark.sql(f"SELECT * FROM {name} WHERE ? = 1", args=[1]).columns
    found = spark.sql(
        "SELECT subscription FROM cursors WHERE mark_delete_position = "
        "(SELECT max(mark_delete_position) FROM cursors WHERE round <= :last_round)",
        args={"last_round": 2},
    )
    assert [row.subscription for row in found.collect()] == ["s"]


def test_views_have_the_columns_that_are_documented(spark, views):
    for view in VIEWS:
        assert spark.table(view.name).columns == [column.name for column in view.columns]
    for spec in (HASH_OWNERS, DRAINING_HASHES):
        assert spark.table(spec.name).columns == [column.name for column in spec.columns]
        assert spark.table(spec.name).count() == 0, "nobody is connected to a Key_Shared subscription"


def test_owners_of_hashes_join_with_messages_and_what_drains_says_for_whom(spark, layout):
    topic, double = flights(layout), BrokerDouble(layout)
    create_views(spark, layout.root)
    commit(double, topic, SPLIT, [pending(0, 4, A), pending(5, 5, A, due=1_000_000)], at=0)
    owners = spark.table("hash_ranges").drop("topic")
    ranges = [(-1, "s", "b", B, 0, 32_768, 65_536, 0, 1, 0), (-1, "s", "a", A, 32_769, 65_536, 65_536, 0, 1, 0)]
    assert_df_equality(owners, spark.createDataFrame(ranges, owners.schema), ignore_row_order=True)
    spark.read.format("delta").load(str(topic.path)).createOrReplaceTempView("flights")
    owned = spark.sql("""
        SELECT m.sticky_key_hash, r.consumer_name FROM flights m JOIN hash_ranges r
        ON m.sticky_key_hash % r.axis_size + r.axis_start BETWEEN r.range_start AND r.range_end
        AND m.sticky_key_hash % r.sharers = r.share""")
    expected = [(code, "b" if code % 65_536 <= 32_768 else "a") for code in HASHES]
    assert_df_equality(owned, spark.createDataFrame(expected, owned.schema), ignore_row_order=True)
    waiting = spark.sql("""
        SELECT sticky_key_hash, owner_name, consumer_name, is_draining, first, entries, messages,
            unix_micros(due_time) due
        FROM draining_hashes""")
    expected = [
        (10, "b", "a", True, 0, 2, 2, None),
        (HASHES[3], "b", "a", True, 3, 1, 1, None),
        (HASHES[4], "b", "a", True, 4, 1, 1, None),
        (HASHES[5], "a", "a", False, 5, 1, 1, 1_000_000),
    ]
    assert_df_equality(waiting, spark.createDataFrame(expected, waiting.schema), ignore_row_order=True)


def test_hashes_that_nobody_owns_are_said(spark, layout):
    sticky = Sticky(is_exact=True).joined(Member(A, "a", ((5, 9), (20, 65_000))))
    commit(BrokerDouble(layout), flights(layout), sticky, [], rules={}, cursor={"key_shared_mode": "STICKY"})
    create_views(spark, layout.root)
    owners = spark.sql("SELECT consumer_name, range_start, range_end FROM hash_ranges")
    expected = [(None, 0, 4), ("a", 5, 9), (None, 10, 19), ("a", 20, 65_000), (None, 65_001, 65_535)]
    assert_df_equality(owners, spark.createDataFrame(expected, owners.schema), ignore_row_order=True)
