"""Chunked messages as frames: split payloads into rows, and join rows into messages (semantics 1.2, 1.5).

:func:`group_chunks` finds each complete message's chunks without payloads. Python workers then join payloads (see
frames.reading.chunk_payloads), or Spark does, for chunks of any frame (:func:`reassemble_chunks`,
:func:`whole_messages`). In Spark the last task needs at least four times the memory of the largest message."""

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type

from pulsar_spark.columns import arrow_udf
from pulsar_spark.protocol.chunks.chunking import WRONG_SIZE, Verdict, judged, none_open

MOST_BYTES = 2**31 - 1 - 64
"""The most payload bytes of a Spark row."""
TOO_LARGE = f"its %d bytes are more than a row of Spark holds, {MOST_BYTES}: receive it with a client"
WRONG = "wrong_size"
SIZE = "total_chunk_msg_size"
_GROUP = ("partition", "producer_name", "uuid")
_PLACE = ("partition", "position")
_PART = ("chunk_id", "num_chunks_from_msg")
_POSITIONS = pa.list_(pa.int64())
_MESSAGES = pa.list_(pa.struct({"first": pa.int64(), "last": pa.int64(), "parts": _POSITIONS}))
GROUPED = ("uuid", "producer_name", *_PART)
"""Columns of the messages table, beside the place, that :func:`group_chunks` reads."""


def is_chunk() -> Column:
    """Whether a row of the messages table is a chunk; messages of a batch never are."""
    return F.col("uuid").isNotNull() & F.col("batch_index").isNull()


def split_messages(messages: DataFrame, chunk_bytes: Column, producer_name: Column, sequence_id: Column) -> DataFrame:
    """Split *messages* with more than *chunk_bytes* (above 0) of payload into chunks, in order.

    Chunks get :data:`CHUNK_COLUMNS`, *producer_name* and *sequence_id*; other messages have nulls there."""
    size = F.octet_length("payload")
    counted = messages.withColumn("split_bytes", chunk_bytes.cast("int")).withColumn(
        "split_count", F.coalesce(F.ceil(F.greatest(size, F.lit(1)) / F.col("split_bytes")).cast("int"), F.lit(1))
    )
    is_split = F.col("split_count") > 1
    named = {
        "producer_name": F.when(is_split, producer_name).otherwise(_own(messages, "producer_name", "string")),
        "sequence_id": F.when(is_split, sequence_id).otherwise(_own(messages, "sequence_id", "bigint")),
    }
    rows = counted.withColumns(named).select("*", F.explode(F.sequence(F.lit(0), F.col("split_count") - 1)).alias("at"))
    chunk = F.substring("payload", F.col("at") * F.col("split_bytes") + 1, F.col("split_bytes"))
    columns = {
        "payload": F.when(is_split, chunk).otherwise(F.col("payload")),
        "uuid": F.when(is_split, F.concat_ws("-", "producer_name", "sequence_id")),
        "chunk_id": F.when(is_split, F.col("at")),
        "num_chunks_from_msg": F.when(is_split, F.col("split_count")),
        "total_chunk_msg_size": F.when(is_split, size.cast("bigint")),
    }
    names = dict.fromkeys((*messages.columns, *named, *columns))
    return rows.select(*(columns[name].alias(name) if name in columns else F.col(name) for name in names))


def _own(messages: DataFrame, name: str, kind: str) -> Column:
    return F.col(name) if name in messages.columns else F.lit(None).cast(kind)


def collect_groups(chunks: DataFrame) -> DataFrame:
    """One row per partition, producer and uuid, with ``rows``, the input of :func:`messages_of`. *chunks* have these
    columns, ``position``, ``chunk_id`` and ``num_chunks_from_msg``."""
    row = F.expr(f"struct(position, {', '.join(f'coalesce({name}, -1) AS {name}' for name in _PART)})")
    return chunks.groupBy(*_GROUP).agg(F.collect_list(row).alias("rows"))


def group_chunks(chunks: DataFrame) -> DataFrame:
    """One row per complete message: ``partition``, ``producer_name``, ``uuid``, ``first`` and ``last`` position, and
    ``parts``, the positions of all its chunks in order. *chunks* are as for :func:`collect_groups`."""
    udf = arrow_udf(messages_of, from_arrow_type(_MESSAGES))
    messages = udf("rows").alias("messages")
    found = collect_groups(chunks).select(*_GROUP, messages)
    return found.select(*_GROUP, F.explode("messages").alias("message")).select(*_GROUP, "message.*")


def messages_of(groups: pa.Array) -> pa.Array:
    """The complete messages in each group's ``rows``, by ``protocol.chunks.chunking.judged``: ``first`` and ``last``
    position, and ``parts``. A uuid may belong to several messages."""
    rows, of_row = groups.flatten(), groups.value_parent_indices().to_numpy()
    position, chunk_ids, num_chunks = (rows.field(at).to_numpy() for at in range(3))
    in_order = np.argsort(position, kind="stable")
    position, of_row = position[in_order], of_row[in_order]
    verdicts, openers, _ = judged(of_row, chunk_ids[in_order], num_chunks[in_order], none_open(len(groups)))
    completes, taken = (
        np.flatnonzero(is_so) for is_so in (verdicts == Verdict.COMPLETES, verdicts <= Verdict.COMPLETES)
    )
    lasts = np.full(len(position), -1)
    lasts[openers[completes]] = completes
    last = lasts[openers[taken]]
    taken, last = taken[last >= 0], last[last >= 0]
    by_message = np.lexsort((taken, last, of_row[taken]))
    taken, last = taken[by_message], last[by_message]
    begins = np.flatnonzero(np.diff(last, prepend=-1))
    parts = pa.ListArray.from_arrays(
        pa.array(np.append(begins, len(taken)), pa.int32()), pa.array(position[taken], pa.int64())
    )
    found = [pa.array(position[at], pa.int64()) for at in (taken[begins], last[begins])]
    messages = pa.StructArray.from_arrays([*found, parts], fields=list(_MESSAGES.value_type))
    bounds = np.searchsorted(of_row[taken[begins]], np.arange(len(groups) + 1))
    return pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), messages)


def _join_parts(chunks: DataFrame, parts: DataFrame) -> DataFrame:
    """One row per message of *parts* (places of chunks, and each message's ``last``), with the columns of *chunks*: the
    whole payload, and the last chunk's other columns. A wrong ``total_chunk_msg_size`` of any chunk is kept."""
    place, rest = ("partition", "last"), [name for name in chunks.columns if name not in (*_PLACE, "payload")]
    rows = chunks.join(F.broadcast(parts.select(*_PLACE, "last")), on=[*_PLACE], how="inner")
    whole = F.expr("listagg(payload) WITHIN GROUP (ORDER BY position)")
    of_last = F.max_by(F.struct(*rest), "position") if rest else F.lit(None)
    bounds = [bound(SIZE) if SIZE in rest else F.lit(None) for bound in (F.min, F.max)]
    joined = rows.groupBy(*place).agg(
        whole.alias("payload"), of_last.alias("of_last"), bounds[0].alias("least"), bounds[1].alias("most")
    )
    columns = {name: F.col(f"of_last.`{name}`") for name in rest}
    if SIZE in rest:
        columns[SIZE] = F.when(F.col("least") != _payload_bytes(), F.col("least")).otherwise(F.col("most"))
    named = joined.select(
        "partition", F.col("last").alias("position"), "payload", *(value.alias(name) for name, value in columns.items())
    )
    return named.select(*chunks.columns)


def wrong_size() -> Column:
    """Why a joined message does not have the size that its chunks state, or is too large for a row; null otherwise."""
    size = _payload_bytes()
    is_too_large = is_chunk() & (F.col(SIZE) > MOST_BYTES)
    wrong = F.when(is_chunk() & (size != F.col(SIZE)), F.format_string(WRONG_SIZE, size, F.lit(""), SIZE))
    return F.when(is_too_large, F.format_string(TOO_LARGE, SIZE)).otherwise(wrong)


def _holdable() -> Column:
    """The payload of a chunk, or null if its message's stated size, or its number (1.2), exceeds a row; joining it
    would fail the whole job."""
    is_last = F.col("chunk_id") + 1 >= F.col("num_chunks_from_msg")
    so_far = F.when(~is_last, (F.col("chunk_id") + 1).cast("bigint") * F.octet_length("payload"))
    holds = F.coalesce(F.greatest(so_far, F.col(SIZE)), F.lit(0)) <= MOST_BYTES
    return F.when(holds, F.col("payload"))


def _payload_bytes() -> Column:
    return F.coalesce(F.octet_length("payload"), F.lit(0)).cast("bigint")


def reassemble_chunks(chunks: DataFrame) -> DataFrame:
    """One row per complete message of *chunks*, which are rows of the messages table with ``position``, in any order.
    *chunks* is read twice, once without payloads."""
    parts = group_chunks(chunks).select("partition", "last", F.explode("parts").alias("position"))
    return _join_parts(chunks, parts)


def whole_messages(messages: DataFrame) -> DataFrame:
    """Rows of the messages table with ``position``, one per complete chunked message, others unchanged, and
    :data:`WRONG`, which has :func:`wrong_size`."""
    chunks = messages.filter(is_chunk()).withColumn("payload", _holdable())
    chunked = reassemble_chunks(chunks).withColumn(WRONG, wrong_size())
    return messages.filter(~is_chunk()).withColumn(WRONG, F.lit(None).cast("string")).unionByName(chunked)
