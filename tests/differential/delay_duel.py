"""Histories of delayed messages: what is promised of them, asked of every round, and what happens to their index.

The promises are worked out from what was delivered and published, and know nothing of how either broker comes to it:
nothing is delivered for the first time before its deliver time, and nothing is out twice. In the end, when all
answer and every deliver time has come, nothing is left.
"""

import shutil

import pytest

from pulsar_spark.broker.delays.delay_upkeep import DelayUpkeep
from pulsar_spark.errors import DelayIndexNotReady
from pulsar_spark.protocol.policies.policies import DELAYED_DELIVERY_TICK_MS
from tests.differential.duel import Duel, same
from tests.differential.strategies import Turn
from tests.support.crashes import Crash

ENOUGH_ROUNDS = 8
"""So many rounds after all deliver times have come and everybody has acknowledged, nothing is left: what a holder gives
up comes in the next one, and is acknowledged in the one after that."""

MOST_BUCKETS, NEVER = 2, 1 << 60
LIMITS = ("max_unacked_messages_per_consumer", "max_unacked_messages_per_subscription", "message_ttl_seconds")


class DelayedDuel(Duel):
    def __init__(self, spark, root, **options):
        super().__init__(spark, root, **options)
        self.has_limit = any(options.values())
        self.moved: dict[tuple[str, int], int] = {}
        self.delivered: set[tuple] = set()

    def play(self, turns: list[Turn]) -> None:
        super().play([*turns, Turn(200_000, self._lift_limits())])
        for number in range(ENOUGH_ROUNDS):
            self._play(Turn(1_000, self._answers()), f"in round {number} of the end")
        for place, cursor in self._places().items():
            if cursor.consumers and not self.has_limit:
                entries = range(len(self.model.batches[cursor.topic, cursor.partition]))
                left = [position for position in entries if not cursor.is_done(position)]
                same(f"what is left of {place} at the end", left, [])

    def _take(self, step: str) -> dict | None:
        if step.startswith("index: "):
            getattr(self, f"_{step.removeprefix('index: ')}")()
            return None
        place, _, text = step.partition(": ")
        if text.startswith("reschedule "):
            _, span, second = text.split()
            first, _, last = span.partition("-")
            for position in range(int(first), int(last or first) + 1):
                self.moved[place, position] = min(self.moved.get((place, position), NEVER), 1000 * int(second))
        return super()._take(step)

    def _run(self, requests: list[dict], crash: str | None = None) -> bool:
        """As a broker does, whose index has to be looked after before a round can go on."""
        try:
            return super()._run(requests, crash)
        except DelayIndexNotReady:
            self._upkeep().work()
            return super()._run(requests, crash)

    def _compare(self, found: dict, expected: dict, where: str) -> None:
        super()._compare(found, expected, where)
        out = [delivery[:3] + (delivery.position,) for delivery in found["deliveries"]]
        assert len(set(out)) == len(out), f"{where}: delivered twice: {out}"
        for place, cursor in self._places().items():
            is_of = (cursor.topic, cursor.partition, cursor.subscription)
            for position in [each.position for each in found["deliveries"] if each[:3] == is_of]:
                asked = (cursor.delays.deliver_ms[position] or 0, self.moved.get((place, position), NEVER))
                is_early = cursor.knows_delays() and min(asked) > self.now_ms
                assert not is_early or (*is_of, position) in self.delivered, f"{where}: {place} {position} is early"
        self.delivered |= set(out)

    def _has_news(self) -> bool:
        """Within a tick of what came due last what is due next may wait, so that rounds are few (5.5): here one comes
        all the same, as any request would bring it."""
        bundle, now = self.engine.rounds.bundle, 1000 * self.now_ms
        ends = [
            cursor.dues.came_at + 1000 * bundle.policy(cursor.topic, DELAYED_DELIVERY_TICK_MS)
            for cursor in bundle.cursors.values()
            if cursor.dues is not None and cursor.dues.came_at is not None
        ]
        return super()._has_news() or any(now < end for end in ends)

    # What happens to the index

    def _upkeep(self) -> DelayUpkeep:
        return DelayUpkeep(self.engine.rounds.bundle.delay_index, max_num_buckets=MOST_BUCKETS)

    def _seal(self) -> None:
        upkeep = self._upkeep()
        upkeep.seal(is_forced=True)
        upkeep.work()

    def _rebuild(self) -> None:
        self.engine.rounds.bundle.delay_index.rebuild()
        self._upkeep().work()

    def _lose(self) -> None:
        """The files are gone, and the broker starts."""
        for folder in self.engine.layout.broker_table("delay_index").glob("bucket=*"):
            shutil.rmtree(folder)
        self._restart()
        self._upkeep().work()

    def _die(self) -> None:
        """The broker dies when a bucket is written that no commit names."""

        def die(*arguments):
            raise Crash

        with pytest.MonkeyPatch.context() as dying:
            dying.setattr(self.engine.rounds.bundle.delay_index.table, "commit", die)
            with pytest.raises(Crash):
                self._upkeep().seal(is_forced=True)
                raise Crash
        self._restart()

    # The end

    def _lift_limits(self) -> list[str]:
        alive = [f"t/any: {consumer} alive" for consumer in "abc"]
        return [*alive, *(f"{place}: policy {name} 0" for place in ("t/any", "p0/any") for name in LIMITS)]

    def _answers(self) -> list[str]:
        steps = [f"t/any: {consumer} alive" for consumer in "abc"]
        for place, cursor in self._places().items():
            for consumer in sorted(cursor.consumers):
                held = [position for position, each in cursor.pending.items() if each.consumer_id == consumer]
                steps += [f"{place}: {consumer} ack {position}" for position in held]
                steps.append(f"{place}: {consumer} flow 50")
        return steps
