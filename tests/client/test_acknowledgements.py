"""What is acknowledged and how it is sent (semantics 3.1-3.6)."""

import threading

import pytest

from pulsar_spark.client.acks.acknowledgement_tracker import AcknowledgementTracker, Grouping
from pulsar_spark.client.acks.acknowledgements import AckGroup, Acknowledgement
from pulsar_spark.link.outbox import SPACING

ALL_OF_4 = 0b1111


def sent(group: AckGroup) -> list[tuple]:
    return [tuple(request) for request in group.take()]


def test_entries_go_as_ranges():
    group = AckGroup()
    for position in (5, 1, 2, 3, 9):
        assert group.acknowledge(position, -1, 1)
    assert len(group) == 5
    assert sent(group) == [("ack", 1, 3, None), ("ack", 5, 5, None), ("ack", 9, 9, None)]
    assert len(group) == 0 and sent(group) == []


def test_messages_of_a_batch_share_one_set():
    """3.2: all bits clear is a plain acknowledgement, anything else one of what is left."""
    group = AckGroup()
    assert not group.acknowledge(7, 1, ALL_OF_4)
    assert not group.acknowledge(7, 3, ALL_OF_4)
    assert sent(group) == [("ack", 7, 7, [0b0101])]
    assert not group.acknowledge(7, 0, ALL_OF_4)
    assert group.acknowledge(7, 2, ALL_OF_4)
    assert sent(group) == [("ack", 7, 7, None)]


def test_acknowledging_twice_changes_nothing():
    group = AckGroup()
    group.acknowledge(7, 1, ALL_OF_4)
    group.acknowledge(7, 1, ALL_OF_4)
    assert sent(group) == [("ack", 7, 7, [0b1101])]


@pytest.mark.parametrize("group_time_ms, delays", [(100, [0.1, SPACING]), (20, [0.02, 0.02])])
def test_a_full_group_goes_within_the_spacing_of_commits(group_time_ms, delays):
    """3.1: not alone at once, for a flow may be near that it can go with."""
    asked = []

    class Channel:
        def gather(self, source, delay, *, is_urgent):
            asked.append((delay, is_urgent))

    tracker = AcknowledgementTracker(
        Channel(),
        threading.Lock(),
        lambda kind, **columns: (kind, columns["first"], columns["last"]),
        Grouping(group_time_ms, 3),
    )
    for position in range(4):
        tracker.acknowledge(position, -1, 1)
    assert asked == [(delay, False) for delay in delays]
    assert tracker.take_rows() == [("ack", 0, 3)]


def test_what_waits_goes_to_the_broker_that_the_topic_went_to():
    """Not to the one whose line it was to go down first, whose topic it is no more."""

    class Channel:
        def __init__(self):
            self.sources = set()

        def gather(self, source, delay, *, is_urgent=False):
            self.sources.add(source)

        def sent(self) -> list[tuple]:
            return [row for source in self.sources for row in source()]

    before, after = Channel(), Channel()
    tracker = AcknowledgementTracker(
        before, threading.Lock(), lambda kind, **columns: (kind, columns["first"], columns["last"]), Grouping()
    )
    tracker.acknowledge(1, -1, 1)
    tracker.switch_channel(after)
    tracker.acknowledge(2, -1, 1)
    tracker.give_back({7}, 0)
    assert before.sent() == []
    assert after.sent() == [("ack", 1, 2), ("negative_ack", 7, 7)]


def test_without_batch_index_acknowledgement_only_whole_entries_go():
    """3.2: nothing is sent until the last bit is clear."""
    group = AckGroup(is_batch_index=False)
    for index in (0, 1, 2):
        assert not group.acknowledge(7, index, ALL_OF_4)
    assert sent(group) == []
    assert group.acknowledge(7, 3, ALL_OF_4)
    assert sent(group) == [("ack", 7, 7, None)]


def test_cumulative_goes_first_and_swallows_what_it_covers():
    group = AckGroup()
    for position in (1, 4, 8):
        group.acknowledge(position, -1, 1)
    group.acknowledge(3, 0, ALL_OF_4)
    assert group.acknowledge_cumulative(5, -1, 1) == 5
    assert sent(group) == [("cumulative_ack", None, 5, None), ("ack", 8, 8, None)]


def test_cumulative_swallows_nothing_right_behind_it():
    group = AckGroup()
    group.acknowledge(6, -1, 1)
    group.acknowledge_cumulative(5, -1, 1)
    assert sent(group) == [("cumulative_ack", None, 5, None), ("ack", 6, 6, None)]


def test_only_the_largest_cumulative_counts():
    group = AckGroup()
    group.acknowledge_cumulative(5, -1, 1)
    group.acknowledge_cumulative(3, -1, 1)
    assert sent(group) == [("cumulative_ack", None, 5, None)]
    group.acknowledge_cumulative(5, -1, 1)
    assert sent(group) == []


@pytest.mark.parametrize(
    "is_batch_index, expected",
    [(True, ("cumulative_ack", None, 5, [0b1000])), (False, ("cumulative_ack", None, 4, None))],
)
def test_cumulative_inside_a_batch(is_batch_index, expected):
    group = AckGroup(is_batch_index)
    assert group.acknowledge_cumulative(5, 2, ALL_OF_4) == 4
    assert sent(group) == [expected]
    assert group.acknowledge_cumulative(5, 3, ALL_OF_4) == 5
    assert sent(group) == [("cumulative_ack", None, 5, None)]


def test_cumulative_moves_on_inside_a_batch():
    group = AckGroup()
    group.acknowledge_cumulative(5, 0, ALL_OF_4)
    group.acknowledge_cumulative(5, 2, ALL_OF_4)
    assert sent(group) == [("cumulative_ack", None, 5, [0b1000])]


def test_what_waits_to_be_sent_is_a_duplicate_when_it_comes_again():
    group = AckGroup()
    group.acknowledge(4, -1, 1)
    group.acknowledge(6, 1, ALL_OF_4)
    group.acknowledge_cumulative(2, -1, 1)
    assert group.new_of([1, 2, 3, 4, 5]) == [False, False, True, False, True]
    assert group.left_of(6, ALL_OF_4) == 0b1101 and group.left_of(2, ALL_OF_4) == group.left_of(4, ALL_OF_4) == 0


def test_a_batch_that_comes_again_keeps_what_was_acknowledged():
    group = AckGroup()
    group.acknowledge(6, 1, ALL_OF_4)
    group.take()
    group.deliver(6, ALL_OF_4)
    assert group.left_of(6, ALL_OF_4) == 0b1101


def test_without_batch_index_acknowledgement_a_batch_comes_again_whole():
    group = AckGroup(is_batch_index=False)
    group.acknowledge(6, 1, ALL_OF_4)
    group.deliver(6, ALL_OF_4)
    assert group.left_of(6, ALL_OF_4) == ALL_OF_4
    for index in (0, 2, 3):
        group.acknowledge(6, index, ALL_OF_4)
    assert sent(group) == []


def test_a_batch_of_which_nothing_is_left_is_acknowledged_as_a_whole():
    group = AckGroup()
    group.acknowledge(6, 0, 0b11)
    group.deliver(6, 0b01)
    assert group.left_of(6, 0b01) == 0
    assert sent(group) == [("ack", 6, 6, None)]


def test_skipped_indexes_count_as_acknowledged():
    group = AckGroup()
    group.skip(6, ALL_OF_4, 3)
    assert group.acknowledge(6, 3, ALL_OF_4)
    assert group.take() == [Acknowledgement("ack", 6, 6, None)]


def test_more_than_64_indexes():
    group = AckGroup()
    for index in range(64):
        group.acknowledge(0, index, (1 << 66) - 1)
    assert sent(group) == [("ack", 0, 0, [0, 0b11])]


def test_a_moved_cursor_forgets():
    group = AckGroup()
    group.acknowledge_cumulative(9, -1, 1)
    group.acknowledge(12, 1, ALL_OF_4)
    group.clear()
    assert sent(group) == [] and group.new_of([3]) is None and group.left_of(12, ALL_OF_4) == ALL_OF_4
