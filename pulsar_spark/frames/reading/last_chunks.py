"""Read the rows of messages' last chunks on the driver, without payloads, unless they are too many.

The caller then lets Spark read them (see chunk_payloads)."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from pulsar_spark.protocol.acknowledgement.positions import ranges_of
from pulsar_spark.storage.chunks.chunk_rows import SpansOf, rows_of_chunks
from pulsar_spark.storage.topics.topics import Topic
from pulsar_spark.table_specs import DELIVERED, MESSAGES

MOST_ROWS, MOST_RUNS = 1 << 14, 1 << 10
"""More rows, or rows of more runs, are too many."""
_PLACE = ("partition", "publish_id")
"""Columns that come from the partition and the run: files lack them, or have one value in all rows."""


def names_of(columns: Sequence[str] | None) -> list[str]:
    """The columns of messages that ``storage.entries.slices.read_pieces`` gives for *columns* (None: all that are
    delivered); it adds the last four."""
    return [name for name in columns or DELIVERED if name != "partition"] + [
        "partition",
        "ledger_id",
        "position",
        "redelivery_count",
    ]


def read_last_chunks(
    topic: Topic,
    lasts: Mapping[int, np.ndarray],
    spans_of: Callable[[int], SpansOf],
    columns: Sequence[str] | None,
    redelivery_counts: Mapping[tuple[int, int], int],
) -> pa.Table | None:
    """The chunks at positions *lasts*, by partition, with the columns of :func:`names_of` except the payload.

    None if they are too many, or if *columns* has a name that is no column of messages. *redelivery_counts* are by
    partition and position, by default 0."""
    wanted = names_of(columns)
    own = [name for name in wanted[:-4] if name not in ("payload", *_PLACE)]  # without the four that are added
    if sum(map(len, lasts.values())) > MOST_ROWS or not {*own} <= {*MESSAGES.schema.names}:
        return None
    run_spans = [
        (partition, run, spans)
        for partition, positions in lasts.items()
        for run, spans in (spans_of(partition)(ranges_of(positions)) if len(positions) else ())
    ]
    if len(run_spans) > MOST_RUNS:
        return None
    found = [pa.table({name: pa.array([], kind) for name, kind in message_types(wanted).items()})]
    for partition, run, spans in run_spans:
        rows = rows_of_chunks(topic.path, run, spans, own)
        counts = [redelivery_counts.get((partition, position), 0) for position in rows["position"].to_pylist()]
        constants = {"partition": partition, "publish_id": run.publish_id, "ledger_id": run.ledger_id}
        for name, value in constants.items():
            rows = rows.append_column(name, pa.repeat(pa.scalar(value, message_types(wanted).get(name)), rows.num_rows))
        rows = rows.append_column("redelivery_count", pa.array(counts, pa.int32()))
        found.append(rows.select(found[0].column_names))
    return pa.concat_tables(found)


def message_types(wanted: Sequence[str]) -> dict[str, pa.DataType]:
    """The types of the columns *wanted*, except the payload."""
    of_place = {"ledger_id": pa.int64(), "position": pa.int64(), "redelivery_count": pa.int32()}
    return {name: of_place.get(name) or MESSAGES.schema.field(name).type for name in wanted if name != "payload"}
