"""A stream reader that raises one error when Spark first asks it for an offset.

Spark hides an error that is raised while it makes a stream's reader: its process then stops a reader that is not
there, and reports that."""

from collections.abc import Iterator, Sequence
from typing import NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from pulsar_spark.errors import PulsarSparkError
from pulsar_spark.frames.source.worker_errors import in_one_line


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises *error*."""

    def __init__(self, error: PulsarSparkError):
        self._error = error

    @in_one_line
    def _raise(self) -> NoReturn:
        raise self._error

    def initialOffset(self) -> dict:
        self._raise()

    def latestOffset(self, start: dict, limit: ReadLimit) -> dict:
        self._raise()

    def partitions(self, start: dict, end: dict) -> Sequence[InputPartition]:
        self._raise()

    def read(self, partition: InputPartition) -> Iterator[tuple]:
        self._raise()

    def prepareForTriggerAvailableNow(self) -> None:
        """Spark calls this before it asks for an offset."""
