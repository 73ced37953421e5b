"""What a map of entries says in rows, and rows put into a map again."""

import numpy as np
import pytest

from pulsar_spark.protocol.acknowledgement.cursor import Range
from pulsar_spark.protocol.entries import entry_ranges
from pulsar_spark.protocol.entries.entry_codes import ACKNOWLEDGED_CODE, EntryState
from pulsar_spark.protocol.entries.entry_map import EntryMap
from pulsar_spark.protocol.entries.entry_ranges import (
    ScatteredRange,
    acknowledge_all,
    changed_ranges,
    join_acknowledged,
    known_ranges,
    put_ranges,
    put_scattered,
)

ENTRIES = 9000


def state(consumer: str, number: int) -> EntryState:
    return EntryState("pending", consumer, number, 0, None, None, 1)


@pytest.fixture
def mixed() -> EntryMap:
    """Deliveries of three consumers at random, and an acknowledged hole."""
    entries = EntryMap()
    codes = np.array([entries.codes.code(state(name, 7)) for name in "abc"])
    entries.set_window(0, codes[np.random.default_rng(1).integers(0, 3, ENTRIES)])
    entries.set_span(100, 200, ACKNOWLEDGED_CODE)
    return entries


def put(entries: EntryMap, rows: entry_ranges.ChangedRanges) -> EntryMap:
    plain = [each for each in rows.ranges if each.entries is None]
    for each in rows.ranges:
        if each.entries is not None:
            assert len(rows.positions[each.first]) == each.entries
            put_scattered(entries, [ScatteredRange(each, rows.positions[each.first])])
    put_ranges(entries, plain)
    entries.take_changes()
    return entries


def test_rows_are_few_and_a_map_is_made_of_them_again(mixed):
    rows = changed_ranges(mixed.take_changes(), mixed.codes, -1)
    assert len(rows.ranges) == 4 and len(rows.positions) == 3
    assert known_ranges(put(EntryMap(), rows)) == list(known_ranges(mixed))
    whole = changed_ranges(mixed.everything(), mixed.codes, -1)
    assert known_ranges(put(EntryMap(), whole)) == list(known_ranges(mixed))


def test_an_answer_to_a_whole_delivery_is_one_row_and_changes_no_page(mixed):
    again = put(EntryMap(), changed_ranges(mixed.take_changes(), mixed.codes, -1))
    answered = acknowledge_all(mixed.codes, mixed.codes.code(state("b", 7)), 0, ENTRIES - 1)
    assert mixed.take_changes() == [] and answered == Range(0, ENTRIES - 1, "acknowledged", "b", 7)
    put_ranges(again, [answered])
    again.take_changes()
    assert known_ranges(again) == list(known_ranges(mixed)) and again.mark_delete == mixed.mark_delete


def test_of_an_answer_only_what_lies_between_its_ends_counts(mixed):
    again = put(EntryMap(), changed_ranges(mixed.take_changes(), mixed.codes, -1))
    put_ranges(again, [Range(50, 4999, "acknowledged", "b", 7), Range(5000, 5000, "acknowledged")])
    again.take_changes()
    left = [each for each in known_ranges(again) if each.consumer_id == "b"]
    assert left and all(each.last < 50 or each.first > 5000 for each in left)


def test_codes_that_came_to_mean_acknowledged_are_one_again(mixed, monkeypatch):
    monkeypatch.setattr(entry_ranges, "MOST_ALIASES", 1)
    mixed.take_changes()
    for name in "bc":
        acknowledge_all(mixed.codes, mixed.codes.code(state(name, 7)), 0, ENTRIES - 1)
    mixed.take_changes()
    before = [each[:4] for each in known_ranges(mixed) if each.status == "pending"]
    join_acknowledged(mixed)
    assert mixed.codes.acknowledged == [ACKNOWLEDGED_CODE]
    assert [each[:4] for each in known_ranges(mixed) if each.status == "pending"] == before
