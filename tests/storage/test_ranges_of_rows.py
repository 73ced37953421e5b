"""Ranges of a cursor's rows as the exact ranges they mean, also where rows name the positions of entries."""

import numpy as np

from pulsar_spark.protocol.acknowledgement.cursor import Range
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, LatestRows, read_latest
from pulsar_spark.storage.delta.scan import open_table
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.topics.topics import Topic, create_topic
from pulsar_spark.table_specs import MESSAGES
from pulsar_spark.views.draining import entries_where
from tests.admin.broker_double import BrokerDouble, number
from tests.conftest import START
from tests.support.named_entries import named

LOW, HIGH = 5, 40_000
PENDING = Range(0, 0, "pending", "A", 1, 0, None, None, 1)
ACKED = Range(0, 0, "acknowledged")
AGAIN = Range(0, 0, "replay", None, None, 1, None, (2,), 2)


def published(layout, hashes, **columns) -> Topic:
    """A topic with an entry for each of *hashes*, None = not stored."""
    topic = create_topic(layout, "t")
    message = dict(publish_id="p" * 32, batch_size=1, partition=-1, publish_time=START, partition_key="k", payload=b"m")
    entries = [message | columns | dict(entry_id=at, sticky_key_hash=code) for at, code in enumerate(hashes)]
    AppendTable(topic.path).append(MESSAGES.rows(entries))
    number(layout, topic)
    return topic


def state(layout, topic, ranges, mark_delete=-1) -> tuple[LatestRows, CursorKey]:
    """What a reader finds after a round in which a cursor has these exact *ranges*."""
    key = CursorKey(topic.topic_id, -1, "s")
    cursor = dict(kind="cursor", topic=str(topic.name), **key._asdict(), mark_delete_position=mark_delete)
    BrokerDouble(layout).commit_round([cursor], named(key, str(topic.name), ranges))
    return read_latest(layout), key


def spans(states: list[Range | None]) -> list[Range]:
    """One range a run of equal states, of the entries at positions 0, 1, 2..."""
    found: list[Range] = []
    for at, held in enumerate(states):
        if held is None:
            continue
        if found and found[-1].last == at - 1 and found[-1][2:] == held[2:]:
            found[-1] = found[-1]._replace(last=at)
        else:
            found.append(held._replace(first=at, last=at))
    return found


def test_entries_that_rows_name_come_back_as_the_ranges_they_were(layout):
    random = np.random.default_rng(9)
    states = [[None, PENDING, ACKED, AGAIN][each] for each in random.choice(4, 300, p=[0.1, 0.4, 0.3, 0.2])]
    states[0] = PENDING
    latest, key = state(layout, published(layout, [LOW] * 300), spans(states))
    assert latest.ranges(key) == spans(states)
    assert sum(held.size for held in latest.states(key)) == 300 - states.count(None)


def test_what_is_below_mark_delete_is_left_out(layout):
    topic = published(layout, [LOW, HIGH] * 4)
    latest, key = state(layout, topic, spans([ACKED] * 6 + [PENDING] * 2), mark_delete=3)
    found = latest.ranges(key)
    assert [(held.first, held.last, held.status) for held in found] == [(6, 7, "pending")]


def test_a_reset_ends_the_ranges_of_earlier_rounds(layout):
    topic, double = published(layout, [LOW] * 8), BrokerDouble(layout)
    key, name = CursorKey(topic.topic_id, -1, "s"), str(topic.name)
    cursor = dict(kind="cursor", topic=name, **key._asdict(), mark_delete_position=5)
    double.commit_round([cursor], named(key, name, [PENDING._replace(first=6, last=7)]))
    back = [ACKED._replace(first=1, last=2)]
    double.commit_round([cursor | {"kind": "reset"}, cursor | {"mark_delete_position": -1}], named(key, name, back))
    assert read_latest(layout).ranges(key) == back


def test_entries_in_wanted_states_are_found_with_these(layout):
    latest, key = state(layout, published(layout, [LOW] * 20), spans([PENDING] * 4 + [ACKED] * 9 + [AGAIN] * 6))
    states, positions, places = entries_where(latest.entries(key), lambda each: each.status != "acknowledged")
    assert positions.tolist() == [0, 1, 2, 3, *range(13, 19)]
    assert [states[place].status for place in places] == ["pending"] * 4 + ["replay"] * 6
    assert [len(column) for column in entries_where(latest.entries(key), lambda each: False)] == [0, 0, 0]


def test_rows_that_name_entries_outlive_an_optimize_and_a_checkpoint(layout):
    topic = published(layout, [LOW, HIGH] * 4)
    ranges = spans([PENDING, ACKED, AGAIN, PENDING] * 2)
    before, key = state(layout, topic, ranges)
    BrokerDouble(layout).commit_round([])
    ledger = open_table(layout.broker_table("cursor_ledger"))
    ledger.optimize.compact()
    ledger.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    ledger.create_checkpoint()
    after = read_latest(layout)
    assert after.ranges(key) == before.ranges(key)
    assert after.ranges(key) == ranges
