"""Ranges of lanes as the exact ranges they mean: what any reader of a cursor's rows gets to see."""

import numpy as np
import pytest

from pulsar_spark.broker.committing.round_rows import PageRows, rows_of_round
from pulsar_spark.protocol.acknowledgement.cursor import Range
from pulsar_spark.protocol.keys.hash_ranges import SLOTS, OwnedRange
from pulsar_spark.protocol.keys.lanes import HashRange, LaneHashes, lane_numbers
from pulsar_spark.protocol.keys.sticky_key import sticky_key_hash
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, LatestRows, read_latest
from pulsar_spark.storage.cursor_ledger.lane_ranges import exact_ranges, page_ranges, read_held
from pulsar_spark.storage.delta.scan import open_table
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.entries import key_hashes
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.topics import Topic, create_topic
from pulsar_spark.table_specs import MESSAGES
from tests.admin.broker_double import BrokerDouble, number
from tests.conftest import START
from tests.support.lanes import in_lanes, lanes_of

HALVES = lanes_of(OwnedRange(0, 32_767, "a"), OwnedRange(32_768, 65_535, "b"))
SHARED = lanes_of(OwnedRange(0, 99, "a", 2, 0), OwnedRange(0, 99, "c", 2, 1), OwnedRange(100, 65_535, "b"))
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


def state(layout, topic, lanes, hashes, ranges, mark_delete=-1) -> tuple[LatestRows, CursorKey]:
    """What a reader finds after a round in which a cursor has these exact *ranges*, kept by lanes; without lanes they
    are written as they are."""
    key = CursorKey(topic.topic_id, -1, "s")
    facts, pages = in_lanes(key, str(topic.name), lanes, hashes, ranges)
    cursor = dict(kind="cursor", topic=str(topic.name), **key._asdict(), mark_delete_position=mark_delete)
    BrokerDouble(layout).commit_round([cursor, *facts], pages)
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


@pytest.mark.parametrize("lanes", [lanes_of(), HALVES, SHARED], ids=["one", "two", "shared"])
def test_lanes_come_back_as_the_ranges_they_were_made_of(layout, lanes):
    random = np.random.default_rng(9)
    hashes = random.choice([LOW, HIGH, 8, 65_536 + 9, 2**31 - 1], 300).tolist()
    states = [[None, PENDING, ACKED, AGAIN][each] for each in random.choice(4, 300, p=[0.1, 0.4, 0.3, 0.2])]
    topic = published(layout, hashes)
    latest, key = state(layout, topic, lanes, hashes, spans(states))
    assert list(exact_ranges(latest, key, LedgerIndex(layout), topic.path)) == spans(states)
    assert sum(held.size for held in latest.ranges(key)) == 300 - states.count(None)
    assert all(page < 0 for page in latest.lanes[key])


@pytest.mark.parametrize("status", [PENDING, ACKED])
def test_of_what_was_deleted_nobody_knows_the_lane(layout, status):
    """Its hash is that of no key, which lies in the other lane: that one's range does not take it in."""
    without_key = sticky_key_hash(b"NONE_KEY")
    mine, others = (LOW, HIGH) if without_key % 65_536 > 32_767 else (HIGH, LOW)
    hashes = [mine, others, mine, mine, others, mine]
    topic = published(layout, hashes)
    states = [PENDING._replace(consumer_id="B") if each == others else status for each in hashes]
    latest, key = state(layout, topic, HALVES, hashes, spans(states))
    open_table(topic.path).delete("entry_id in (2, 4)")
    found = list(exact_ranges(latest, key, LedgerIndex(layout), topic.path))
    expected = [None if at in (2, 4) else held for at, held in enumerate(states)]
    assert found == spans(expected)
    assert sum(held.size for held in latest.ranges(key)) == len(hashes), "who counts goes by what rows say"


def test_what_is_below_mark_delete_is_left_out(layout):
    hashes = [LOW, HIGH] * 4
    topic = published(layout, hashes)
    latest, key = state(layout, topic, HALVES, hashes, spans([ACKED] * 6 + [PENDING] * 2), mark_delete=3)
    found = list(exact_ranges(latest, key, LedgerIndex(layout), topic.path))
    assert [(held.first, held.last, held.status) for held in found] == [(4, 5, "acknowledged"), (6, 7, "pending")]


def test_a_cursor_without_lanes_is_as_it_was_and_nothing_is_read(layout):
    topic = published(layout, [LOW] * 3)
    key = CursorKey(topic.topic_id, -1, "s")
    latest = LatestRows()
    latest.cursors[key], latest.lanes[key] = {"mark_delete_position": -1, "main_mark_delete_position": None}, {}
    latest.pages[key] = {5: [PENDING._replace(first=5, last=6)], 0: [ACKED._replace(first=1, last=2)]}
    assert list(exact_ranges(latest, key, None, None)) == [
        ACKED._replace(first=1, last=2),
        PENDING._replace(first=5, last=6),
    ]


def test_hashes_that_nobody_stored_are_computed(layout):
    topic = published(layout, [None] * 4, partition_key="k")
    of_k = sticky_key_hash(b"k")
    lanes = lanes_of(OwnedRange(of_k % 65_536, of_k % 65_536, "a"))
    ranges = spans([PENDING, PENDING, ACKED, PENDING])
    latest, key = state(layout, topic, lanes, [of_k] * 4, ranges)
    assert list(exact_ranges(latest, key, LedgerIndex(layout), topic.path)) == ranges and len(latest.lanes[key]) == 1


def test_only_what_asked_ranges_cover_is_read(layout, monkeypatch):
    hashes = [LOW, HIGH] * 3000
    topic, read = published(layout, hashes), []

    def read_hashes(table, runs):
        runs = list(runs)
        read.extend((run.first_position, run.last_position) for run in runs)
        return found(table, runs)

    found = key_hashes.read_hashes
    monkeypatch.setattr(key_hashes, "read_hashes", read_hashes)
    ranges = spans([PENDING] * 4 + [ACKED] * 4990 + [AGAIN] * 6 + [ACKED] * 1000)
    latest, key = state(layout, topic, HALVES, hashes, ranges)
    asked = [one for one in page_ranges(latest, key) if one.held.status != "acknowledged"]
    positions, of_entries, places = read_held(latest, key, LedgerIndex(layout), topic.path, asked)
    assert positions.tolist() == [0, 1, 2, 3, *range(4994, 5000)] and of_entries.tolist() == [LOW, HIGH] * 5
    assert [asked[place].held.status for place in places] == ["pending"] * 4 + ["replay"] * 6
    assert read == [(0, 3), (4994, 4999)]
    assert [column.tolist() for column in read_held(latest, key, None, None, [])] == [[], [], []]


def test_the_lane_of_each_hash_whatever_rows_borders_are():
    lanes = [
        LaneHashes(SLOTS, (HashRange(0, 99, 2, 0), HashRange(500, 65_535))),
        LaneHashes(SLOTS, (HashRange(0, 49, 2, 1),)),
        LaneHashes(SLOTS, (HashRange(50, 99, 4, 1), HashRange(200, 300, 3, 2))),
    ]
    hashes = np.array([*range(1000), 2**31 - 1, 65_536 * 7 + 51])
    expected = [next((at for at, lane in enumerate(lanes) if is_in(lane, each)), -1) for each in hashes.tolist()]
    assert lane_numbers(lanes).of(hashes).tolist() == expected and set(expected) == {-1, 0, 1, 2}
    for at, lane in enumerate(lanes):
        assert lane.holds(hashes).tolist() == [each == at for each in expected]


def is_in(lane: LaneHashes, hashed: int) -> bool:
    return any(one.start <= hashed % 65_536 <= one.end and hashed % one.modulus == one.remainder for one in lane.ranges)


def test_rows_of_lanes_outlive_an_optimize_and_a_checkpoint(layout):
    hashes = [LOW, HIGH] * 4
    topic = published(layout, hashes)
    ranges = spans([PENDING, ACKED, AGAIN, PENDING] * 2)
    before, key = state(layout, topic, SHARED, hashes, ranges)
    BrokerDouble(layout).commit_round([])
    ledger = open_table(layout.broker_table("cursor_ledger"))
    ledger.optimize.compact()
    ledger.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    ledger.create_checkpoint()
    after = read_latest(layout)
    assert (after.lanes, after.pages[key]) == (before.lanes, before.pages[key]) and len(after.lanes[key]) > 1
    assert list(exact_ranges(after, key, LedgerIndex(layout), topic.path)) == ranges


def test_a_lane_that_is_merged_or_removed_is_gone(layout):
    hashes = [LOW, HIGH] * 4
    topic = published(layout, hashes)
    latest, key = state(layout, topic, HALVES, hashes, spans([PENDING] * 8))
    gone = [
        dict(kind="page", topic=str(topic.name), **key._asdict(), page=page, is_removed=True)
        for page in latest.lanes[key]
    ]
    page = dict(kind="page", topic=str(topic.name), **key._asdict(), page=0, first=0, last=7)
    rows = PageRows(key, str(topic.name), 0, spans([PENDING] * 8))
    AppendTable(layout.broker_table("cursor_ledger")).append(rows_of_round(2, [{"kind": "round"}, *gone, page], [rows]))
    after = read_latest(layout)
    assert (after.lanes[key], after.pages[key]) == ({}, {0: spans([PENDING] * 8)})
