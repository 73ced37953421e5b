"""What lies idle beside what moves, without Spark: 10^4 topics, 10^5 subscriptions with a consumer each, 10^5 rounds
that were committed before.

Of each: files and bytes under the root, a start, a look and a round in which one message is delivered. Roots of both
sizes stand side by side and are measured in turns. Earlier rounds are written as housekeeping has left them: their rows
joined, a log that begins at its last commit, which is a snapshot.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.bundle.load_bundle import load_bundle
from pulsar_spark.broker.round.rounds import Rounds
from pulsar_spark.storage.clock import now_micros
from pulsar_spark.storage.delta.commits import commit
from pulsar_spark.storage.delta.data_files import write_files
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import BUNDLES, Layout
from pulsar_spark.storage.topics.topics import prepare_root
from pulsar_spark.table_specs import CURSOR_LEDGER
from pulsar_spark.testing.plain_planner import PlainPlanner
from tests.benchmarks.bench import Bench, files_under, in_turns, seconds
from tests.benchmarks.figures import BYTES, COUNT, SECONDS, Budget, Figure
from tests.benchmarks.growth import Built
from tests.benchmarks.past import FILES_BESIDE, MOST_FILES, begin_at
from tests.benchmarks.round_rig import RoundRig

FLAT = Budget(1.3, is_ratio=True)
RESTART = Budget(15.0)
LOOKS = 50
ROUNDS_A_FILE = 4096


def measure(bench: Bench) -> Iterator[Figure]:
    for what, build, most in (
        ("topics, one moves", _topics, bench.few(1_000, 10_000)),
        ("subscriptions, one moves", _subscriptions, bench.few(10_000, 100_000)),
        ("earlier rounds", _rounds, bench.few(10_000, 100_000)),
    ):
        yield from _compared(bench, what, build, most)


def _topics(folder: Path, size: int) -> Built:
    rig = RoundRig(PlainPlanner(), folder)
    topics = [rig.create_topic(f"t{number}") for number in range(size)]
    return rig, topics[0], rig.subscribe(topics)[:1]


def _subscriptions(folder: Path, size: int) -> Built:
    rig = RoundRig(PlainPlanner(), folder)
    topic = rig.create_topic("t")
    return rig, topic, rig.subscribe([topic], size, with_permits=1)[:1]


def _rounds(folder: Path, size: int) -> Built:
    layout = Layout(folder)
    prepare_root(layout)
    table = layout.broker_table(CURSOR_LEDGER.name)
    same = dict(kind="round", round_time=datetime.now(UTC), requests_version=0, epoch=1, broker_id="before")
    for version, first in enumerate(range(1, size + 1, ROUNDS_A_FILE), start=1):
        last = min(first + ROUNDS_A_FILE, size + 1) - 1
        rows = [dict(same, round=number, is_snapshot=number == size) for number in range(first, last + 1)]
        commit(table, [version], write_files(table, CURSOR_LEDGER.rows(rows), False), {})
    begin_at(TableLog(table), size)
    return _subscriptions(folder, 1)


def _compared(bench: Bench, what: str, build: Callable[[Path, int], Built], most: int) -> Iterator[Figure]:
    sizes, built, found = (1, most), [], {}
    for size in sizes:
        bench.say(f"many: making {size:,} {what}")
        built.append(build(bench.new_folder(f"many-{size}"), size))
    bench.say(f"many: rounds in turns, {what}")
    rounds = in_turns(bench.few(15, 40), *map(_delivery, built), warm_up=5)
    looks = in_turns(LOOKS, *map(_look, built))
    for size, (rig, _, _), of_rounds, of_looks in zip(sizes, built, rounds, looks):
        bench.say(f"many: a start with {size:,} {what}")
        (files, of_files), (own, of_own) = files_under(rig.layout.root), files_under(rig.layout.root / BUNDLES)
        load, taken_over = _start(rig.layout)
        found[size] = {
            "files under the root": (COUNT, [files], None),
            "bytes under the root": (BYTES, [of_files], None),
            FILES_BESIDE: (COUNT, [own], MOST_FILES),
            "bytes of those": (BYTES, [of_own], None),
            "loading the state at a start": (SECONDS, [load], RESTART),
            "taking it over, which writes all of it": (SECONDS, [taken_over], RESTART),
            "round with 1 new message": (SECONDS, of_rounds, FLAT),
            "look for news between rounds": (SECONDS, of_looks, None),
        }
    for name, (unit, runs, budget) in found[most].items():
        yield Figure("many", f"{name}, {most:,} {what}", unit, runs, "1", found[1][name][1], budget)


def _delivery(built: Built) -> Callable[[], float]:
    rig, topic, subscribed = built
    return lambda: rig.timed_delivery(topic, 1, subscribed)


def _look(built: Built) -> Callable[[], float]:
    """What a waiting broker does a hundred times a second."""
    rounds = built[0].rounds
    return lambda: seconds(lambda: (rounds.bundle.has_news(), rounds.is_due()))


def _start(layout: Layout) -> tuple[float, float]:
    """Seconds of a load, and of taking over."""
    states: list[Bundle] = []
    load = seconds(lambda: states.append(load_bundle(layout)))
    return load, seconds(Rounds(states.pop(), PlainPlanner().run, now_micros, "benchmark").take_over)
