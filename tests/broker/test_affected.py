"""Which ranges go through a round's plan: those it touches, and no others of their pages."""

import pytest

from pulsar_spark.broker.cursors import pages
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.gathering.affected import affected_ranges, offered_ranges
from pulsar_spark.broker.requests.drafts import CursorDraft, Return
from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, PENDING, REPLAY, Range
from pulsar_spark.protocol.acknowledgement.positions import Positions
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey


def held(position: int, consumer_id: str = "a", due_time: int | None = None) -> Range:
    return Range(position, position, PENDING, consumer_id, 1, 0, due_time, None, 1)


def replay(position: int, due_time: int | None = None) -> Range:
    return Range(position, position, REPLAY, redelivery_count=1, due_time=due_time, batch_size=1)


RANGES = [
    held(0),
    held(2, "b"),
    held(4, due_time=50),
    replay(6),
    replay(8, due_time=90),
    Range(10, 10, ACKNOWLEDGED),
    held(12, "b"),
    held(14),
    held(16),
]


@pytest.fixture(params=[0, 100], ids=["packed", "as objects"])
def asked(monkeypatch, request) -> CursorDraft:
    """A Shared cursor with three pages of three ranges."""
    monkeypatch.setattr(pages, "MAX_PAGE_RANGES", 3)
    monkeypatch.setattr("pulsar_spark.broker.gathering.affected.PACKED_FROM", request.param)
    cursor = Cursor(CursorKey("topic", -1, "s"), "t", -1, 20, "Shared")
    cursor.replace(set(), RANGES)
    return CursorDraft(cursor)


def affected(
    asked: CursorDraft, *, now: int = 0, permits: int = 0, unread: tuple[int, int] | None = None
) -> tuple[list[int], set[int]]:
    """Positions of the ranges to plan, and the pages."""
    offered = offered_ranges(asked, now, permits)
    found = affected_ranges(asked, now=now, offered=offered, unread=[unread] if unread else [])
    inside = [each for index in sorted(found.pages) for each in asked.cursor.pages[index].ranges]
    assert found.ranges == inside
    return [each.first for each in found.planned], found.pages


def test_nothing_asked_concerns_no_range(asked):
    assert affected(asked) == ([], {0, 2})


def test_acknowledgements_and_returns_concern_what_they_hit(asked):
    asked.acks = Positions([(2, 3), (11, 12)])
    asked.returns = [Return(7, 9, "a", 0)]
    asked.ack_sets = {16: (1,)}
    assert affected(asked) == ([2, 8, 12, 16], {0, 1, 2})


def test_what_is_due_comes_back(asked):
    assert affected(asked, now=49) == ([], {0, 2})
    assert affected(asked, now=50) == ([4], {0, 2})


def test_a_consumer_that_left_gives_back_all_it_held(asked):
    asked.left = {"b"}
    assert affected(asked) == ([2, 12], {0, 2})


def test_replays_are_offered_while_there_are_permits(asked):
    assert affected(asked, permits=5) == ([6], {0, 1, 2})
    assert affected(asked, now=90, permits=5) == ([4, 6, 8], {0, 1, 2})


@pytest.mark.parametrize(("acks", "ack_sets"), [([(5, 6)], {}), ([(6, 6)], {}), ([], {6: ()})])
def test_what_is_acknowledged_takes_no_permit_from_what_comes_again(asked, acks, ack_sets):
    """Else what was never delivered would overtake what came back."""
    asked.acks, asked.ack_sets = Positions(acks), ack_sets
    assert affected(asked, now=90, permits=1) == ([4, 6, 8], {0, 1, 2})


def test_a_return_on_a_failover_subscription_brings_everything_back(asked):
    asked.cursor.subscription_type = "Failover"
    asked.returns = [Return(0, 0, "a", 0)]
    assert affected(asked) == ([0, 2, 4, 12, 14, 16], {0, 2})


def test_what_lies_ahead_of_the_read_position_concerns_unread_entries(asked):
    assert affected(asked, unread=(15, 30)) == ([16], {0, 2})
    assert affected(asked, unread=(5, 30)) == ([6, 8, 10, 12, 14, 16], {0, 1, 2})


def test_what_came_due_first_is_offered_first_whatever_page_it_lies_in(monkeypatch):
    """No more ranges than permits allow are planned; what came back goes before what is due; on Exclusive all goes by
    position."""
    monkeypatch.setattr(pages, "MAX_PAGE_RANGES", 2)
    cursor = Cursor(CursorKey("topic", -1, "s"), "t", -1, 20, "Shared")
    held_back = ((0, 50), (2, 40), (4, 99), (6, 10), (8, None), (10, 40))
    cursor.replace(set(), [replay(position, due) for position, due in held_back])
    asked = CursorDraft(cursor)
    assert [affected(asked, now=50, permits=permits)[0] for permits in range(7)] == [
        [],
        [8],
        [6, 8],
        [2, 6, 8],
        [2, 6, 8, 10],
        [0, 2, 6, 8, 10],
        [0, 2, 6, 8, 10],
    ]
    cursor.subscription_type = "Exclusive"
    assert affected(asked, now=50, permits=2)[0] == [0, 2]
