"""Acknowledgement timeouts, with a clock that is set."""

from pulsar_spark.client.acks.unacked import UnackedTracker


class Seconds:
    def __init__(self):
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_an_entry_expires_once_and_only_when_its_time_has_passed():
    clock = Seconds()
    tracker = UnackedTracker(10, clock)
    tracker.add("s", 1)
    clock.now += 4
    tracker.add("s", 2)
    tracker.add("other", 2)
    clock.now += 5.9
    assert tracker.take_expired() == {}
    clock.now += 0.2
    assert tracker.take_expired() == {"s": {1}}
    clock.now += 10
    assert tracker.take_expired() == {"s": {2}, "other": {2}}
    assert tracker.take_expired() == {}


def test_a_batch_counts_from_its_last_message():
    clock = Seconds()
    tracker = UnackedTracker(10, clock)
    tracker.add("s", 1)
    clock.now += 6
    tracker.add("s", 1)
    clock.now += 6
    assert tracker.take_expired() == {}


def test_acknowledged_entries_do_not_expire():
    clock = Seconds()
    tracker = UnackedTracker(10, clock)
    for position in range(6):
        tracker.add("s", position)
    tracker.add("other", 0)
    tracker.remove("s", 5)
    tracker.remove_up_to("s", 3)
    clock.now += 11
    assert tracker.take_expired() == {"s": {4}, "other": {0}}


def test_forgetting_a_subscription():
    clock = Seconds()
    tracker = UnackedTracker(10, clock)
    tracker.add("s", 1)
    tracker.add("other", 1)
    tracker.forget("s")
    clock.now += 11
    assert tracker.take_expired() == {"other": {1}}
