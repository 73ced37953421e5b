"""Reading the ``requests`` table commit by commit, without a JVM."""
from pathlib import Path

import pyarrow as pa

from pulsar_spark.schemas import REQUESTS
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.tables import read_added

MOST_COMMITS = 1000
MOST_ROWS = 20_000
"""Commits read at a time, and rows after which no further one is, so that a broker that was away long works through them in rounds of a few seconds."""


def read_requests(path: Path, *, after: int) -> tuple[pa.Table, int]:
    """The rows committed above version *after*, in order, and the last version read; a commit without rows, such as an OPTIMIZE, is passed over.

    Commits are read whole, and as many as stay within :data:`MOST_COMMITS` and :data:`MOST_ROWS`, but at least one.
    """
    tables, version, rows = [], after, 0
    for commit in TableLog(path).commits(after, after + MOST_COMMITS):
        rows += sum(file.rows for file in commit.added)
        if tables and rows > MOST_ROWS:
            break
        tables.append(read_added(path, commit, REQUESTS.schema))
        version = commit.version
    return pa.concat_tables([REQUESTS.schema.empty_table(), *tables]), version
