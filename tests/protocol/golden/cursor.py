"""A cursor against ManagedCursorImpl (golden h1): mark-delete, ranges of acknowledged entries, batch sets,
and what is read next.

Positions of the recording, [ledger, entry], are numbered in the order in which the entries were added. "Read n" is n
rounds of one permit of an Exclusive consumer; "rewind" and "restart" give back all that is pending, for what a reopened
cursor reads again is, here, replay (semantics 0.20); before that a "restart" is one of the broker.
"""

from bisect import bisect_left, bisect_right

from pulsar_spark.protocol.acknowledgement import ack_set
from tests.protocol.golden import cases, named
from tests.protocol.golden.lockstep import NOW, Player
from tests.support.requests import On

BATCH_SIZE = 5

DEVIATIONS = {
    "batch index level off": "0.23: batch index acknowledgement is always on",
    "restart with a limit on persisted ranges": "0.23: all ranges are kept, without a limit",
}


class Replayed:
    """The recording's operations, done by a broker; each yields its rounds."""

    def __init__(self, broker, topic: str):
        self.broker, self.topic, self.on, self.entries = broker, topic, On(topic), []

    def number(self, place: list[int]) -> int:
        """The position of a recorded entry; one behind the end for an entry that does not exist."""
        found = bisect_left(self.entries, tuple(place))
        return found if self.entries[found : found + 1] == [tuple(place)] else len(self.entries)

    def upper(self, place: list[int]) -> int:
        """The last position at or before a recorded place, which need not be an entry: mark-delete may be (ledger,
        -1)."""
        return bisect_right(self.entries, tuple(place)) - 1

    def state(self) -> dict:
        return self.broker.state(self.topic, -1, "s")

    def upcoming(self) -> int:
        """The lowest position that is neither acknowledged nor out at the reader."""
        state = self.state()
        acknowledged = {position for first, last in state["acknowledged"] for position in range(first, last + 1)}
        taken = acknowledged | set(state["pending"])
        return next(
            position
            for position in range(state["mark_delete_position"] + 1, len(self.entries) + 1)
            if position not in taken
        )

    def add(self, expected: dict, count: int) -> Player:
        self.entries += [tuple(place) for place in expected["result"]]
        self.broker.publish(self.topic, -1, [BATCH_SIZE] * count)
        yield []

    def read(self, expected: dict, count: int) -> Player:
        got = []
        for _ in range(count):
            if self.upcoming() == len(self.entries):
                break  # Nothing to read: a permit left over would deliver in a later operation.
            permits = self.state()["consumers"]["reader"]["permits"]
            answer = yield [self.on.flow("reader", 1 - permits)]
            got += [delivery.position for delivery in answer.deliveries]
        assert sorted(got) == [self.number(place) for place in expected["result"]]

    def delete(self, expected: dict, *places: list[int]) -> Player:
        refused = (yield [self.on.ack(self.number(place), receipt=True) for place in places]).refusals
        assert bool(refused) is ("error" in expected), refused

    def delete_batch(self, expected: dict, place: list[int], left: list[int]) -> Player:
        answer = yield [self.on.ack(self.number(place), ack_set=list(ack_set.of_indexes(left)), receipt=True)]
        assert not answer.refusals

    def mark_delete(self, expected: dict, place: list[int]) -> Player:
        is_behind = self.number(place) <= self.state()["mark_delete_position"]
        refused = (yield [self.on.cumulative_ack(self.number(place), receipt=True)]).refusals
        # Pulsar says "already mark-deleted" to a position behind mark-delete; here that is no error, and no change
        # either.
        assert bool(refused) is ("error" in expected and not is_behind), refused

    def seek(self, expected: dict, place: list[int]) -> Player:
        assert not (yield [self.on.seek(bisect_left(self.entries, tuple(place)))]).refusals

    def rewind(self, expected: dict) -> Player:
        yield [self.on.redeliver_all("reader")]

    def restart(self, expected: dict) -> Player:
        self.broker.restart(NOW)
        yield [self.on.redeliver_all("reader")]

    def is_deleted(self, expected: dict, place: list[int]) -> Player:
        yield []
        position, state = self.number(place), self.state()
        is_in_range = any(first <= position <= last for first, last in state["acknowledged"])
        assert (position <= state["mark_delete_position"] or is_in_range) is expected["result"]

    def assert_state(self, recorded: dict, *, has_restarted: bool) -> None:
        state = self.state()
        assert state["mark_delete_position"] == self.upper(recorded["mark_delete"])
        acknowledged = {
            position
            for lower, upper in recorded["individual_deleted_open_closed"]
            for position in range(self.upper(lower) + 1, self.upper(upper) + 1)
        }
        assert {
            position for first, last in state["acknowledged"] for position in range(first, last + 1)
        } == acknowledged
        read_position = bisect_left(self.entries, tuple(recorded["read_position"]))
        assert self.upcoming() == next(
            position for position in range(read_position, len(self.entries) + 1) if position not in acknowledged
        )
        sets = {
            self.number([int(part) for part in place.split(":")]): tuple(left)
            for place, left in recorded["batch_unacked_indexes"].items()
        }
        ours = {position: ack_set.indexes(left) for position, left in state["ack_sets"].items()}
        assert ours == sets or (has_restarted and sets.items() <= ours.items()), (
            "only a restart may have lost sets there that are kept here"
        )
        backlog = len(self.entries) - 1 - state["mark_delete_position"] - len(acknowledged)
        assert backlog == recorded["backlog_precise"]


CASES = [case for case in cases("h1_cursor") if named(case) not in DEVIATIONS]


def replay(broker, case: dict, topic: str) -> Player:
    """All operations of a case; asserts what is recorded after each."""
    replayed, has_restarted = Replayed(broker, topic), False
    initial = case["input"]["config"]["initial"].capitalize()
    yield [replayed.on.subscribe("reader", "Exclusive", initial_position=initial)]
    for (name, *arguments), expected in zip(case["input"]["ops"], case["expected"]["after_each_op"], strict=True):
        yield from getattr(replayed, name)(expected, *arguments)
        has_restarted |= name == "restart"
        if "state" in expected:
            replayed.assert_state(expected["state"], has_restarted=has_restarted)
