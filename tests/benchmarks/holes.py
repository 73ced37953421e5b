"""A cursor with as many holes as acknowledgements: every second message of a backlog is acknowledged by itself.

All messages are pending at one consumer. The acknowledgements come in rounds of :data:`ACKS_A_ROUND`, as clients group
them; then one round more is timed, with all holes there, a snapshot of everything, and a start from the tables, whose
cursor must be what it was before.
"""

import random
import time
from collections.abc import Callable, Iterator

import numpy as np

from pulsar_spark.broker.bundle.load_bundle import load_bundle
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, Range
from pulsar_spark.protocol.acknowledgement.packed_ranges import PackedRanges
from pulsar_spark.protocol.entries.entry_map import EntryMap
from pulsar_spark.protocol.entries.entry_ranges import put_ranges
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import Layout
from pulsar_spark.table_specs import REQUESTS
from tests.benchmarks.bench import Bench, in_turns, seconds
from tests.benchmarks.figures import BYTES, SECONDS, Budget, Figure
from tests.benchmarks.past import measured_apart
from tests.benchmarks.round_rig import RoundRig
from tests.support.requests import On

ACKS_A_ROUND = 10_000
PUBLISH = 100_000
BUDGET = Budget(1.0)
RANDOM_STEP = 1_000
RANDOM_BUDGET = Budget(RANDOM_STEP * 0.1e-3)
MANY_PUBLISH = 1_000_000
MEMORY_BUDGET, START_BUDGET = Budget(1e9), Budget(15.0)
FAMILY = "holes"


def measure(bench: Bench) -> Iterator[Figure]:
    holes = bench.few(50_000, 1_000_000)
    rig = RoundRig(bench.planner, bench.new_folder("holes"))
    topic = rig.create_topic("t")
    (on,) = rig.subscribe([topic])
    bench.say(f"{holes:,} holes")
    rig.publish(topic, PUBLISH, 2 * holes // PUBLISH)
    rig.ask([])
    taken = []
    for start in range(0, 2 * holes, 2 * ACKS_A_ROUND):
        acks = [on.ack(position) for position in range(start + 1, start + 2 * ACKS_A_ROUND, 2)]
        taken.append(seconds(lambda: rig.ask(acks)))
    (cursor,) = rig.rounds.bundle.cursors.values()
    before = _facts(cursor)
    if before[0] != 2 * holes:
        raise AssertionError(f"{before[0]} ranges, not {2 * holes}")
    yield Figure(
        FAMILY,
        f"round: {ACKS_A_ROUND:,} single acknowledgements, every second missing, up to {holes:,} holes",
        SECONDS,
        taken,
        budget=BUDGET,
    )
    (rounds,) = in_turns(bench.few(9, 25), lambda: rig.timed_delivery(topic, 1, [on]))
    yield Figure(FAMILY, f"round: 1 new message, {holes:,} holes", SECONDS, rounds, budget=BUDGET)
    (middle,) = in_turns(bench.few(9, 25), _acks_in_the_middle(rig, on, holes))
    yield Figure(FAMILY, f"round: 100 acknowledgements all over, {holes:,} holes", SECONDS, middle, budget=BUDGET)
    before = _facts(cursor)
    yield Figure(
        FAMILY,
        f"snapshot of everything, {holes:,} holes",
        SECONDS,
        [seconds(rig.rounds.take_over) for _ in range(bench.few(3, 5))],
        budget=BUDGET,
    )
    yield Figure(FAMILY, f"the snapshot's size, a hole, {holes:,} holes", BYTES, [_latest_bytes(rig.layout) / holes])
    loads = []
    for _ in range(bench.few(1, 3)):
        began = time.perf_counter()
        bundle = load_bundle(rig.layout)
        loads.append(time.perf_counter() - began)
        if _facts(next(iter(bundle.cursors.values()))) != before:
            raise AssertionError("the cursor is not what it was before the restart")
    yield Figure(FAMILY, f"loading the state at a start, {holes:,} holes", SECONDS, loads)
    spread = bench.few(1_000, ACKS_A_ROUND)
    (rounds,) = in_turns(bench.few(3, 5), _acks_in_the_middle(rig, on, holes, spread))
    yield Figure(FAMILY, f"round: {spread:,} acknowledgements all over, {holes:,} holes", SECONDS, rounds)


def measure_random(bench: Bench) -> Iterator[Figure]:
    """Half of a backlog acknowledged one by one in random order."""
    messages = bench.few(20_000, PUBLISH)
    rig = RoundRig(bench.planner, bench.new_folder("random_acks"))
    topic = rig.create_topic("t")
    (on,) = rig.subscribe([topic])
    rig.publish(topic, messages)
    rig.ask([])
    positions = random.Random(1).sample(range(messages), messages // 2)
    bench.say(f"{len(positions):,} single acknowledgements in random order")
    taken = []
    for start in range(0, len(positions), RANDOM_STEP):
        acks = REQUESTS.rows([on.ack(position) for position in positions[start : start + RANDOM_STEP]])
        taken.append(seconds(lambda: rig.ask(acks)))
    what = (
        f"round: {RANDOM_STEP:,} single acknowledgements in random order, {messages // 2:,} over {messages:,} pending"
    )
    yield Figure(FAMILY, what, SECONDS, taken, budget=RANDOM_BUDGET)


def measure_many(bench: Bench) -> Iterator[Figure]:
    """A cursor of 10^7 ranges, written as rounds leave it: what a start with it takes, and rounds then."""
    ranges = bench.few(1_000_000, 10_000_000)
    rig = RoundRig(bench.planner, bench.new_folder("many_holes"))
    topic = rig.create_topic("t")
    (on,) = rig.subscribe([topic])
    bench.say(f"{ranges:,} ranges")
    rig.publish(topic, MANY_PUBLISH, ranges // MANY_PUBLISH)
    rig.ask([])
    (cursor,) = rig.rounds.bundle.cursors.values()
    ((_, _, *pending),) = cursor.ranges()
    entries = EntryMap(cursor.mark_delete)
    put_ranges(entries, _every_second(ranges, [tuple(pending), Range(0, 0, ACKNOWLEDGED)[2:]]))
    entries.take_changes()
    cursor.load_entries(entries)
    what = f"{ranges:,} ranges of a cursor"
    yield Figure(FAMILY, f"snapshot of {what}", SECONDS, [seconds(rig.rounds.take_over)])
    found = measured_apart("load", rig.layout.root, 0)
    yield Figure(FAMILY, f"loading the state at a start, {what}", SECONDS, found["load"], budget=START_BUDGET)
    yield Figure(FAMILY, f"memory of the state, {what}", BYTES, found["broker_bytes"], budget=MEMORY_BUDGET)
    yield Figure(FAMILY, f"largest memory of a process that loads {what}", BYTES, found["peak_bytes"])
    (rounds,) = in_turns(bench.few(3, 9), _acks_in_the_middle(rig, on, ranges // 2))
    yield Figure(FAMILY, f"round: 100 acknowledgements all over, {what}", SECONDS, rounds, budget=BUDGET)


def _every_second(ranges: int, tails: list[tuple]) -> PackedRanges:
    """So many ranges of an entry each, which have the *tails* in turn."""
    firsts = np.arange(ranges)
    return PackedRanges(np.stack([firsts, firsts]), firsts % len(tails), tails)


def _acks_in_the_middle(rig: RoundRig, on: On, holes: int, count: int = 100) -> Callable[[], float]:
    """Rounds of *count* acknowledgements, as far from each other as they can be, of what is still pending."""
    turn, step = iter(range(holes)), 2 * holes // count

    def acknowledge() -> float:
        offset = 2 * next(turn)
        acks = REQUESTS.rows([on.ack(position + offset) for position in range(step // 2, 2 * holes, step)])
        return seconds(lambda: rig.ask(acks))

    return acknowledge


def _facts(cursor: Cursor) -> tuple:
    ranges = list(cursor.ranges())
    return len(ranges), cursor.mark_delete, cursor.read_position, hash(tuple(ranges))


def _latest_bytes(layout: Layout) -> int:
    """Size of the newest commit of the cursor ledger."""
    log = TableLog(layout.broker_table("cursor_ledger"))
    return sum(file.size for commit in log.commits(log.latest() - 1) for file in commit.added)
