"""What messages cost that are sent one at a time: to publish, by threads and by processes, and to drain, without Spark.

A rate is that of all messages from the moment the clients, which are connected, are let go until the last is done. With
:data:`BEFORE` set to a checkout of an earlier commit, each measurement is also taken there, in turn.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.bench import Bench
from tests.benchmarks.figures import BYTES, PER_SECOND, SECONDS, Budget, Figure

FAMILY = "small"
BEFORE = "PULSAR_SPARK_BEFORE"
THREADS, PROCESSES = 10, 8
TYPES = ("Exclusive", "Shared", "KeyShared")
DRAIN_RATE = Budget(4000, is_most=False)
PROCESSOR = Budget(0.002)
_HERE = Path(__file__).parents[2]


class Clients(NamedTuple):
    """What some clients measured together."""

    rate: float
    processor: float
    memory: float


def measure(bench: Bench) -> Iterator[Figure]:
    sides = [_HERE, *([Path(os.environ[BEFORE])] if BEFORE in os.environ else [])]
    repeats, sent = bench.few(1, 5), bench.few(200, 600)
    root = bench.new_folder(FAMILY)

    def sends(processes: int, threads: int, messages: int, has_broker: bool = False) -> list[list[Clients]]:
        found: list[list[Clients]] = [[] for _ in sides]
        for turn in range(repeats):
            for side, code in enumerate(sides):
                bench.say(f"small: {processes} processes with {threads} threads send, {code.name}, {turn}")
                folder = root / "send"
                shutil.rmtree(folder, ignore_errors=True)
                with broker_of(code, folder) if has_broker else ExitStack():
                    found[side].append(together(code, "send", folder, [[str(messages), str(threads)]] * processes))
        return found

    alone, beside = sends(1, 1, sent), sends(1, 1, sent, has_broker=True)
    yield from _figures("send one at a time", "rate", PER_SECOND, alone)
    yield from _figures("send one at a time", "processor", SECONDS, alone, PROCESSOR)
    yield from _figures("send one at a time, beside a broker", "rate", PER_SECOND, beside)
    yield from _figures(f"{THREADS} threads of one producer", "rate", PER_SECOND, sends(1, THREADS, 5 * sent))
    yield from _figures(f"{PROCESSES} processes to one topic", "rate", PER_SECOND, sends(PROCESSES, 1, sent))
    yield from _drains(bench, root, sides)


def _drains(bench: Bench, root: Path, sides: Sequence[Path]) -> Iterator[Figure]:
    for messages in bench.few((300,), (3000, 10_000)):
        for kind in TYPES:
            found: list[list[Clients]] = [[] for _ in sides]
            for side, code in enumerate(sides):
                folder = root / f"drain-{side}-{messages}"
                if not folder.exists():
                    bench.say(f"small: {messages} messages are sent, {code.name}")
                    together(code, "send", folder, [[str(messages), "1"]])
            for turn in range(bench.few(1, 3)):
                for side, code in enumerate(sides):
                    bench.say(f"small: draining {messages}, {kind}, {code.name}, {turn}")
                    folder, given = root / f"drain-{side}-{messages}", [f"{kind}-{turn}", kind, str(messages)]
                    with broker_of(code, folder):
                        found[side].append(together(code, "drain", folder, [given]))
            what = f"drain {messages:,} that were sent one at a time, {kind}"
            yield from _figures(what, "rate", PER_SECOND, found, DRAIN_RATE)
            yield from _figures(what, "memory", BYTES, found)


def _figures(
    what: str, measured: str, unit: str, sides: Sequence[Sequence[Clients]], budget: Budget | None = None
) -> Iterator[Figure]:
    ours, *others = ([getattr(run, measured) for run in side] for side in sides)
    named = what if measured == "rate" else f"{what}: {measured}"
    yield Figure(FAMILY, named, unit, ours, "before" if others else None, others[0] if others else (), budget)


def together(code: Path, what: str, root: Path, each: Sequence[Sequence[str]]) -> Clients:
    """Run clients of the checkout *code* at the same time, each with its further arguments."""
    script = [str(_HERE / "tests/benchmarks/small_process.py"), what, str(root), "t"]
    with ExitStack() as ending:
        clients = [ending.enter_context(python([*script, *given], code)) for given in each]
        for client in clients:
            client.stdout.readline()
        for client in clients:
            client.stdin.write("go\n")
            client.stdin.flush()
        found = [json.loads(client.stdout.readline()) for client in clients]
    seconds = max(one["ended"] for one in found) - min(one["began"] for one in found)
    processor = sum(one["processor"] for one in found) / len(found)
    return Clients(
        sum(one["messages"] for one in found) / seconds, processor, max(one.get("memory", 0) for one in found)
    )


@contextmanager
def broker_of(code: Path, root: Path) -> Iterator[subprocess.Popen]:
    """A broker without Spark, of the checkout *code*."""
    with python(["-m", "tests.benchmarks.kept_broker", str(root), "off"], code) as broker:
        broker.stdout.readline()
        yield broker
        broker.stdin.close()


def python(given: Sequence[str], code: Path) -> subprocess.Popen:
    """A Python process that imports the checkout *code*."""
    environment = os.environ | {"PYTHONPATH": str(code)}
    command = [sys.executable, *given]
    return subprocess.Popen(
        command, cwd=code, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
