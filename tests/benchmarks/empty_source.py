"""A streaming source in Python that does nothing but count: what Spark's protocol itself costs a micro-batch."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition


class EmptySource(DataSource):
    """``format("empty_source")``: a row for each byte that the file ``path`` has grown by."""

    @classmethod
    def name(cls) -> str:
        return "empty_source"

    def schema(self) -> str:
        return "number BIGINT"

    def streamReader(self, schema) -> DataSourceStreamReader:  # noqa: N802
        return _Reader(Path(self.options["path"]))


class _Range(InputPartition):
    def __init__(self, first: int, end: int):
        self.first, self.end = first, end


class _Reader(DataSourceStreamReader):
    def __init__(self, path: Path):
        self._path = path

    def initialOffset(self) -> dict:  # noqa: N802
        return {"end": self._path.stat().st_size}

    def latestOffset(self, start=None, limit=None) -> dict:  # noqa: N802
        return {"end": self._path.stat().st_size}

    def partitions(self, start: dict, end: dict) -> Sequence[InputPartition]:
        return [_Range(start["end"], end["end"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return ((number,) for number in range(partition.first, partition.end))
