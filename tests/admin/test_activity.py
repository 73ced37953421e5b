"""What of the stats has to do with time: rates of the last minute, the age of the oldest delivery, what waits, what is
dead. Over hand-written rounds."""

from datetime import timedelta

import pytest

from pulsar_spark.broker.committing.round_rows import CursorRanges
from pulsar_spark.protocol.acknowledgement.cursor import Range
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.topics.topics import create_topic
from pulsar_spark.table_specs import MESSAGES
from pulsar_spark.views.stats import Observation, partition_stats, read_stored
from pulsar_spark.views.stats_sums import sum_stats
from pulsar_spark.views.stats_table import STATS, stats_rows
from tests.admin.broker_double import BrokerDouble

TOPIC = "persistent://public/default/orders"


@pytest.fixture
def topic(layout, clock):
    """Three rounds, 200, 30 and 5 seconds ago; the first two deliver two and three messages to ``a``,
    the last delivers one again and two batches of four to ``b``."""
    topic = create_topic(layout, TOPIC)
    for age, publish_id in ((300, "0"), (50, "1")):
        AppendTable(topic.path).append(
            MESSAGES.rows(
                [
                    {
                        "publish_id": publish_id * 32,
                        "entry_id": entry,
                        "partition": -1,
                        "publish_time": clock() - timedelta(seconds=age),
                    }
                    for entry in range(6)
                ]
            )
        )
    key, broker = CursorKey(topic.topic_id, -1, "s"), BrokerDouble(layout)
    common = {"topic": TOPIC, "topic_id": topic.topic_id, "partition": -1}
    cursor = {
        **common,
        "kind": "cursor",
        "subscription": "s",
        "subscription_type": "Shared",
        "mark_delete_position": -1,
        "read_position": 9,
    }
    consumers = [
        {**common, "kind": "consumer", "subscription": "s", "consumer_id": name, "consumer_name": name, "join_order": 0}
        for name in "ab"
    ]
    reset = {**common, "kind": "reset", "subscription": "s"}
    first, second = Range(0, 1, "pending", "a", 1, 0, None, None, 1), Range(2, 4, "pending", "a", 2, 0, None, None, 1)
    later = int((clock() + timedelta(minutes=1)).timestamp() * 1_000_000)
    rounds = [
        [first],
        [first, second],
        [
            first._replace(last=0),
            Range(1, 1, "pending", "b", 3, 1, None, None, 1),
            Range(2, 3, "replay", None, None, 1, later, None, 1),
            Range(4, 4, "replay", None, None, 1, 0, None, 1),
            Range(5, 6, "pending", "b", 3, 0, None, None, 4),
        ],
    ]
    for age, ranges in zip((200, 30, 5), rounds):
        broker.commit_round(
            [{**common, "kind": "topic", "ledger_id": 2, "end_position": 12}, cursor, *consumers, reset],
            [CursorRanges(key, TOPIC, ranges)],
            clock() - timedelta(seconds=age),
        )
    dead = create_topic(layout, f"{TOPIC}-s-DLQ")
    AppendTable(dead.path).append(
        MESSAGES.rows([{"publish_id": "d" * 32, "entry_id": entry, "partition": -1} for entry in range(5)])
    )
    return topic


def test_stats_of_the_last_minute(layout, clock, topic):
    found = partition_stats(Observation(layout, clock()), topic, -1, read_stored(topic)[-1])
    assert (found["msgInCounter"], found["msgRateIn"]) == (12, 0.1)
    subscription = found["subscriptions"]["s"]
    delivered_lately, delivered_again = 3 + 1 + 2 * 4, 1
    assert (subscription["msgRateOut"], subscription["msgRateRedeliver"]) == (
        round(delivered_lately / 60, 3),
        round(delivered_again / 60, 3),
    )
    assert (subscription["unackedMessages"], subscription["oldestUnackedSeconds"]) == (1 + 1 + 8, 200)
    assert (subscription["msgDelayed"], subscription["deadLetters"]) == (2, 5)
    a, b = subscription["consumers"]
    assert (a["msgRateOut"], a["oldestUnackedSeconds"]) == (0.05, 200)
    assert (b["msgRateOut"], b["msgRateRedeliver"], b["oldestUnackedSeconds"]) == (0.15, 0.017, 5)


def test_nothing_happened_lately_an_hour_later(layout, clock, topic):
    found = partition_stats(Observation(layout, clock.advance(hours=1)), topic, -1, read_stored(topic)[-1])
    subscription = found["subscriptions"]["s"]
    assert (
        found["msgRateIn"],
        subscription["msgRateOut"],
        subscription["msgDelayed"],
        subscription["oldestUnackedSeconds"],
    ) == (0, 0, 0, 3800)


def test_the_sum_of_partitions_has_the_oldest_age_and_one_dead_letter_topic(layout, clock, topic):
    part = partition_stats(Observation(layout, clock()), topic, -1, read_stored(topic)[-1])
    other = partition_stats(Observation(layout, clock.advance(seconds=100)), topic, -1, read_stored(topic)[-1])
    total = sum_stats({0: part, 1: other})["subscriptions"]["s"]
    assert (total["oldestUnackedSeconds"], total["deadLetters"], total["msgDelayed"]) == (300, 5, 2)
    assert total["msgBacklogNoDelayed"] == total["msgBacklog"] - 2
    assert [consumer["oldestUnackedSeconds"] for consumer in total["consumers"]] == [300, 105]


def test_rows_have_a_place_and_only_what_is_theirs(layout, clock, topic):
    rows = list(stats_rows(Observation(layout, clock()), [topic]))
    places = [
        (
            row.get("subscription"),
            row.get("consumer_name"),
            row.get("messages"),
            row.get("backlog"),
            row.get("dead"),
            row.get("unacked"),
        )
        for row in rows
    ]
    assert places == [
        (None, None, 12, None, None, None),
        ("s", None, None, 12, 5, 10),
        ("s", "a", None, None, None, 1),
        ("s", "b", None, None, None, 9),
    ]
    assert STATS.rows(rows).num_rows == 4
