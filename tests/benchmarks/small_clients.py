"""What small programs cost: a message at a time from publish to receive, and many clients that send one a second each,
without Spark. With small.BEFORE set to a checkout of an earlier commit, each measurement is also taken there, in turn.
"""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.bench import Bench
from tests.benchmarks.figures import COUNT, SECONDS, Budget, Figure
from tests.benchmarks.small import BEFORE, broker_of, python

FAMILY = "small_clients"
PROCESSES = 4
_HERE = Path(__file__).parents[2]
RECEIVED_AFTER = Budget(0.008)
"""On a quiet machine."""


class _Run(NamedTuple):
    """One run's messages, by figure, and what the processors did for a message."""

    seconds: dict[str, list[float]]
    clients: float
    broker: float
    rounds: float


def measure(bench: Bench) -> Iterator[Figure]:
    sides = [_HERE, *([Path(os.environ[BEFORE])] if BEFORE in os.environ else [])]
    root, repeats = bench.new_folder(FAMILY) / "root", bench.few(1, 3)

    def runs(processes: int, clients: int, messages: int) -> list[list[_Run]]:
        found: list[list[_Run]] = [[] for _ in sides]
        for turn in range(repeats):
            for side, code in enumerate(sides):
                bench.say(f"{clients} clients in {processes} processes, {code.name}, {turn}")
                shutil.rmtree(root, ignore_errors=True)
                found[side].append(_run(code, root, processes, clients, messages))
        return found

    single = runs(1, 1, bench.few(40, 200))
    what = "one client, a message at a time"
    yield from _figures(f"{what}: publish to receive", single, "publish")
    yield from _figures(f"{what}: the round's commit to receive", single, "round", RECEIVED_AFTER)
    yield from _costs(what, single)
    for clients, seconds in ((40, bench.few(10, 60)), *bench.few((), ((200, 20),))):
        many, what = runs(PROCESSES, clients, seconds), f"{clients} clients, a message a second each"
        yield from _figures(f"{what}: publish to receive", many, "publish")
        yield from _costs(what, many)


def _figures(what: str, sides: Sequence[Sequence[_Run]], name: str, budget: Budget | None = None) -> Iterator[Figure]:
    ours, *others = ([one for run in side for one in run.seconds[name]] for side in sides)
    compared = ("before", others[0]) if others else (None, ())
    yield Figure(FAMILY, f"{what}, p50", SECONDS, ours, *compared, budget)
    yield Figure(FAMILY, f"{what}, p99", SECONDS, ours, *compared, share=0.99)


def _costs(what: str, sides: Sequence[Sequence[_Run]]) -> Iterator[Figure]:
    for name, unit, costs in (
        ("processor of the clients a message", SECONDS, "clients"),
        ("processor of the broker a message", SECONDS, "broker"),
        ("rounds a message", COUNT, "rounds"),
    ):
        ours, *others = ([getattr(run, costs) for run in side] for side in sides)
        yield Figure(FAMILY, f"{what}: {name}", unit, ours, *(("before", others[0]) if others else (None, ())))


def _run(code: Path, root: Path, processes: int, clients: int, messages: int) -> _Run:
    each = clients // processes
    script = str(_HERE / "tests/benchmarks/small_clients_process.py")
    with broker_of(code, root) as broker, ExitStack() as ending:
        started = [
            ending.enter_context(python([script, str(root), f"{n * each}", f"{each}", f"{messages}"], code))
            for n in range(processes)
        ]
        _answers(started)
        before = _processor(broker.pid)
        _answers(started, "go")
        found = [json.loads(line) for line in _answers(started, "wait")]
        spent = _processor(broker.pid) - before
        parts = [json.loads(line) for line in _answers(started, "parts")]
    sent = clients * messages
    waited = [one for each in found for one in each["waited"]]
    if len(waited) != sent:
        raise AssertionError(f"{len(waited):,} of {sent:,} messages were received")
    return _Run(
        {"publish": waited, "round": [one for each in parts for one in each["round"]]},
        sum(each["processor"] for each in found) / sent,
        spent / sent,
        parts[0]["rounds"] / sent,
    )


def _answers(processes: Sequence, word: str | None = None) -> list[str]:
    """Each process's next line, after it was given a word."""
    for process in processes if word else ():
        process.stdin.write(f"{word}\n")
        process.stdin.flush()
    return [process.stdout.readline() for process in processes]


def _processor(pid: int) -> float:
    """Seconds that processors worked for a process."""
    with open(f"/proc/{pid}/stat") as status:
        fields = status.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
