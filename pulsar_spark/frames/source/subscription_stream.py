"""A stream with a subscription: a committed micro-batch acknowledges what it delivered."""

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructType

from pulsar_spark.errors import OperationNotSupported
from pulsar_spark.frames.source.options import SourceOptions


def stream_reader(options: SourceOptions, schema: StructType) -> DataSourceStreamReader:
    """The reader for the subscription that *options* name; *schema* is the one that the source declares."""
    raise OperationNotSupported("a stream with a subscription is not there yet: use consume")
