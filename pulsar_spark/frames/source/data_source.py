"""The data source's classes, as Spark makes them: each call parses the options and makes the reader or writer.

Spark makes them in Python processes of its own, on the driver, without a session."""

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from pulsar_spark.errors import InvalidConfiguration, OperationNotSupported
from pulsar_spark.frames.source import subscription_stream
from pulsar_spark.frames.source.options import STREAM_READ, SUBSCRIPTION, SourceOptions, parse_options
from pulsar_spark.frames.source.source_columns import source_schema

NAME = "pulsar_spark"


class PulsarSparkSource(DataSource):
    """``format("pulsar_spark")``."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        """The columns of a read."""
        return source_schema(self._options())

    def reader(self, schema: StructType) -> DataSourceReader:
        raise OperationNotSupported("a batch read is not there yet: read with read_messages")

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = self._options()
        if options.subscription is not None:
            options.check_use(SUBSCRIPTION)
            return subscription_stream.stream_reader(options, schema)
        options.check_use(STREAM_READ)
        raise OperationNotSupported("a stream without a subscription is not there yet: give a subscription")

    def _options(self) -> SourceOptions:
        return parse_options(self.options)


class PulsarSource(DataSource):
    """``format("pulsar")``: an error that names ours."""

    @classmethod
    def name(cls) -> str:
        return "pulsar"

    def schema(self) -> StructType:
        raise _wrong_name()

    def writer(self, schema: StructType, overwrite: bool):
        raise _wrong_name()

    streamWriter = writer


def _wrong_name() -> InvalidConfiguration:
    return InvalidConfiguration(
        f"format('pulsar') is not a source of pulsar_spark: write format({NAME!r}), with the options root and topic"
    )
