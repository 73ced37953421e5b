"""Each control rule is pure and one place asks it, and each entry fact is of one step of the plan: the tables in the
docstring of ``pulsar_spark.broker``."""

import ast
import importlib
import inspect
import re
from collections import defaultdict
from functools import cached_property, reduce
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import pytest

import pulsar_spark.broker
from pulsar_spark.transforms import round as round_

PACKAGE = Path(pulsar_spark.broker.__file__).parents[1]
NUMBER = r"\d+\.\d+(-\d+\.\d+)?"
WHOLE_MODULES = ("draining", "expiry", "failover", "key_shared", "membership", "shared", "unacked_limit")
"""Modules of ``protocol`` that hold nothing but control rules: what broker or plan ask of them is in the table."""


class Rule(NamedTuple):
    fact: str
    semantics: str
    place: str
    pure_rule: str

    @property
    def module(self) -> str:
        return module_of("broker", self.place)


class EntryFact(NamedTuple):
    fact: str
    semantics: str
    place: str


def table(header: str) -> list[list[str]]:
    """The rows of the table whose first column has this header."""
    lines = pulsar_spark.broker.__doc__.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(f"| {header} |"))
    rows = takewhile(lambda line: line.startswith("|"), lines[first + 2 :])
    return [re.split(r" *\| *", line)[1:-1] for line in rows]


def rules() -> list[Rule]:
    return [Rule(*row) for row in table("control fact")]


def entry_facts() -> list[EntryFact]:
    return [EntryFact(*row) for row in table("entry fact")]


def inputs() -> list[EntryFact]:
    return [EntryFact(*row) for row in table("input")]


def importers() -> dict[str, set[str]]:
    """The modules of ``broker`` and ``transforms`` that import each name of ``protocol``, other than for its type."""
    found = defaultdict(set)
    for path in sorted([*PACKAGE.glob("broker/**/*.py"), *PACKAGE.glob("transforms/*.py")]):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        annotations = [
            getattr(node, name) for node in ast.walk(tree) for name in ("annotation", "returns") if hasattr(node, name)
        ]
        of_types = {id(each) for annotation in annotations if annotation for each in ast.walk(annotation)}
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in of_types}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pulsar_spark.protocol."):
                for alias in (alias for alias in node.names if (alias.asname or alias.name) in used):
                    name = f"{node.module.rpartition('.')[2]}.{alias.name}"
                    found[name].add(path.relative_to(PACKAGE).with_suffix("").as_posix())
    return found


def module_of(package: str, dotted: str) -> str:
    """The module that *dotted* begins with, whichever folder of *package* it is in, as a path without ``.py``."""
    (path,) = (PACKAGE / package).rglob(f"{dotted.partition('.')[0]}.py")
    return path.relative_to(PACKAGE).with_suffix("").as_posix()


def at(package: str, dotted: str):
    """The function, class or method that *dotted* names: module first."""
    module = importlib.import_module(f"pulsar_spark.{module_of(package, dotted).replace('/', '.')}")
    return reduce(getattr, dotted.split(".")[1:], module)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.fact)
def test_a_rule_is_pure_and_asked_in_one_place(rule):
    name = rule.pure_rule.split(".")[1]
    assert re.search(rf"\b{name}\(", inspect.getsource(at("broker", rule.place))), f"{rule.place} does not ask {name}"
    assert ">>> " in inspect.getsource(at("protocol", rule.pure_rule)), "a pure rule shows itself in an example"
    assert importers()[rule.pure_rule] == {rule.module}
    assert all(re.fullmatch(rf"{NUMBER}|ours", number) for number in rule.semantics.split(", "))


def test_every_control_rule_that_is_asked_stands_in_the_table():
    said = [rule.pure_rule for rule in rules()]
    assert len(set(said)) == len(said) > 15
    asked = {
        name for name in importers() if name.split(".")[0] in WHOLE_MODULES and inspect.isroutine(at("protocol", name))
    }
    assert asked <= set(said), "say in the docstring of pulsar_spark.broker who decides it"


def test_every_step_of_the_plan_decides_something_and_nothing_else_does():
    """A row names a step that the whole plan is wired from; the other steps only shape what these decide."""
    decided = {each.place for each in entry_facts()}
    wired = {name for name in steps() if f"{name.split('.')[1]}(" in inspect.getsource(round_.plan_round)}
    assert decided <= wired and wired - decided == {
        "account.count_given",
        "blocked.count_unacked",
        "redelivery.judge_returns",
    }


@pytest.mark.parametrize("each", [*entry_facts(), *inputs()], ids=lambda each: each.fact)
def test_an_entry_fact_has_one_place_and_its_numbers(each):
    place = at("transforms" if each in entry_facts() else "broker", each.place)
    assert callable(place) or isinstance(place, cached_property)
    assert all(re.fullmatch(NUMBER, number) for number in each.semantics.split(", "))


def steps() -> set[str]:
    """What the plan's wiring imports from the steps, as module and name."""
    tree = ast.parse(inspect.getsource(round_))
    return {
        f"{node.module.rpartition('.')[2]}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pulsar_spark.transforms.")
        for alias in node.names
    }
