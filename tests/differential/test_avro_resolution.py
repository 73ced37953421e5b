"""The rule of what reads what against Avro's own library, which Spark brings: the cases of the rule's test, and random
definitions, each with one that came of it by a few changes."""

import json
import os
import random

import pytest
from py4j.protocol import Py4JJavaError

from pulsar_spark.protocol.schemas.avro_resolution import parse_definition, unreadable
from tests.protocol.test_schema_compatibility import READS

PLAIN = ("null", "boolean", "int", "long", "float", "double", "string", "bytes")
PAIRS = 300


class Definitions:
    """Random definitions, of few names, so that many fit."""

    def __init__(self, draw: random.Random):
        self.draw, self._names = draw, set()

    def any(self, depth: int, *, in_union: bool = False):
        kind = self.draw.random() if depth else 0
        if kind < 0.45:
            return self.draw.choice(PLAIN)
        if kind < 0.62:
            held = "items" if kind < 0.55 else "values"
            return {"type": "array" if held == "items" else "map", held: self.any(depth - 1)}
        if kind < 0.75:
            return self._enum_or_fixed()
        return self.record(depth) if kind > 0.88 or in_union else self._union(depth)

    def record(self, depth: int):
        fields = []
        for name in self.draw.sample("abc", self.draw.randint(0, 3)):
            kind = self.any(depth - 1)
            field = {"name": name, "type": kind}
            first = kind[0] if isinstance(kind, list) else kind
            if first in ("int", "null") and self.draw.random() < 0.5:
                field["default"] = 0 if first == "int" else None
            if self.draw.random() < 0.1:
                field["aliases"] = [self.draw.choice("abcd")]
            fields.append(field)
        return self._new(("R", "S", "n.R"), {"type": "record", "fields": fields})

    def _enum_or_fixed(self):
        if self.draw.random() < 0.7:
            symbols = self.draw.sample("ABC", self.draw.randint(1, 3))
            return self._new(("E", "F", "n.E"), {"type": "enum", "symbols": symbols})
        return self._new(("X", "Y"), {"type": "fixed", "size": self.draw.randint(1, 2)})

    def _union(self, depth: int):
        arms = {}
        for _ in range(self.draw.randint(1, 3)):
            arm = self.any(depth - 1, in_union=True)
            arms.setdefault(arm["type"] + arm.get("name", "") if isinstance(arm, dict) else arm, arm)
        return list(arms.values())

    def _new(self, names: tuple[str, ...], made: dict):
        name = self.draw.choice(names)
        if name in self._names:
            return "string"
        self._names.add(name)
        return {"name": name} | made

    def changed(self, node):
        """A definition that came of another one."""
        if isinstance(node, list):
            arms = [self.changed(each) for each in node]
            return self.draw.sample(arms, len(arms)) if self.draw.random() < 0.2 else arms
        if isinstance(node, str):
            if self.draw.random() < 0.15 and node in ("int", "long", "float", "string", "bytes"):
                return self.draw.choice(["int", "long", "double", "string", "bytes", ["null", node]])
            return node
        made = {name: self.changed(each) if name in ("items", "values") else each for name, each in node.items()}
        if "fields" in made:
            kept = [field for field in made["fields"] if self.draw.random() > 0.1]
            made["fields"] = [field | {"type": self.changed(field["type"])} for field in kept]
        if "symbols" in made and self.draw.random() < 0.3:
            made["symbols"] = made["symbols"][:1]
        return made


class JavaAvro:
    """Avro's library, in Spark's JVM."""

    def __init__(self, spark):
        self._jvm = spark.sparkContext._jvm
        self._can_read = self._jvm.org.apache.avro.SchemaValidatorBuilder().canReadStrategy().validateLatest()

    def parsed(self, definition):
        """None for a definition that is none."""
        try:
            return self._jvm.org.apache.avro.Schema.Parser().setValidateDefaults(False).parse(json.dumps(definition))
        except Py4JJavaError:
            return None

    def can_read(self, writer, reader) -> bool | None:
        before = self._jvm.java.util.ArrayList()
        before.add(writer)
        try:
            self._can_read.validate(reader, before)
        except Py4JJavaError as refused:
            name = refused.java_exception.getClass().getName()
            if "SchemaValidationException" not in name:
                return None  # an alias that is another field's name is an accident to the library
            return False
        return True


@pytest.fixture(scope="module")
def java(spark) -> JavaAvro:
    return JavaAvro(spark)


def can_read(writer, reader) -> bool:
    return unreadable(*(parse_definition(json.dumps(each)) for each in (writer, reader))) is None


def test_the_cases_are_avros(java):
    for writer, reader, expected in READS:
        assert java.can_read(java.parsed(writer), java.parsed(reader)) is expected, (writer, reader)


def test_random_definitions(java):
    draw, outcomes = random.Random(int(os.environ.get("PULSAR_SPARK_SEED", 1))), []
    while len(outcomes) < PAIRS:
        drawn = Definitions(draw)
        writer = drawn.record(3) if draw.random() < 0.7 else drawn.any(3)
        reader = drawn.changed(writer) if draw.random() < 0.8 else Definitions(draw).any(3)
        parsed = java.parsed(writer), java.parsed(reader)
        if None not in parsed:
            expected = java.can_read(*parsed)
            if expected is None:
                continue
            outcomes.append(expected)
            assert can_read(writer, reader) is outcomes[-1], (json.dumps(writer), json.dumps(reader))
    assert PAIRS / 5 < sum(outcomes) < PAIRS * 4 / 5, "both outcomes are tried"
