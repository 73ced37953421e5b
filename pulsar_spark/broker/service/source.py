"""The stream that the broker's query reads: a row for each log that moved, and one for the clock when something is due.

A micro-batch runs rounds while it is open (see micro_batches); its rows say what the rounds before it were for. Spark
runs a source in its own Python process, so it asks the broker's :class:`Feed` over a socket, a line of JSON per
question.
"""

import contextlib
import json
import socket
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, TextIO

from pyspark import cloudpickle
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

PATIENCE_SECONDS = 1.0
"""Pause before an answer that there is nothing to tell, which makes no micro-batch."""

FORMAT = "pulsar_spark_rounds"
SCHEMA = "log string, from_version bigint, to_version bigint"


class Moved(NamedTuple):
    """A log that rounds read after one version up to another; the clock's are milliseconds."""

    log: str
    from_version: int
    to_version: int


class News(NamedTuple):
    """What rounds were for, and the offset of the next micro-batch."""

    moved: list[Moved]
    offset: dict


class Feed:
    """Answers one query's source. *take_news* returns None for no micro-batch; *is_stopping* ends waiting."""

    def __init__(self, take_news: Callable[[], News | None], is_stopping: threading.Event):
        self._take_news, self._is_stopping, self._number = take_news, is_stopping, 0
        self._folder = tempfile.TemporaryDirectory(prefix="pulsar_spark_feed_")
        self.path = str(Path(self._folder.name) / "socket")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        threading.Thread(target=self._serve, name="pulsar-spark-feed", daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        self._folder.cleanup()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(connection,), name="pulsar-spark-feed", daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection, connection.makefile("rw") as lines:  # the query ended
            for line in lines:
                news = None if self._is_stopping.is_set() else self._take_news()
                if news is None:
                    self._is_stopping.wait(PATIENCE_SECONDS)
                else:
                    self._number += 1
                answered = (
                    {"moved": [], "offset": json.loads(line)}
                    if news is None
                    else {"moved": news.moved, "offset": {**news.offset, "number": self._number}}
                )
                lines.write(json.dumps(answered) + "\n")
                lines.flush()


class RoundReader(SimpleDataSourceStreamReader):
    """Asks the feed at *path*, in a Python process of Spark."""

    def __init__(self, path: str):
        self._path = path
        self._lines: TextIO | None = None

    def initialOffset(self) -> dict:
        return {}

    def read(self, start: dict) -> tuple[Iterator[tuple], dict]:
        """What the rounds after *start* were for; nothing if the feed has closed."""
        answer = self._ask(start)
        if not answer:
            time.sleep(PATIENCE_SECONDS)
            return iter([]), start
        news = json.loads(answer)
        return iter([tuple(row) for row in news["moved"]]), news["offset"]

    def _ask(self, start: dict) -> str:
        try:
            if self._lines is None:
                connection = socket.socket(socket.AF_UNIX)
                connection.connect(self._path)
                self._lines = connection.makefile("rw")
            self._lines.write(json.dumps(start) + "\n")
            self._lines.flush()
            return self._lines.readline()
        except OSError:
            return ""

    def readBetweenOffsets(self, start: dict, end: dict) -> Iterator[tuple]:
        """Nothing: with a new checkpoint, no micro-batch is run again."""
        return iter([])


def report_unless_the_query_ended(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Exception hook of Spark's process, silent if its connection broke, as at a query's end."""
    if not isinstance(error, EOFError | ConnectionError):
        sys.__excepthook__(kind, error, trace)


class RoundSource(DataSource):
    """The format :data:`FORMAT`; its option ``path`` is that of the feed."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMA

    def simpleStreamReader(self, schema) -> RoundReader:
        sys.excepthook = report_unless_the_query_ended
        return RoundReader(self.options["path"])


def register_source(spark: SparkSession) -> str:
    """Register the format; returns its name, which differs from :data:`FORMAT` in a session cloned from one that has
    it."""
    import pulsar_spark.broker.service.source as itself

    # By value: Spark's process need not import the package, which takes a second.
    cloudpickle.register_pickle_by_value(itself)
    try:
        spark.dataSource.register(RoundSource)
    except AnalysisException as refused:
        if refused.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        name = f"{FORMAT}_{uuid.uuid4().hex[:8]}"
        spark.dataSource.register(type("NamedRoundSource", (RoundSource,), {"name": classmethod(lambda cls: name)}))
        return name
    return FORMAT
