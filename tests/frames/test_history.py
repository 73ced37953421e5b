"""The history over hand-written rounds and requests: each delivery once, what was asked with its asker, nothing that
was refused."""

from chispa import assert_df_equality

from pulsar_spark.protocol.acknowledgement.cursor import Range
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.table_specs import CURSOR_LEDGER, REQUESTS
from pulsar_spark.views.views import create_views
from tests.admin.broker_double import BrokerDouble
from tests.storage.test_ranges_of_rows import HIGH, LOW, published
from tests.support.named_entries import named

S = {"topic": "persistent://public/default/t", "partition": -1, "subscription": "s"}
T = {**S, "topic_id": "t-1"}
PENDING = {**T, "kind": "range", "status": "pending", "consumer_id": "a"}
COLUMNS = "time, event, first, last, consumer_name, redelivery_count, round, request_id, reason"


def test_who_received_acknowledged_and_gave_back_what_when(spark, layout, clock):
    times = [clock()] + [clock.advance(seconds=1) for _ in range(11)]
    rounds = {
        1: [
            {**T, "kind": "consumer", "consumer_id": "a", "consumer_name": "anna"},
            {**PENDING, "first": 0, "last": 9, "delivery_round": 1, "redelivery_count": 0},
        ],
        # Ranges are written again; only what is delivered again is a delivery. A snapshot repeats the consumer.
        2: [
            {**T, "kind": "range", "first": 0, "last": 2, "status": "acknowledged"},
            {**PENDING, "first": 3, "last": 3, "delivery_round": 2, "redelivery_count": 1},
            {**PENDING, "first": 4, "last": 9, "delivery_round": 1},
            {**T, "kind": "consumer", "consumer_id": "a", "consumer_name": "anna"},
            {"kind": "reply", "request_id": "r-3", "error": "InvalidMessage"},
        ],
        3: [
            {**T, "kind": "letter", "status": "dead", "first": 3, "last": 3, "consumer_id": "a", "redelivery_count": 2},
            {
                **T,
                "kind": "letter",
                "status": "retry",
                "first": 5,
                "last": 5,
                "consumer_id": "a",
                "redelivery_count": 0,
                "request_id": "r-6",
            },
            {
                **T,
                "kind": "letter",
                "status": "dead",
                "first": 7,
                "last": 7,
                "consumer_id": "a",
                "redelivery_count": 0,
                "request_id": "r-7",
            },
            {**T, "kind": "consumer", "consumer_id": "a", "is_removed": True, "text": "closed"},
        ],
    }
    ledger = AppendTable(layout.broker_table("cursor_ledger"))
    for number, rows in rounds.items():
        ledger.append(
            CURSOR_LEDGER.rows(
                [dict(row, round=number) for row in [{"kind": "round", "round_time": times[number]}, *rows]]
            )
        )
    asked = [
        ("ack", 0, 2, {}),
        ("negative_ack", 3, 3, {"delay_ms": 5}),
        ("cumulative_ack", None, 4, {"properties": {"why": "done"}}),
        ("ack", 99, 99, {}),
        ("redeliver_all", None, None, {}),
        ("flow", None, None, {"permits": 5}),
        ("reconsume_later", 5, 5, {}),
        ("reconsume_later", 7, 7, {"properties": {"is_cumulative": "true"}}),
    ]
    AppendTable(layout.broker_table("requests")).append(
        REQUESTS.rows(
            [
                {
                    **S,
                    "kind": kind,
                    "first": first,
                    "last": last,
                    "consumer_id": "a",
                    "request_id": f"r-{number}",
                    "request_time": times[4 + number],
                    **more,
                }
                for number, (kind, first, last, more) in enumerate(asked)
            ]
        )
    )
    assert "history" in create_views(spark, layout.root)
    found = spark.sql(f"select {COLUMNS} from history")
    expected = spark.createDataFrame(
        [
            (times[1], "delivered", 0, 9, "anna", 0, 1, None, None),
            (times[2], "delivered", 3, 3, "anna", 1, 2, None, None),
            (times[3], "dead_lettered", 3, 3, "anna", 2, 3, None, None),
            (times[3], "consumer_left", None, None, "anna", None, 3, None, "closed"),
            (times[3], "retry_lettered", 5, 5, "anna", 0, 3, "r-6", None),
            (times[3], "dead_lettered", 7, 7, "anna", 0, 3, "r-7", None),
            (times[10], "reconsume_later_asked", 5, 5, "anna", None, None, "r-6", None),
            (times[11], "reconsume_later_asked", None, 7, "anna", None, None, "r-7", None),
            (times[4], "acknowledged", 0, 2, "anna", None, None, "r-0", None),
            (times[5], "negatively_acknowledged", 3, 3, "anna", None, None, "r-1", None),
            (times[6], "acknowledged", None, 4, "anna", None, None, "r-2", None),
            (times[8], "redelivery_asked", None, None, "anna", None, None, "r-4", None),
        ],
        found.schema,
    )
    assert_df_equality(found, expected, ignore_row_order=True, ignore_nullable=True)
    of_message_three = spark.sql("select event from history where 3 between coalesce(first, 0) and last order by time")
    expected = [
        ("delivered",),
        ("delivered",),
        ("dead_lettered",),
        ("negatively_acknowledged",),
        ("acknowledged",),
        ("reconsume_later_asked",),
    ]
    assert_df_equality(of_message_three, spark.createDataFrame(expected, of_message_three.schema), ignore_nullable=True)
    extra = spark.sql(
        "select delay_ms, properties['why'] why from history where delay_ms is not null or properties['why'] is "
        "not null"
    )
    assert_df_equality(
        extra,
        spark.createDataFrame([(5, None), (None, "done")], extra.schema),
        ignore_row_order=True,
        ignore_nullable=True,
    )


def test_deliveries_that_name_their_entries_are_told_entry_by_entry(spark, layout):
    """Of who got a message, and acknowledged it, only who was sent it."""
    hashes = [LOW, HIGH, LOW, LOW, HIGH, HIGH]
    topic = published(layout, hashes)
    key, double = CursorKey(topic.topic_id, -1, "s"), BrokerDouble(layout)
    place = {"topic": str(topic.name), "partition": -1, "subscription": "s"}
    held = [Range(at, at, "pending", "ab"[code == HIGH], 1, 0, None, None, 1) for at, code in enumerate(hashes)]
    consumers = [{**place, "kind": "consumer", "consumer_id": name, "consumer_name": name} for name in "ab"]
    double.commit_round(consumers, named(key, str(topic.name), held))
    ack = {**place, "kind": "ack", "consumer_id": "a", "first": 0, "last": 2}
    AppendTable(layout.broker_table("requests")).append(
        REQUESTS.rows(
            [
                ack | {"request_id": "1", "properties": [("delivery_round", "1")]},
                ack | {"request_id": "2", "properties": [("delivery_round", "7")]},
                ack | {"request_id": "3", "consumer_id": "b", "first": 4, "last": 4},
            ]
        )
    )
    create_views(spark, layout.root)
    found = spark.sql("select topic, event, consumer_id, first, last, request_id from history")
    rows = {tuple(row)[1:] for row in found.filter(found.topic == str(topic.name)).collect()}
    assert rows == {
        ("delivered", "a", 0, 0, None),
        ("delivered", "a", 2, 3, None),
        ("delivered", "b", 1, 1, None),
        ("delivered", "b", 4, 5, None),
        ("acknowledged", "a", 0, 0, "1"),
        ("acknowledged", "a", 2, 2, "1"),
        ("acknowledged", "a", 0, 2, "2"),
        ("acknowledged", "b", 4, 4, "3"),
    }
