"""Read a batch: the messages of topics between two positions, as they are when Spark plans the query."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pulsar_spark.frames.reading.payloads import Decoding
from pulsar_spark.frames.source.followed_topic import FollowedTopic, topic_names
from pulsar_spark.frames.source.message_slices import MessageSlice, slices_of
from pulsar_spark.frames.source.options import SourceOptions
from pulsar_spark.frames.source.positions import Positions
from pulsar_spark.frames.source.slice_reading import read_slice
from pulsar_spark.frames.source.source_columns import SourceColumns
from pulsar_spark.frames.source.worker_errors import each_in_one_line, in_one_line
from pulsar_spark.payloads.keys import CryptoKeyReader
from pulsar_spark.storage.entries.slices import PositionRange
from pulsar_spark.storage.layout import Layout


class SliceReader:
    """Reads slices in tasks; *schema* are the columns that Spark asks for."""

    def __init__(self, schema: StructType, options: SourceOptions):
        self._columns = SourceColumns(schema, options)
        path = options.private_key_path
        keys = None if path is None else CryptoKeyReader(options.public_key_path or path, path)
        self._decoding = Decoding.checked(keys, options.crypto_failure_action)  # type: ignore[arg-type]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, MessageSlice):  # Spark's own, of a read without messages
            return iter(())
        return each_in_one_line(self._columns.batches(self._rows(partition), partition))

    def _rows(self, slice_: MessageSlice) -> Iterator[pa.Table]:
        return read_slice(slice_, self._columns.needed, self._decoding)


class BatchReader(SliceReader, DataSourceReader):
    """Plans and reads a batch."""

    def __init__(self, schema: StructType, options: SourceOptions):
        super().__init__(schema, options)
        self._options = options

    @in_one_line
    def partitions(self) -> Sequence[InputPartition]:
        """The slices of all topics that there are now."""
        layout = Layout(self._options.root)
        starting, ending = Positions.starting(self._options), Positions.ending(self._options)
        slices: list[InputPartition] = []
        topics = [FollowedTopic(layout, name) for name in topic_names(self._options, layout)]
        for places in (starting, ending):
            places.check(topics)
        for topic in topics:
            ranges = [
                PositionRange(each, starting.find(topic, each), ending.find(topic, each) - 1)
                for each in topic.partitions
            ]
            slices += slices_of(topic, ranges)
        return slices
