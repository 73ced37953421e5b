"""What each test costs, kept in ``tests/costs.tsv``: the order of a run, and which part of it fits into a time.

A line of the table is a test function, the seconds that all its cases take together, and those of its dearest case.
Functions whose cases take less than half a second together have no line. ``pytest -m everything --measure`` writes the
table anew, on two cores with nothing beside them.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

TABLE = Path(__file__).parents[1] / "costs.tsv"
LEAST_SECONDS = 0.5
CHEAP_SECONDS, SPARK_SECONDS = 0.02, 3.0
"""What a case of a function without a line is taken to cost; on Spark."""
HEADER = "test\tseconds\tdearest case\n"


class Cost(NamedTuple):
    """What the cases of a test function take: all of them together, and the dearest, in seconds."""

    seconds: float
    dearest: float


def function_of(node_id: str) -> str:
    """The test function of a case.

    >>> function_of("tests/test_a.py::test_b[c::d]@group of xdist")
    'tests/test_a.py::test_b'
    """
    return node_id.partition("[")[0].partition("@")[0]


def read_costs(table: Path = TABLE) -> dict[str, Cost]:
    """The table, by test function."""
    lines = table.read_text(encoding="utf-8").splitlines()[1:]
    return {name: Cost(float(seconds), float(dearest)) for name, seconds, dearest in map(str.split, lines)}


def write_costs(cases: dict[str, float], table: Path = TABLE) -> None:
    """Write the table from the seconds of every case. Functions that were not run keep their lines."""
    measured = defaultdict(list)
    for node_id, seconds in cases.items():
        measured[function_of(node_id)].append(seconds)
    costs = read_costs(table) if table.exists() else {}
    costs |= {name: Cost(sum(each), max(each)) for name, each in measured.items()}
    lines = (
        f"{name}\t{cost.seconds:.1f}\t{cost.dearest:.1f}\n"
        for name, cost in sorted(costs.items())
        if cost.seconds >= LEAST_SECONDS
    )
    table.write_text(HEADER + "".join(lines), encoding="utf-8")


def prices(items: Iterable[pytest.Item], costs: dict[str, Cost]) -> dict[str, float]:
    """Seconds of the cases given, by test function."""
    unknown = defaultdict(float)
    for item in items:
        unknown[function_of(item.nodeid)] += SPARK_SECONDS if item.get_closest_marker("spark") else CHEAP_SECONDS
    return {name: costs[name].seconds if name in costs else seconds for name, seconds in unknown.items()}


def within(price: dict[str, float], seconds: float) -> set[str]:
    """The cheapest functions that take at most *seconds* together.

    The table decides, so a run with the same limit has the same part.

    >>> sorted(within({"a": 3, "b": 1, "c": 2}, 4))
    ['b', 'c']
    """
    chosen, spent = set(), 0.0
    for name in sorted(price, key=lambda each: (price[each], each)):
        spent += price[name]
        if spent > seconds:
            break
        chosen.add(name)
    return chosen


class Choosing:
    """A plugin of pytest that puts the cheapest files first and, given a limit, leaves out what does not fit."""

    def __init__(self, minutes: float | None) -> None:
        self.minutes = minutes

    @pytest.hookimpl(trylast=True)  # after ``-m`` and ``-k`` have left out theirs
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        price = prices(items, read_costs())
        if self.minutes is not None:
            chosen = within(price, self.minutes * 60)
            config.hook.pytest_deselected(items=[item for item in items if function_of(item.nodeid) not in chosen])
            items[:] = [item for item in items if function_of(item.nodeid) in chosen]
        by_file = defaultdict(float)
        for name, seconds in price.items():
            by_file[name.partition("::")[0]] += seconds
        items.sort(key=lambda item: by_file[item.nodeid.partition("::")[0]])  # fixtures of a module stay together


class Measuring:
    """A plugin of pytest that measures every case and writes the table at the end. One process measures: no workers."""

    def __init__(self) -> None:
        self.cases: dict[str, float] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._began = time.perf_counter()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.cases[nodeid] = time.perf_counter() - self._began

    def pytest_sessionfinish(self) -> None:
        write_costs(self.cases)
