"""Rows for lost entries that may have been chunks, so that readers of a topic notice the loss."""

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type

from pulsar_spark.frames.reading.last_chunks import message_types, names_of
from pulsar_spark.payloads.encoding import PAYLOAD_ERROR
from pulsar_spark.protocol.acknowledgement.positions import Positions
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.entries.entries import EntryReader
from pulsar_spark.storage.entries.missing import Missing, lost_error
from pulsar_spark.storage.session import local_frame
from pulsar_spark.storage.topics.topics import Topic

_ROWS_AT_ONCE = 1 << 17
_COLUMNS = ("partition", "publish_id", "ledger_id", "first", "last", "to_position", PAYLOAD_ERROR)


class LostEntries:
    def __init__(self, topic: Topic):
        self._topic, self._reader = topic, EntryReader(block_rows=_ROWS_AT_ONCE)
        self._rows: list[tuple] = []

    def without(self, partition: int, run: Run) -> Iterable[Run]:
        """The parts of *run* that are not lost; the lost ones are noted."""
        for missing in self._reader.read(self._topic.path, run, columns=("uuid",)):
            if isinstance(missing, Missing) and missing.is_lost:
                error = lost_error(self._topic.path, run, missing)
                text = f"{type(error).__name__}: {error}"
                place = run.publish_id, run.ledger_id
                lost = [(first + run.to_position, last + run.to_position) for first, last in missing.entries]
                self._rows += [(partition, *place, *stretch, run.to_position, text) for stretch in lost]
                return [run.part(*stretch) for stretch in Positions(lost).gaps(run.first_position, run.last_position)]
        return [run]

    def rows(self, spark: SparkSession, columns: Sequence[str]) -> DataFrame | None:
        """A row for each lost entry with its place and error, in the columns of chunk_payloads.with_payloads; None if
        nothing is lost."""
        if not self._rows:
            return None
        types: Mapping[str, pa.DataType] = message_types(names_of(columns)) | {"payload": pa.binary()}
        stretches = local_frame(spark, pa.table(dict(zip(_COLUMNS, map(list, zip(*self._rows))))))
        entries = stretches.withColumn("position", F.explode(F.sequence("first", "last")))
        known = {name: F.col(name) for name in ("partition", "publish_id", "ledger_id", "position")}
        known |= {"entry_id": F.col("position") - F.col("to_position"), "redelivery_count": F.lit(0)}
        return entries.select(
            *(
                known.get(name, F.lit(None)).cast(from_arrow_type(types[name])).alias(name)
                for name in names_of(columns)
            ),
            PAYLOAD_ERROR,
        )
