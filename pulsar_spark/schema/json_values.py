"""JSON values of logical types: dates, times, decimals and uuids.

Stored as by Avro, but decimals as texts. Python values are those of ``fastavro``; an instant without a zone is in the
machine's.
"""

import json
from datetime import date, datetime, time, timedelta, timezone
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any
from uuid import UUID

from pulsar_spark.protocol.schemas.avro_resolution import AvroType
from pulsar_spark.schema.fields import Field
from pulsar_spark.schema.record import Record

_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_CLASSES = {"date": date, "time": time, "timestamp": datetime, "local": datetime, "decimal": Decimal, "uuid": UUID}
"""By the beginning of the logical type's name."""


def has_logical_types(kind: AvroType, seen: frozenset[str] = frozenset()) -> bool:
    """Whether *kind* has a logical type, outside of the records already *seen*."""
    if kind.name in seen:
        return False
    seen |= {kind.name} if kind.name else set()
    parts = [*kind.branches, *(field.type for field in kind.fields.values())]
    return bool(kind.logical) or any(has_logical_types(each, seen) for each in parts)


def to_json(value: Any, kind: AvroType) -> Any:
    """*value* with logical values as JSON stores them; ValueError for a decimal that does not fit its definition."""
    if kind.kind == "union":
        return to_json(value, _arm(value, kind))
    if kind.kind == "record":
        fields = vars(value) if isinstance(value, Record) else value
        if not isinstance(fields, dict):
            return value
        return {
            name: to_json(each, kind.fields[name].type) if name in kind.fields else each
            for name, each in fields.items()
        }
    if kind.kind == "array" and isinstance(value, list):
        return [to_json(each, kind.branches[0]) for each in value]
    if kind.kind == "map" and isinstance(value, dict):
        return {key: to_json(each, kind.branches[0]) for key, each in value.items()}
    return _stored(value, kind) if kind.logical and isinstance(value, _class_of(kind)) else value


def from_json(value: Any, kind: AvroType, field: Any = None) -> Any:
    """*value* with Python's values of logical types; numbers with a point were read as ``Decimal``. *field* is the
    record or field for *kind*; one of another class gets the stored value."""
    if value is None:
        return None
    if kind.kind == "union":
        arms = [each for each in kind.branches if each.kind != "null"]
        return from_json(value, arms[0], field) if len(arms) == 1 else _floats(value)
    if kind.kind == "record" and isinstance(value, dict):
        return _read_fields(value, kind, field)
    if kind.kind == "array" and isinstance(value, list):
        return [from_json(each, kind.branches[0], getattr(field, "array_type", None)) for each in value]
    if kind.kind == "map" and isinstance(value, dict):
        element = getattr(field, "value_type", None)
        return {key: from_json(each, kind.branches[0], element) for key, each in value.items()}
    if kind.kind in ("float", "double") and value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    is_wanted = not isinstance(field, Field) or issubclass(_class_of(kind), field.python_type())
    return _loaded(value, kind) if kind.logical and is_wanted else _floats(value)


def _read_fields(value: dict, kind: AvroType, record: Any) -> dict[str, Any]:
    """The defined fields. A missing one gets its default, unless a *record* supplies it."""
    found = {}
    for name, each in kind.fields.items():
        if name in value:
            found[name] = from_json(value[name], each.type, getattr(record, "_fields", {}).get(name))
        elif record is None and each.default is not None:
            found[name] = from_json(json.loads(each.default, parse_float=Decimal), each.type)
    return found


def _arm(value: Any, union: AvroType) -> AvroType:
    """Among several logical types, the one of the value's class."""
    arms = [each for each in union.branches if each.kind != "null"]
    if len(arms) == 1:
        return arms[0]
    return next((each for each in arms if each.logical and type(value) is _class_of(each)), AvroType("null"))


def _class_of(kind: AvroType) -> type:
    return _CLASSES.get(kind.logical.partition("-")[0], object)


def _floats(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict):
        return {name: _floats(each) for name, each in value.items()}
    return [_floats(each) for each in value] if isinstance(value, list) else value


def _stored(value: Any, kind: AvroType) -> int | str:
    if kind.logical == "uuid":
        return str(value)
    if kind.logical == "decimal":
        return format(_exact(value, kind), "f")
    if kind.logical == "date":
        return value.toordinal() - _EPOCH.toordinal()
    if isinstance(value, time):
        value = datetime.combine(_EPOCH, value)
    elif kind.logical.startswith("timestamp"):
        value = value.astimezone(timezone.utc)
    micros = (value.replace(tzinfo=None) - _EPOCH) // _MICROSECOND
    return micros // 1000 if kind.logical.endswith("millis") else micros


def _exact(value: Any, kind: AvroType) -> Decimal:
    """A decimal with its definition's digits; ValueError if it has more."""
    room = Context(prec=kind.precision, traps=[InvalidOperation, Inexact])
    try:
        return room.quantize(Decimal(value), Decimal(1).scaleb(-kind.scale))
    except ArithmeticError:
        raise ValueError(
            f"the decimal '{value}' does not fit a definition of {kind.precision} digits, {kind.scale} of them after "
            "the point: round it"
        ) from None


def _loaded(value: Any, kind: AvroType) -> Any:
    if kind.logical == "uuid":
        return UUID(value)
    if kind.logical == "decimal":
        return _exact(value, kind)
    if kind.logical == "date":
        return date.fromordinal(_EPOCH.toordinal() + value)
    found = _EPOCH + value * (1000 if kind.logical.endswith("millis") else 1) * _MICROSECOND
    if kind.logical.startswith("time-"):
        return found.time()
    return found if kind.logical.startswith("local") else found.replace(tzinfo=timezone.utc)
