"""The data source's classes, as Spark makes them: each call parses the options and makes the reader or writer.

Spark makes them in Python processes of its own, on the driver, without a session: a new process for each use, which
imports no more than this use needs."""

from dataclasses import replace

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from pulsar_spark.errors import InvalidConfiguration, PulsarSparkError
from pulsar_spark.frames.source.options import (
    BATCH_READ,
    BATCH_WRITE,
    STREAM_READ,
    STREAM_WRITE,
    SUBSCRIPTION,
    SourceOptions,
    parse_options,
)
from pulsar_spark.frames.source.source_columns import source_schema
from pulsar_spark.frames.source.worker_errors import in_one_line
from pulsar_spark.storage.layout import Layout

NAME = "pulsar_spark"


class PulsarSparkSource(DataSource):
    """``format("pulsar_spark")``."""

    @classmethod
    def name(cls) -> str:
        return NAME

    @in_one_line
    def schema(self) -> StructType:
        """The columns of a read."""
        return source_schema(self._options())

    @in_one_line
    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._options()
        if options.subscription is not None:
            raise InvalidConfiguration(
                "option 'subscription' belongs to a stream: use readStream, with trigger(availableNow=True) for a run "
                "that ends, or leave the option out for a batch read, which acknowledges nothing"
            )
        options.check_use(BATCH_READ)
        from pulsar_spark.frames.source.batch_reader import BatchReader

        return BatchReader(schema, options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            return self._stream_reader(schema)
        except PulsarSparkError as error:
            from pulsar_spark.frames.source.refused_stream import RefusedStream

            return RefusedStream(error)

    def _stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        options = self._options()
        if options.subscription is not None:
            options.check_use(SUBSCRIPTION)
            from pulsar_spark.frames.source.subscription_stream import SubscriptionReader

            return SubscriptionReader(schema, options)
        options.check_use(STREAM_READ)
        from pulsar_spark.frames.source.topic_stream import TopicStream

        return TopicStream(schema, options)

    @in_one_line
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        options = self._write_options(overwrite)
        options.check_use(BATCH_WRITE)
        from pulsar_spark.frames.source.writing.topic_writers import BatchWriter

        return BatchWriter(schema, options)

    @in_one_line
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        options = self._write_options(overwrite)
        options.check_use(STREAM_WRITE)
        from pulsar_spark.frames.source.writing.topic_writers import StreamWriter

        return StreamWriter(schema, options)

    def _write_options(self, overwrite: bool) -> SourceOptions:
        if overwrite:
            raise InvalidConfiguration(
                "mode 'overwrite' would delete the messages of the topic under its subscriptions: write with "
                "mode('append'), a stream with outputMode('append'); delete a topic with Admin.delete_topic"
            )
        return self._options()

    def _options(self) -> SourceOptions:
        """The options, with an absolute root: tasks may run in other folders."""
        options = parse_options(self.options)
        return replace(options, root=str(Layout(options.root).root))


class PulsarSource(DataSource):
    """``format("pulsar")``: an error that names ours."""

    @classmethod
    def name(cls) -> str:
        return "pulsar"

    @in_one_line
    def schema(self) -> StructType:
        raise _wrong_name()

    @in_one_line
    def writer(self, schema: StructType, overwrite: bool):
        raise _wrong_name()

    streamWriter = writer


def _wrong_name() -> InvalidConfiguration:
    return InvalidConfiguration(
        f"format('pulsar') is not a source of pulsar_spark: write format({NAME!r}), with the options root and topic"
    )
