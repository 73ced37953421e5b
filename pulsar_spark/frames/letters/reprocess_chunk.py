"""One chunk of a job that sends dead letters back."""

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pulsar_spark.errors import DOCTOR, CorruptState, InvalidMessage
from pulsar_spark.frames.given_frames import shown
from pulsar_spark.frames.publishing.message_columns import refusal
from pulsar_spark.payloads.encoding import ENCODING_COLUMNS
from pulsar_spark.protocol.redelivery.letters import BOOKKEEPING, ORIGIN_MESSAGE_ID, REPLAYS
from pulsar_spark.storage.cursor_ledger.reprocessing import Claim
from pulsar_spark.storage.delta.data_files import read_added
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.tables import is_committed
from pulsar_spark.storage.session import local_frame
from pulsar_spark.storage.topics.topics import Topic
from pulsar_spark.table_specs import KEY_FLAGS, MESSAGE_KEYS, MESSAGES

SENT_COLUMNS = ("payload", *MESSAGE_KEYS, "event_time", "properties")
"""Columns of a letter that go into the sent message; flags for keys in base64 go, too."""


Fix = Callable[[DataFrame], DataFrame]
_MESSAGE_ID = r"^\(-?\d+,-?\d+,(\d+),-?\d+\)$"


def fixed_letters(letters: DataFrame, fix: Fix | None) -> DataFrame:
    """The result of *fix*: ``message_id`` and :data:`SENT_COLUMNS`; :class:`InvalidMessage` if it returns something
    else."""
    fixed = letters if fix is None else fix(letters)
    if not isinstance(fixed, DataFrame):
        raise InvalidMessage(f"the fix returned {shown(fixed)}: return a Spark DataFrame of the letters to send")
    missing = [name for name in ("message_id", *SENT_COLUMNS) if name not in fixed.columns]
    if missing:
        raise InvalidMessage(
            f"the fix returned letters without {missing}: keep these columns, as message_id tells which letter a row is"
        )
    return fixed.select("message_id", *SENT_COLUMNS)


def rows_to_send(
    letters: DataFrame, fix: Fix | None, claims: list[Claim], origin_partitions: Sequence[int]
) -> DataFrame:
    """The rows to publish for *claims*, in order of their numbers, which become sequence ids.

    A key that *fix* left alone keeps its base64 flags, an unchanged payload its encoding. With *origin_partitions* a
    message goes to the partition of its first origin, if that is among them and the key is unchanged. The job fails
    with :class:`InvalidMessage` if *fix* returned a letter twice or an unknown one."""
    numbers = local_frame(
        letters.sparkSession,
        pa.table(
            {
                "message_id": [claim.message_id for claim in claims],
                "number": pa.array([claim.number for claim in claims], pa.int64()),
                "times": pa.array([claim.replays for claim in claims], pa.int32()),
            }
        ),
    )
    rows = letters.select(
        "message_id",
        *(F.col(name).alias(f"{name}_before") for name in (*MESSAGE_KEYS, *(["payload"] if fix is not None else ()))),
        *KEY_FLAGS,
        *ENCODING_COLUMNS,
        *SENT_COLUMNS,
    )
    if fix is not None:
        rows = fixed_letters(letters, fix).join(rows.drop(*SENT_COLUMNS), on="message_id", how="left")
    rows = rows.join(F.broadcast(numbers), on="message_id", how="left")
    number = F.col("number")
    if fix is not None:
        rows = rows.withColumn("place", F.row_number().over(Window.partitionBy("message_id").orderBy("message_id")))
        why = "the fix returned letter %s twice, or did not get it: return each letter at most once"
        refused = refusal("InvalidMessage", why, F.col("message_id")).cast("bigint")
        number = F.when(number.isNull() | (F.col("place") > 1), refused).otherwise(number)
    columns = {name: F.col(name) for name in SENT_COLUMNS} | {"properties": _sent_properties(), "sequence_id": number}
    types = dict(rows.dtypes)
    for name, flag in zip(MESSAGE_KEYS, KEY_FLAGS):
        if types[name] != "binary":  # publish itself encodes bytes
            columns[flag] = F.when(_is_left_alone(name), F.col(flag))
    as_stored = F.lit(True) if fix is None else F.col("payload").cast("binary").eqNullSafe(F.col("payload_before"))
    columns |= {name: F.when(as_stored, F.col(name)) for name in ENCODING_COLUMNS}
    if origin_partitions:
        columns["partition"] = _origin_partition(origin_partitions)
    return (
        rows.select(*(column.alias(name) for name, column in columns.items()))
        .repartition(1)
        .sortWithinPartitions("sequence_id")
    )


def published_numbers(topic: Topic, app_id: str, version: int) -> set[int]:
    """Sequence ids of the messages in the commit of a transaction; empty without such a commit."""
    if not is_committed(topic.path, app_id, version):
        return set()
    log = TableLog(topic.path)
    for at in range(log.latest(), 0, -1):
        if not log.has(at):
            raise CorruptState(
                f"topic {str(topic.name)!r}: the commit of transaction {app_id!r}, {version} is gone from the log: "
                f"{DOCTOR}"
            )
        commit = log.commit(at)
        if commit.transactions.get(app_id) == version:
            return set(read_added(topic.path, commit, MESSAGES.schema, ["sequence_id"])["sequence_id"].to_pylist())
    return set()


def _sent_properties() -> Column:
    own = F.coalesce(F.col("properties"), F.create_map().cast("map<string,string>"))
    kept = F.map_filter(own, lambda name, _: ~name.isin(*BOOKKEEPING, REPLAYS))
    return F.map_concat(kept, F.create_map(F.lit(REPLAYS), F.col("times").cast("string")))


def _origin_partition(partitions: Sequence[int]) -> Column:
    partition = F.regexp_extract(
        F.coalesce(F.col("properties")[ORIGIN_MESSAGE_ID], F.lit("")), _MESSAGE_ID, 1
    ).try_cast("int")
    return F.when(partition.isin(*partitions) & _is_left_alone("partition_key"), partition)


def _is_left_alone(key: str) -> Column:
    return F.col(key).eqNullSafe(F.col(f"{key}_before"))
