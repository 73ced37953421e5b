"""Values to bytes and back."""
import enum
from dataclasses import dataclass

import pytest

from pulsar_spark.schema import BytesSchema, JsonSchema, Record, StringSchema


class Carrier(enum.Enum):
    UA = "United"


@dataclass
class Flight:
    tail_number: str
    carrier: Carrier | str | None = None
    delay: int = 0


class Row(Record):
    name = None
    size = 0


def test_bytes_and_text():
    assert BytesSchema().decode(BytesSchema().encode(b"x")) == b"x"
    assert StringSchema().decode(StringSchema().encode("grüße")) == "grüße"
    for schema, wrong in ((BytesSchema(), "x"), (StringSchema(), b"x"), (JsonSchema(Flight), {"tail_number": "N1"})):
        with pytest.raises(TypeError):
            schema.encode(wrong)


def test_json():
    schema = JsonSchema(Flight)
    assert schema.decode(schema.encode(Flight("N14228", delay=3))) == Flight("N14228", delay=3)
    assert schema.decode(schema.encode(Flight("N14228", Carrier.UA))).carrier == "United"
    rows = JsonSchema(Row)
    assert rows.decode(rows.encode(Row(name="a"))) == Row(name="a") != Row(name="b")
    with pytest.raises(AttributeError):
        Row(colour="red")
    with pytest.raises(TypeError):
        schema.encode(Flight("N1", delay=object.__new__(type("NoFields", (), {"__slots__": ()}))))
