"""Convert values of a column to what a schema stores, field by field.

A column type is accepted if none of its values can lose anything, and also in stored form, such as an int for a date.
Fields are matched by name. Values that do not fit, such as a forbidden null, fail with the field's name."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

from pyspark.sql import types as T

from pulsar_spark.errors import InvalidConfiguration, InvalidMessage
from pulsar_spark.frames.values.value_types import EXACT, UUID_TEXT, arrow_type, members, spark_type_of
from pulsar_spark.protocol.schemas.avro_resolution import AvroType
from pulsar_spark.protocol.schemas.schema_info import SchemaType

Writer = Callable[[Any], Any]
_DIGITS: dict[type[T.DataType], int] = {T.ByteType: 3, T.ShortType: 5, T.IntegerType: 10, T.LongType: 19}
_SMALL, _INTS, _LONGS = tuple(_DIGITS)[:2], tuple(_DIGITS)[:3], tuple(_DIGITS)
_TEXTS = (T.StringType, T.CharType, T.VarcharType)
_TAKEN: dict[str, tuple[type[T.DataType], ...]] = {
    "null": _TEXTS,
    "boolean": (T.BooleanType,),
    "int": _INTS,
    "long": _LONGS,
    "float": (T.FloatType, *_SMALL),
    "double": (T.DoubleType, T.FloatType, *_INTS),
    "string": _TEXTS,
    "enum": _TEXTS,
    "bytes": (T.BinaryType, *_TEXTS),
    "fixed": (T.BinaryType,),
    "uuid": _TEXTS,
    "date": (T.DateType, *_INTS),
    "time-millis": (T.TimeType, *_INTS),
    "time-micros": (T.TimeType, *_LONGS),
    "timestamp-millis": (T.TimestampType, *_LONGS),
    "timestamp-micros": (T.TimestampType, *_LONGS),
    "local-timestamp-millis": (T.TimestampNTZType, *_LONGS),
    "local-timestamp-micros": (T.TimestampNTZType, *_LONGS),
}
"""Column types that lose nothing, by logical type or kind."""


class Misfit(ValueError):
    """A value does not fit the schema; the text names its field and the reason."""


class Place(NamedTuple):
    """A field: its *path* below the column, and the *form* in which it is written.

    A writer for *is_strict* also checks what ``fastavro`` refuses without naming the field."""

    form: SchemaType
    is_strict: bool
    path: str = ""

    def below(self, name: str) -> "Place":
        return self._replace(path=f"{self.path}.{name}" if self.path else name)

    def __str__(self) -> str:
        return f"field {self.path!r} of column 'value'" if self.path else "column 'value'"


def value_writer(given: T.DataType, kind: AvroType, place: Place) -> Writer | None:
    """A function that converts values of a column of the type *given*, nulls included; None if nothing is to convert.

    :class:`InvalidMessage` if such a column can lose something."""
    may_be_null = kind.kind == "null" or any(each.kind == "null" for each in kind.branches if kind.kind == "union")
    inner = None if isinstance(given, T.NullType) else _writer(given, kind, place)
    if may_be_null:
        return inner and (lambda value: None if value is None else inner(value))
    if inner is None and not place.is_strict and kind.kind != "boolean":
        return None  # fastavro refuses nulls itself, but writes False for a null boolean

    def required(value: Any) -> Any:
        if value is None:
            raise Misfit(f"{place} is null, which the schema does not allow")
        return value if inner is None else inner(value)

    return required


def _writer(given: T.DataType, kind: AvroType, place: Place) -> Writer | None:
    if kind.kind == "union":
        return _union_writer(given, kind, place)
    if kind.kind == "record":
        record = _checked_record(given, list(kind.fields), kind, place)
        return _record_writer(record, {name: field.type for name, field in kind.fields.items()}, place)
    if kind.kind == "array":
        if not isinstance(given, T.ArrayType):
            raise _refused(given, kind, place)
        element = value_writer(given.elementType, kind.branches[0], place._replace(path=f"{place.path}[]"))
        return element and (lambda values: [element(each) for each in values])
    if kind.kind == "map":
        if not isinstance(given, T.MapType) or not isinstance(given.keyType, _TEXTS):
            raise _refused(given, kind, place)
        item = value_writer(given.valueType, kind.branches[0], place._replace(path=f"{place.path}{{}}"))
        return item and (lambda values: {key: item(each) for key, each in values.items()})
    return _leaf_writer(given, kind, place)


def _checked_record(given: T.DataType, names: list[str], kind: AvroType, place: Place) -> T.StructType:
    if not isinstance(given, T.StructType):
        raise _refused(given, kind, place)
    if sorted(given.fieldNames()) != sorted(names):
        raise InvalidMessage(f"{place} has the fields {sorted(given.fieldNames())}, the schema {sorted(names)}")
    return given


def _record_writer(given: T.StructType, fields: dict[str, AvroType], place: Place) -> Writer | None:
    writers = {}
    for name, kind in fields.items():
        if writer := value_writer(given[name].dataType, kind, place.below(name)):
            writers[name] = writer

    def write(value: dict) -> dict:
        for name, writer in writers.items():
            value[name] = writer(value[name])
        return value

    return write if writers else None


def _union_writer(given: T.DataType, kind: AvroType, place: Place) -> Writer | None:
    arms = members(kind)
    is_avro = place.form is SchemaType.AVRO
    if len(arms) < 2:
        arm = arms[0] if arms else AvroType("null")
        inner = _writer(given, arm, place)
        if is_avro and arm not in kind.branches and arms:  # fastavro would choose by the value
            return lambda value: (arm.kind, value)
        return inner
    names = [f"member{number}" for number in range(len(arms))]
    record = _checked_record(given, names, kind, place)
    writers = [value_writer(record[name].dataType, arm, place.below(name)) for name, arm in zip(names, arms)]
    may_be_null = len(arms) < len(kind.branches)

    def write(value: dict) -> Any:
        found = [number for number, name in enumerate(names) if value[name] is not None]
        if not found and may_be_null:
            return None
        if len(found) != 1:
            raise Misfit(f"{place} has {len(found)} members that are not null: give one of {', '.join(names)}")
        member, writer, arm = value[names[found[0]]], writers[found[0]], arms[found[0]]
        member = member if writer is None else writer(member)
        return (arm.name or arm.kind, member) if is_avro else member

    return write


def _leaf_writer(given: T.DataType, kind: AvroType, place: Place) -> Writer | None:
    if kind.logical == "decimal":
        return _decimal_writer(given, kind, place)
    is_json = place.form is SchemaType.JSON
    if is_json and kind.kind in ("bytes", "fixed"):
        raise InvalidConfiguration(
            f"{place} holds bytes, which JSON does not have: give its field the type String in the schema"
        )
    if not isinstance(given, _TAKEN[kind.logical or kind.kind]):
        raise _refused(given, kind, place)
    if kind.kind == "null":
        return _check(lambda value: False, f"{place} is not null, but the schema allows only null")
    if kind.logical == "uuid":
        return _check(UUID_TEXT.fullmatch, f"{place} holds a text that is not a uuid")
    if kind.logical.startswith("time") or kind.logical.startswith("local"):
        return _instant_writer(given, kind, place)
    if kind.kind == "enum" and (is_json or place.is_strict):
        return _check(set(kind.symbols).__contains__, f"{place} holds a text that is none of its symbols")
    if kind.kind == "fixed" and place.is_strict:
        return _check(lambda value: len(value) == kind.size, f"{place} does not have {kind.size} bytes")
    if kind.kind == "bytes" and isinstance(given, _TEXTS):
        return str.encode
    if is_json and kind.kind in ("float", "double"):
        return _json_number
    return None


def _check(is_right: Callable[[Any], Any], why: str) -> Writer:
    def check(value: Any) -> Any:
        if not is_right(value):
            raise Misfit(why)
        return value

    return check


def _instant_writer(given: T.DataType, kind: AvroType, place: Place) -> Writer | None:
    """Writes times of day, given in nanoseconds, and instants, given in microseconds."""
    if isinstance(given, _LONGS):
        return None
    per_second = 1_000_000_000 if isinstance(given, T.TimeType) else 1_000_000
    unit = "milliseconds" if kind.logical.endswith("millis") else "microseconds"
    divisor = per_second // (1_000 if unit == "milliseconds" else 1_000_000)
    if divisor == 1:
        return None

    def write(value: int) -> int:
        if value % divisor:
            raise Misfit(f"{place} is not a whole number of {unit}, the unit of the schema: round it with date_trunc")
        return value // divisor

    return write


def _decimal_writer(given: T.DataType, kind: AvroType, place: Place) -> Writer | None:
    whole = kind.precision - kind.scale
    if isinstance(given, T.DecimalType):
        fits = given.scale <= kind.scale and given.precision - given.scale <= whole
    elif isinstance(given, T.BinaryType) and place.form is SchemaType.AVRO:
        return None
    else:
        fits = _DIGITS.get(type(given), whole + 1) <= whole
    if not fits:
        raise _refused(given, kind, place)
    if place.form is SchemaType.JSON:
        return lambda value: format(Decimal(value), "f")

    def write(value: Decimal | int) -> bytes:
        number = int(EXACT.scaleb(Decimal(value), kind.scale))
        return number.to_bytes(kind.size or number.bit_length() // 8 + 1, "big", signed=True)

    return write


def _json_number(value: float) -> float | str:
    if value != value:
        return "NaN"
    return value if abs(value) != float("inf") else "Infinity" if value > 0 else "-Infinity"


def _refused(given: T.DataType, kind: AvroType, place: Place) -> InvalidMessage:
    wanted = spark_type_of(arrow_type(kind)).simpleString()
    stored = kind.logical or kind.kind
    return InvalidMessage(
        f"{place} is a {given.simpleString()}, whose values may not fit {stored}: cast it to {wanted}"
    )
