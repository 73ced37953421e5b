"""What a round costs: nothing new, or a few messages, for a few subscriptions with a Shared consumer each.

Rounds run in this process on real tables with the broker's prepared plan. A round delivers what was just published;
another one, not timed, acknowledges it, so that all timed rounds start from the same state.
"""

from collections.abc import Iterator
from functools import partial

from tests.benchmarks.bench import Bench, seconds, warm_up
from tests.benchmarks.figures import SECONDS, Figure
from tests.benchmarks.round_rig import RoundRig, median_parts

SUBSCRIPTIONS = (1, 3, 100)
MESSAGES = (1, 100, 10_000)
FAMILY = "fixed cost of a round"


def measure(bench: Bench) -> Iterator[Figure]:
    for subscriptions in SUBSCRIPTIONS:
        rig = RoundRig(bench.planner, bench.new_folder(f"fixed_cost-{subscriptions}"))
        topic = rig.create_topic("t")
        subscribed = rig.subscribe([topic], subscriptions)
        bench.say(f"warming up, {subscriptions} subscriptions")
        warm_up(partial(rig.timed_delivery, topic, 1, subscribed))
        bench.say(f"rounds, {subscriptions} subscriptions")
        yield _figure(f"idle, {subscriptions} subscriptions", [rig.timed_round() for _ in range(bench.few(20, 100))])
        for messages in MESSAGES:
            with rig.phases() as phases:
                runs = [rig.timed_delivery(topic, messages, subscribed) for _ in range(bench.few(9, 25))]
            yield _figure(f"{messages:,} new messages, {subscriptions} subscriptions", runs, median_parts(phases))
        if subscriptions == 1:
            with rig.phases() as phases:
                runs = [rig.timed_delivery(topic, 1, subscribed, commits=100) for _ in range(bench.few(3, 9))]
            yield _figure("100 new messages in 100 publish commits, 1 subscriptions", runs, median_parts(phases))
        yield _figure(
            f"acknowledging 1 message, {subscriptions} subscriptions",
            [_timed_ack(rig, topic, subscribed) for _ in range(bench.few(9, 25))],
        )


def _timed_ack(rig: RoundRig, topic: str, subscribed: list) -> float:
    position = rig.rounds.bundle.topics[topic].end_position(-1)
    rig.publish(topic, 1)
    rig.ask([])
    return seconds(lambda: rig.ask([on.ack(position) for on in subscribed]))


def _figure(what: str, runs: list[float], parts: dict[str, float] | None = None) -> Figure:
    what = f"round: {what}".replace(" 1 subscriptions", " 1 subscription").replace(" 1 new messages", " 1 new message")
    return Figure(FAMILY, what, SECONDS, runs, parts=parts or {})
