"""A machine's clock that was ahead and is right again, and one that was behind: what is timed ends in its own time,
neither early nor late.

Rule: broker.bundle.clock. Times are milliseconds of the machine's clock; ``ahead`` is how wrong it was, for one round.
"""

import pytest

from pulsar_spark.broker.bundle.clock import BundleClock, Instant
from pulsar_spark.broker.round.rounds import Rounds
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from tests.support.requests import On, keep_alive
from tests.support.spark_engine import new_engine

HOUR, DECADE = 3_600_000, 10 * 365 * 24 * 3_600_000
START = 1_700_000_000_000
TOPIC = "persistent://public/default/t"
ON = On(TOPIC)
WRONG = pytest.mark.parametrize("ahead", [HOUR, DECADE], ids=["an hour", "ten years"])
RESTART = pytest.mark.parametrize("restarts", [False, True], ids=["", "with a restart in between"])
SECOND = 1_000_000


class Story:
    """An engine whose clock goes on from :data:`START`."""

    def __init__(self, tmp_path):
        self.engine = new_engine(None, tmp_path)
        self.engine.create_topic(TOPIC)
        self.engine.now_ms = START
        self.engine.start()
        self.at(
            0, ON.create_subscription("Earliest"), ON.subscribe("a", lease_ms=20_000, client="a"), ON.flow("a", 100)
        )

    def at(self, seconds: float, *requests: dict) -> dict:
        return self.engine.round(list(requests), START + int(1000 * seconds))

    def wrong(self, ahead: int, *requests: dict, restarts: bool) -> None:
        """A round while the clock is ahead; then the clock is right again, at once or over a restart."""
        self.at(1 + ahead / 1000, *requests)
        if restarts:
            self.engine.restart(START + 1000)
            self.engine.committed()

    def state(self) -> dict:
        return self.engine.state(TOPIC, -1, "s")


@WRONG
@RESTART
def test_a_negative_ack_of_a_wrong_round_comes_back_in_its_own_time(tmp_path, ahead, restarts):
    story = Story(tmp_path)
    story.engine.publish(TOPIC, -1, [1], START)
    story.at(0.5)
    keep = keep_alive("a") | {"client_id": "a"}
    story.wrong(ahead, keep, ON.negative_ack("a", 0, delay_ms=5_000) | {"client_id": "a"}, restarts=restarts)
    story.at(2)
    assert story.state()["pending"] != {} and not story.at(5.9)["deliveries"], "not early"
    assert [delivery.redelivery_count for delivery in story.at(7.1)["deliveries"]] == [1], "nor late"


@WRONG
@RESTART
def test_a_lease_given_in_a_wrong_round_ends_in_its_own_time(tmp_path, ahead, restarts):
    story = Story(tmp_path)
    story.wrong(ahead, ON.subscribe("b", lease_ms=20_000, client="b"), restarts=restarts)
    story.at(2)
    story.at(20.9)
    assert "b" in story.state()["consumers"], "not early"
    story.at(22.1)
    assert story.state()["consumers"] == {}, "nor late"


@WRONG
@RESTART
def test_a_deliver_time_is_the_machine_s(tmp_path, ahead, restarts):
    """It was set by whoever published; the broker's own clock, which is ahead for good, has no say in it."""
    story = Story(tmp_path)
    story.wrong(
        ahead, ON.subscribe("b", lease_ms=60_000, client="b"), ON.flow("b", 100) | {"client_id": "b"}, restarts=restarts
    )
    story.at(2)
    story.engine.publish(TOPIC, -1, [1], START + 2_000, [START + 10_000])
    assert story.at(3)["deliveries"] == [] == story.at(9.9)["deliveries"]
    assert len(story.at(10)["deliveries"]) == 1


@WRONG
@RESTART
def test_time_to_live_and_expiry_go_by_publish_times_of_the_machine_s_clock(tmp_path, ahead, restarts):
    story = Story(tmp_path)
    story.wrong(ahead, restarts=restarts)
    story.at(2, ON.policy("message_ttl_seconds", 10), ON.policy("ttl_check_seconds", 1))
    story.engine.publish(TOPIC, -1, [1], START + 2_000)
    story.at(3)
    story.at(11.9)
    assert story.state()["mark_delete_position"] == -1
    story.at(11.9, ON.expire(11))
    assert story.state()["mark_delete_position"] == -1
    story.at(13)
    assert story.state()["mark_delete_position"] == 0


@WRONG
@RESTART
def test_the_pause_of_a_failover_ends_in_its_own_time(tmp_path, ahead, restarts):
    story = Story(tmp_path)
    fail = On(TOPIC, subscription="f")
    story.wrong(
        ahead,
        fail.subscribe("x", "Failover", client="x"),
        fail.subscribe("w", "Failover", client="w"),
        fail.flow("w", 10),
        fail.flow("x", 10),
        restarts=restarts,
    )
    active = next(name for name, held in story.engine.state(TOPIC, -1, "f")["consumers"].items() if held["is_active"])
    story.at(2)
    story.engine.publish(TOPIC, -1, [1], START + 2_000)
    assert story.at(3.2)["deliveries"][0].consumer_id == active


@WRONG
def test_the_round_s_row_keeps_both_clocks(tmp_path, ahead):
    story = Story(tmp_path)
    story.wrong(ahead, restarts=False)
    story.at(2)
    row = read_latest(story.engine.layout).round_row
    both = [int(row[name].timestamp() * 1000) for name in ("round_time", "due_time")]
    assert both == [START + 2_000, START + 1_000 + ahead]
    assert story.engine.number == read_latest(story.engine.layout).round + 1, "it is committed, if only for that"


def test_a_broker_notices_that_the_clock_was_set_back(tmp_path):
    story = Story(tmp_path)
    story.at(HOUR / 1000)
    story.engine.now_ms = START
    assert story.engine.rounds.is_due()
    story.at(0)
    assert not story.engine.rounds.is_due()


class TestWithASteadyClock:
    """The machine's clock is checked against one that nobody sets."""

    def clock(self) -> tuple[BundleClock, dict]:
        at = {"wall": 1000 * SECOND, "steady": 5 * SECOND}
        clock = BundleClock(lambda: at["wall"], Instant(990 * SECOND, 990 * SECOND), lambda: at["steady"])
        assert clock.look() == (1000 * SECOND, 1000 * SECOND), "over the time no broker ran the machine's clock counts"
        return clock, at

    def look(self, clock: BundleClock, at: dict, *, wall: float, steady: float) -> tuple[float, float]:
        at["wall"] += int(wall * SECOND)
        at["steady"] += int(steady * SECOND)
        now = clock.look()
        return now.own / SECOND - 1000, now.wall / SECOND - 1000

    def test_both_move_together(self):
        clock, at = self.clock()
        assert [self.look(clock, at, wall=1, steady=1) for _ in range(3)] == [(1, 1), (2, 2), (3, 3)]

    def test_one_reading_from_the_future_moves_neither(self):
        clock, at = self.clock()
        assert self.look(clock, at, wall=3601, steady=1) == (1, 1)
        assert self.look(clock, at, wall=-3599, steady=1) == (2, 2)
        assert self.look(clock, at, wall=1, steady=1) == (3, 3)

    def test_a_clock_that_was_set_right_is_believed_when_it_stays_so(self):
        clock, at = self.clock()
        looks = [self.look(clock, at, wall=3600 + 1, steady=1)] + [
            self.look(clock, at, wall=1, steady=1) for _ in range(10)
        ]
        assert looks == [(second, second) for second in range(1, 11)] + [(11, 3611)]

    def test_set_back_it_is_believed_at_once_and_durations_go_on(self):
        clock, at = self.clock()
        assert self.look(clock, at, wall=-3599, steady=1) == (1, -3599)
        assert self.look(clock, at, wall=1, steady=1) == (2, -3598)

    def test_small_steps_of_a_clock_that_is_being_corrected_pass(self):
        clock, at = self.clock()
        assert self.look(clock, at, wall=2.5, steady=1) == (1, 2.5)

    def test_rounds_go_by_it(self, tmp_path):
        """A reading from the future ends no lease and delivers nothing early."""
        story = Story(tmp_path)
        at = {"wall": START, "steady": 0}
        engine = story.engine
        engine.rounds = Rounds(
            engine.rounds.bundle,
            engine.planner.run,
            lambda: at["wall"] * 1000,
            "engine",
            steady=lambda: at["steady"] * 1000,
        )
        engine.publish(TOPIC, -1, [1], START, [START + HOUR // 2])
        engine.rounds.run([], 0)
        at |= {"wall": START + HOUR, "steady": 1000}
        engine.rounds.run([], 0)
        assert engine.committed()["deliveries"] == [] and list(story.state()["consumers"]) == ["a"]
        at |= {"wall": START + 20_000, "steady": 20_000}
        engine.rounds.run([], 0)
        engine.committed()
        assert story.state()["consumers"] == {}
