"""Does a round take longer when there is more of what it does not touch: messages, topics, subscriptions?

Roots of all sizes stand side by side and their rounds are taken in turns: publish one message, time the round that
delivers it to one subscription, acknowledge it. Each size is compared with the smallest. Messages come in commits of
:data:`COMMIT` messages, so a large topic has also many ledgers.
"""

from collections.abc import Callable, Iterator

from tests.benchmarks.bench import Bench, in_turns, seconds, warm_up
from tests.benchmarks.figures import SECONDS, Budget, Figure
from tests.benchmarks.round_rig import RoundRig, median_parts
from tests.support.next_due import next_due
from tests.support.requests import On

COMMIT = 10_000
BUDGET = Budget(1.3, is_ratio=True)
Built = tuple[RoundRig, str, list[On]]


def measure_topic_size(bench: Bench) -> Iterator[Figure]:
    """A topic of 10^4 to 10^7 messages whose subscription has acknowledged all."""

    def build(size: int) -> Built:
        rig = RoundRig(bench.planner, bench.new_folder(f"topic_size-{size}"))
        topic = rig.create_topic("t")
        rig.publish(topic, COMMIT, size // COMMIT)
        return rig, topic, rig.subscribe([topic])

    return measure_growth(
        bench,
        "topic size",
        "{:,} messages in the topic",
        [10**4, 10**5, 10**6] + ([] if bench.is_quick else [10**7]),
        build,
    )


def measure_topics(bench: Bench) -> Iterator[Figure]:
    """Topics with a subscription and a consumer each, of which one is published to."""

    def build(size: int) -> Built:
        rig = RoundRig(bench.planner, bench.new_folder(f"topics-{size}"))
        topics = [rig.create_topic(f"t{number}") for number in range(size)]
        return rig, topics[0], rig.subscribe(topics)[:1]

    return measure_growth(bench, "topics", "{:,} topics, one moves", [1, 100, 1000], build)


def measure_subscriptions(bench: Bench) -> Iterator[Figure]:
    """Subscriptions with a consumer each, of which one has permits."""

    def build(size: int) -> Built:
        rig = RoundRig(bench.planner, bench.new_folder(f"subscriptions-{size}"))
        topic = rig.create_topic("t")
        return rig, topic, rig.subscribe([topic], size, with_permits=1)[:1]

    return measure_growth(bench, "subscriptions", "{:,} subscriptions, one moves", [1, 100, 1000], build)


def measure_growth(
    bench: Bench, family: str, what: str, sizes: list[int], build: Callable[[int], Built]
) -> Iterator[Figure]:
    """Rounds that deliver one message, on what *build* makes of each size; *what* names a size. The first size is what
    others are compared with."""
    built = []
    for size in sizes:
        bench.say(f"{family}: making {what.format(size)}")
        built.append(build(size))
    bench.say(f"{family}: rounds in turns")
    warm_up(_delivery(*built[0], {}))
    phases: list[dict] = [{} for _ in sizes]
    runs = in_turns(bench.few(9, 25), *(_delivery(*made, found) for made, found in zip(built, phases)), warm_up=3)
    for size, measured, found in zip(sizes, runs, phases):
        is_base = size == sizes[0]
        yield Figure(
            family,
            f"round: {what.format(size)}",
            SECONDS,
            measured,
            None if is_base else what.format(sizes[0]),
            () if is_base else runs[0],
            None if is_base else BUDGET,
            median_parts(found),
        )
    for size, (rig, _, _) in zip(sizes, built):
        yield Figure(
            family, f"look for news between rounds: {what.format(size)}", SECONDS, [_look(rig) for _ in range(50)]
        )


def _delivery(
    rig: RoundRig, topic: str, subscribed: list[On], collected: dict[str, list[float]]
) -> Callable[[], float]:
    def deliver() -> float:
        with rig.phases() as phases:
            elapsed = rig.timed_delivery(topic, 1, subscribed)
        for phase, values in phases.items():
            collected.setdefault(phase, []).extend(values)
        return elapsed

    return deliver


def _look(rig: RoundRig) -> float:
    """What a waiting broker does a hundred times a second."""
    bundle = rig.rounds.bundle
    return seconds(lambda: (bundle.has_news(), next_due(bundle, bundle.now.own)))
