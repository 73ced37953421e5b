"""Map the columns of a frame to columns of the messages table, and refuse what does not fit.

An unknown column is an error, because a misspelt ``partition_key`` would publish without keys. Payloads that are
already compressed or encrypted are published as they are."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pulsar_spark.errors import InvalidMessage
from pulsar_spark.protocol.delays.delays import MAX_MS
from pulsar_spark.protocol.delays.instants import EPOCH, from_micros, to_millis
from pulsar_spark.storage.session import quoted
from pulsar_spark.table_specs import MESSAGE_KEYS, MESSAGES

REFUSED = "pulsar_spark refuses:"
"""Marks an error's text in a Spark task, so that the driver can report it without the stack trace."""

_TEXTS = (T.StringType,)
_TEXTS_OR_BYTES = (T.StringType, T.BinaryType)
_WHOLE_NUMBERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_INSTANTS = (T.TimestampType,)
_ENCRYPTION_KEYS = "array<struct<key:string,value:binary,metadata:map<string,string>>>"
_OPTIONAL = {
    "partition_key": (_TEXTS_OR_BYTES, "string"),
    "partition_key_b64_encoded": ((T.BooleanType,), "boolean"),
    "ordering_key": (_TEXTS_OR_BYTES, "string"),
    "ordering_key_b64_encoded": ((T.BooleanType,), "boolean"),
    "event_time": (_INSTANTS, "timestamp"),
    "deliver_at_time": (_INSTANTS, "timestamp"),
    "deliver_at": ((*_INSTANTS, *_WHOLE_NUMBERS), "timestamp, or bigint for milliseconds since 1970"),
    "deliver_after": ((T.DayTimeIntervalType,), "interval day to second"),
    "sequence_id": (_WHOLE_NUMBERS, "bigint"),
    "producer_name": (_TEXTS, "string"),
    "partition": (_WHOLE_NUMBERS, "int"),
    "compression": (_TEXTS, "string"),
    "uncompressed_size": (_WHOLE_NUMBERS, "bigint"),
    "encryption_keys": ((T.ArrayType,), _ENCRYPTION_KEYS),
    "encryption_algo": (_TEXTS, "string"),
    "encryption_param": ((T.BinaryType,), "binary"),
}
_ALIASES = {"key": "partition_key"}
DELIVER_TIMES = ("deliver_at_time", "deliver_at", "deliver_after")
_PROPERTIES = T.MapType(T.StringType(), T.StringType())


def message_columns(frame: DataFrame, properties_from: Sequence[str] = (), now: datetime = EPOCH) -> dict[str, Column]:
    """The columns of *frame* under the names and types of the messages table; absent columns are left out.

    ``deliver_after`` counts from *now*. :class:`InvalidMessage` if the frame's schema does not fit."""
    given = check_columns(frame.schema, properties_from)
    columns = {"payload": F.col("payload").cast("binary")}
    for name, column_type in given.items():
        target = target_of(name)
        if target not in _OPTIONAL or name in properties_from:
            continue
        if target in MESSAGE_KEYS:
            columns |= _key(target, F.col(quoted(name)), column_type)
        elif target in DELIVER_TIMES:
            columns["deliver_at_time"] = _deliver_at_time(name, column_type, now)
        else:
            columns[target] = F.col(quoted(name)).cast(_OPTIONAL[target][1])
    properties = _properties(given, properties_from)
    if properties is not None:
        columns["properties"] = properties
    return columns


def target_of(name: str) -> str:
    """The column of the messages table for a frame's column *name*; deliver times keep their names."""
    return _ALIASES.get(name, name)


def check_columns(schema: T.StructType, properties_from: Sequence[str] = ()) -> dict[str, T.DataType]:
    """The types of the columns of *schema*, by name; :class:`InvalidMessage` if they are not those of messages."""
    given = {field.name: field.dataType for field in schema.fields}
    _check_names(given, properties_from)
    payload = given["payload"]
    if not isinstance(payload, (T.BinaryType, T.StringType)):
        raise InvalidMessage(
            f"column 'payload' is a {payload.simpleString()}, not bytes or text: encode it, for instance with to_json"
        )
    for name, column_type in given.items():
        if target_of(name) not in _OPTIONAL or name in properties_from:
            continue
        types, cast = _OPTIONAL[target_of(name)]
        is_other_array = isinstance(column_type, T.ArrayType) and column_type.simpleString() != cast
        if not isinstance(column_type, types) or is_other_array:
            raise InvalidMessage(f"column {name!r} is a {column_type.simpleString()}: cast it to {cast}")
    own = given.get("properties")
    if own is not None and "properties" not in properties_from and own.simpleString() != _PROPERTIES.simpleString():
        raise InvalidMessage(f"column 'properties' is a {own.simpleString()}: cast it to map<string,string>")
    return given


def _check_names(given: dict[str, T.DataType], properties_from: Sequence[str]) -> None:
    if "payload" not in given:
        raise InvalidMessage(
            f"the frame has no column 'payload', only {sorted(given)}: select the message's bytes or text as payload"
        )
    missing = sorted(set(properties_from) - set(given))
    if missing:
        raise InvalidMessage(f"properties_from names {missing}, but the frame has only {sorted(given)}")
    unknown = sorted(set(given) - {"payload", "properties", *_OPTIONAL, *_ALIASES} - set(properties_from))
    if unknown:
        raise InvalidMessage(
            f"columns {unknown} are not columns of a message: drop them, or make them properties "
            f"with properties_from={unknown}"
        )
    for alias, name in _ALIASES.items():
        if alias in given and name in given and not {alias, name} & set(properties_from):
            raise InvalidMessage(f"columns {alias!r} and {name!r} mean the same: drop one of them")
    times = [name for name in DELIVER_TIMES if name in given and name not in properties_from]
    if len(times) > 1:
        raise InvalidMessage(f"columns {times} all set the deliver time: drop all but one of them")
    for name in (*_ALIASES, *MESSAGE_KEYS):
        flag = f"{_ALIASES.get(name, name)}_b64_encoded"
        holds_bytes = isinstance(given.get(name), T.BinaryType) and name not in properties_from
        if holds_bytes and flag in given and flag not in properties_from:
            raise InvalidMessage(f"column {name!r} holds bytes, which publish encodes: drop the column {flag!r}")


def _key(name: str, key: Column, given: T.DataType) -> dict[str, Column]:
    """The columns of a key: bytes become base64 with a flag; invalid UTF-8 fails the job."""
    if isinstance(given, T.BinaryType):
        encoded = F.translate(F.base64(key), "\r\n", "")
        return {name: encoded, f"{name}_b64_encoded": F.when(key.isNotNull(), F.lit(True))}
    text = key.cast("string")
    why = f"{name} with the bytes '%s' (hexadecimal) is not UTF-8: give a {name} of type binary"
    unreadable = refusal("InvalidMessage", why, F.substring(F.hex(key), 1, 80))
    return {name: F.when(~F.is_valid_utf8(text), unreadable.cast("string")).otherwise(text)}


def _deliver_at_time(name: str, given: T.DataType, now: datetime) -> Column:
    """The deliver time from the column *name*: an instant, milliseconds since 1970, or an interval after *now*. One
    beyond 64 bits fails the job."""
    column = F.col(quoted(name))
    if isinstance(given, T.TimestampType):
        return column
    if isinstance(given, T.DayTimeIntervalType):
        # In whole milliseconds, as client.sending.send_arguments.deliver_at_ms counts: Pulsar's deliver times have no
        # others.
        since, now_ms = timedelta(milliseconds=MAX_MS) - (now - EPOCH), from_micros(1000 * to_millis(now))
        is_beyond, instant = column > F.lit(since), F.timestamp_millis(F.unix_millis(F.lit(now_ms) + column))
    else:
        is_beyond, instant = ~column.between(-MAX_MS, MAX_MS), F.timestamp_millis(column)
    why = f"{name} '%s' exceeds 64 bits: give an instant at most {MAX_MS} milliseconds after 1970"
    beyond = refusal("InvalidMessage", why, column)
    return F.when(is_beyond, beyond.cast("timestamp")).otherwise(instant)


def not_too_late(deliver_at_time: Column, now: datetime, max_delay_ms: int) -> Column:
    """*deliver_at_time* for a publish at *now*; a delay above *max_delay_ms* fails the job."""
    too_late = refusal(
        "NotAllowedError",
        f"a message with the deliver time '%s' waits longer than the topic's maximum of {max_delay_ms} ms: deliver it "
        "earlier, or raise the maximum (set-delayed-delivery --max-delay)",
        deliver_at_time,
    )
    last = F.lit(from_micros(1000 * (to_millis(now) + max_delay_ms)))
    return F.when(deliver_at_time > last, too_late.cast("timestamp")).otherwise(deliver_at_time)


def in_one_piece(payload: str, max_message_size: int) -> str:
    """SQL for the column *payload*; a value above *max_message_size* bytes fails the job."""
    size = f"octet_length({payload})"
    begin = f"'{REFUSED}MessageTooBig: a payload has '"
    end = (
        f"' bytes, above the maximum of {max_message_size}: publish with chunking=True, publish less per message or "
        "give a larger max_message_size'"
    )
    too_big = f"cast(raise_error(concat({begin}, cast({size} as string), {end})) as binary)"
    return f"if({size} > {max_message_size}, {too_big}, {payload})"


def instant(micros: int) -> str:
    """SQL for the instant *micros* after 1970, as an array element, so that Spark does not compile new code for each.
    The index depends on the task in name only, so Spark does not fold it."""
    return f"timestamp_micros(get(array({micros}L), spark_partition_id() & 0))"


def _properties(given: dict[str, T.DataType], properties_from: Sequence[str]) -> Column | None:
    own = "properties" in given and "properties" not in properties_from
    if not properties_from:
        return _checked_properties(F.col("properties")) if own else None
    added = F.map_filter(
        F.create_map(*(part for name in properties_from for part in (F.lit(name), F.col(quoted(name)).cast("string")))),
        lambda _, value: value.isNotNull(),
    )
    if not own:
        return _checked_properties(added)
    kept = F.map_filter(
        F.coalesce(F.col("properties"), F.create_map().cast(_PROPERTIES)), lambda name, _: ~name.isin(*properties_from)
    )
    return _checked_properties(F.map_concat(kept, added))


def _checked_properties(properties: Column) -> Column:
    """*properties*; a null value or invalid UTF-8 fails the job."""
    null = refusal(
        "InvalidMessage",
        "column 'properties' has a null value: leave such properties out with map_filter, or name columns in "
        "properties_from, which leaves nulls out",
    )
    unreadable = refusal(
        "InvalidMessage", "column 'properties' has a text that is not valid UTF-8: encode it, for instance with base64"
    )
    texts = F.concat(F.map_keys(properties), F.map_values(properties))
    return (
        F.when(F.exists(F.map_values(properties), lambda value: value.isNull()), null.cast(_PROPERTIES))
        .when(F.exists(texts, lambda text: ~F.is_valid_utf8(text)), unreadable.cast(_PROPERTIES))
        .otherwise(properties)
    )


def refusal(error: str, text: str, *columns: Column) -> Column:
    """A Column that fails the job with a text from which the driver raises *error*, a class of ``pulsar_spark.errors``.
    Each ``%s`` in *text* stands for the value of one of *columns*."""
    first, *others = f"{REFUSED}{error}: {text}".split("%s")
    parts = [F.lit(first)]
    for column, following in zip(columns, others, strict=True):
        parts += [F.coalesce(column.cast("string"), F.lit("null")), F.lit(following)]
    return F.raise_error(F.concat(*parts))


def spark_type(name: str) -> str:
    return _SPARK_TYPES[str(MESSAGES.schema.field(name).type)]


_SPARK_TYPES = {
    "string": "string",
    "int64": "bigint",
    "int32": "int",
    "bool": "boolean",
    "binary": "binary",
    "timestamp[us, tz=UTC]": "timestamp",
    str(MESSAGES.schema.field("properties").type): "map<string,string>",
    str(MESSAGES.schema.field("encryption_keys").type): _ENCRYPTION_KEYS,
}
