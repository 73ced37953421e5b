"""Chunked messages as frames: a payload is split into rows, and rows are joined into messages.

**Splitting** (semantics 1.2, 1.5) makes of each message that is larger than its chunks as many rows, in order, of which
only payload and ``chunk_id`` differ; every other message stays one row without chunk columns. The payload is never in a
row beside a chunk: where Spark compiles the stage, a chunk is cut from the one array that the source gave.

**Joining** is a ``groupBy`` on uuid (:func:`group_chunks`): the rows of chunks become one row per complete message,
with the positions of its parts in order. No payload is in it, but a few bytes of each chunk; inside a group the rule of
``protocol.chunking`` says which rows make up a message, the same that brokers and clients go by, in one call for all
groups of a batch of Arrow. Consumers, dead letters and ``read_messages`` then have the payloads of these parts read and
joined by Python workers, without a shuffle of them (see frames.chunk_payloads; what the grouping takes is said in
frames.chunk_groups). For whoever has chunks as a frame,
wherever they are from, :func:`reassemble_chunks` and :func:`whole_messages` join the payloads of the same groups in
Spark: ``listagg`` collects what each task has of a message where it was read, in pieces as large as a file's split, and
puts them end to end once, in the task that gets all of them.

**Memory.** The task that joins payloads needs at least four times the largest message: its chunks, the message, and
twice the message for the row, which Spark makes larger by doubling (BufferHolder.grow); each task before it six times a
split, which it collects, and writes to a row as often. Three of the four are what any row of Spark takes, and a page of
Parquet takes two or three times its payload beside them. G1 needs more, since it does not move arrays of megabytes to
make room for larger ones. The largest message that a heap of 3 GiB takes, all of Spark included, put together and
plainly read as one row of Parquet: 256 and 448 MiB; with splits of 32 MiB 384 MiB; with the serial collector 448 MiB;
with both and a young generation of a tenth 512 and 448 MiB. ``concat_ws`` over a sorted ``collect_list`` takes the same
time and memory (64 MiB); an Arrow function would hold the message in a Python process, too, and hand it back as the
same row.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type

from pulsar_spark.protocol.chunking import WRONG_SIZE, Verdict, judged, none_open

MOST_BYTES = 2**31 - 1 - 64
"""Of payload that a row of Spark holds."""
TOO_LARGE = f"its %d bytes are more than a row of Spark holds, {MOST_BYTES}: receive it with a client"
WRONG = "wrong_size"
SIZE = "total_chunk_msg_size"
_GROUP = ("partition", "producer_name", "uuid")
_PLACE = ("partition", "position")
_PART = ("chunk_id", "num_chunks_from_msg")
_POSITIONS = pa.list_(pa.int64())
_MESSAGES = pa.list_(pa.struct({"first": pa.int64(), "last": pa.int64(), "parts": _POSITIONS}))
GROUPED = ("uuid", "producer_name", *_PART)
"""Columns of the messages table that :func:`group_chunks` reads, but for the place."""


def is_chunk() -> Column:
    """Whether a row of the messages table is a chunk: no message of a batch is one."""
    return F.col("uuid").isNotNull() & F.col("batch_index").isNull()


def split_messages(messages: DataFrame, chunk_bytes: Column, producer_name: Column, sequence_id: Column) -> DataFrame:
    """Rows of *messages*, in their order: those with more than *chunk_bytes* of payload as chunks, with
    :data:`CHUNK_COLUMNS`, *producer_name* and *sequence_id*; the others as they are, with nulls. *chunk_bytes* is above
    0."""
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
    """One row per uuid of a producer in a partition: these three, and ``rows``, what :func:`messages_of` asks of each
    chunk. *chunks* have these columns, and ``position``, ``chunk_id`` and ``num_chunks_from_msg``; no other is read."""
    row = F.expr(f"struct(position, {', '.join(f'coalesce({name}, -1) AS {name}' for name in _PART)})")
    return chunks.groupBy(*_GROUP).agg(F.collect_list(row).alias("rows"))


def group_chunks(chunks: DataFrame) -> DataFrame:
    """One row per complete message of *chunks*, which :func:`collect_groups` can read: its ``partition``,
    ``producer_name`` and ``uuid``, the position of its ``first`` and ``last`` chunk, the one that completes it, and
    ``parts``, the positions of all of them in order."""
    messages = arrow_udf(messages_of, from_arrow_type(_MESSAGES))("rows").alias("messages")
    found = collect_groups(chunks).select(*_GROUP, messages)
    return found.select(*_GROUP, F.explode("messages").alias("message")).select(*_GROUP, "message.*")


def messages_of(groups: pa.Array) -> pa.Array:
    """The complete messages of each group of :func:`collect_groups`, of which *groups* are the ``rows``: the positions
    of their ``first`` and ``last`` chunk, and ``parts``.

    A uuid may be that of several messages, as one that was sent again is: which of the group's chunks make up each is
    what ``protocol.chunking.judged`` says, once for all groups of a batch of Arrow."""
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
    parts = pa.ListArray.from_arrays(_offsets([*begins, len(taken)]), pa.array(position[taken], pa.int64()))
    found = [pa.array(position[at], pa.int64()) for at in (taken[begins], last[begins])]
    messages = pa.StructArray.from_arrays([*found, parts], fields=list(_MESSAGES.value_type))
    bounds = np.searchsorted(of_row[taken[begins]], np.arange(len(groups) + 1))
    return pa.ListArray.from_arrays(_offsets(bounds), messages)


def _offsets(bounds: Sequence[int]) -> pa.Array:
    return pa.array(bounds, pa.int32())


def _join_parts(chunks: DataFrame, parts: DataFrame) -> DataFrame:
    """One row per message of *parts*, which are the places of chunks and the ``last`` of each: the columns of *chunks*,
    whose ``payload`` is that of all in order; the others are those of its last chunk, in whose place it lies. Only
    ``total_chunk_msg_size`` is one that is not the payload's bytes, where any of the chunks says so (see
    :func:`wrong_size`)."""
    place, rest = ("partition", "last"), [name for name in chunks.columns if name not in (*_PLACE, "payload")]
    rows = chunks.join(F.broadcast(parts.select(*_PLACE, "last")), on=[*_PLACE], how="inner")
    whole = F.expr("listagg(payload) WITHIN GROUP (ORDER BY position)")
    of_last = F.max_by(F.struct(*rest), "position") if rest else F.lit(None)
    said = [bound(SIZE) if SIZE in rest else F.lit(None) for bound in (F.min, F.max)]
    joined = rows.groupBy(*place).agg(
        whole.alias("payload"), of_last.alias("of_last"), said[0].alias("least"), said[1].alias("most")
    )
    columns = {name: F.col(f"of_last.`{name}`") for name in rest}
    if SIZE in rest:
        columns[SIZE] = F.when(F.col("least") != _payload_bytes(), F.col("least")).otherwise(F.col("most"))
    named = joined.select(
        "partition", F.col("last").alias("position"), "payload", *(value.alias(name) for name, value in columns.items())
    )
    return named.select(*chunks.columns)


def wrong_size() -> Column:
    """Why a row of a chunked message that was put together is not the message that its chunks say
    (``protocol.chunking.wrong_size``); null where it is, and of every other row."""
    size = _payload_bytes()
    is_too_large = is_chunk() & (F.col(SIZE) > MOST_BYTES)
    wrong = F.when(is_chunk() & (size != F.col(SIZE)), F.format_string(WRONG_SIZE, size, F.lit(""), SIZE))
    return F.when(is_too_large, F.format_string(TOO_LARGE, SIZE)).otherwise(wrong)


def _holdable() -> Column:
    """The payload of a chunk; null where its message says, or the chunk's place shows, as all but the last are of one
    size (1.2), that it is larger than a row holds: putting it together would fail the job, and all other messages with
    it. What is left is of the wrong size then."""
    is_last = F.col("chunk_id") + 1 >= F.col("num_chunks_from_msg")
    so_far = F.when(~is_last, (F.col("chunk_id") + 1).cast("bigint") * F.octet_length("payload"))
    holds = F.coalesce(F.greatest(so_far, F.col(SIZE)), F.lit(0)) <= MOST_BYTES
    return F.when(holds, F.col("payload"))


def _payload_bytes() -> Column:
    return F.coalesce(F.octet_length("payload"), F.lit(0)).cast("bigint")


def reassemble_chunks(chunks: DataFrame) -> DataFrame:
    """One row per complete message of *chunks*, rows of the messages table with their ``position``, in no order; of
    what is incomplete, a duplicate or a stray nothing. *chunks* is read twice: once without payloads."""
    parts = group_chunks(chunks).select("partition", "last", F.explode("parts").alias("position"))
    return _join_parts(chunks, parts)


def whole_messages(messages: DataFrame) -> DataFrame:
    """Rows of the messages table with their ``position`` as messages: those in one piece as they are, and one row per
    complete chunked one, as :func:`reassemble_chunks` gives it; with the column :data:`WRONG`, which says what is
    :func:`wrong_size`."""
    chunks = messages.filter(is_chunk()).withColumn("payload", _holdable())
    chunked = reassemble_chunks(chunks).withColumn(WRONG, wrong_size())
    return messages.filter(~is_chunk()).withColumn(WRONG, F.lit(None).cast("string")).unionByName(chunked)
