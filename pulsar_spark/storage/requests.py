"""Reading the ``requests`` table commit by commit, without a JVM."""
from pathlib import Path

import pyarrow as pa

from pulsar_spark.schemas import REQUESTS
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.tables import read_added

MOST_COMMITS = 1000
"""Commits read at a time, so that a broker that was away long works through them in rounds."""


def read_requests(path: Path, *, after: int) -> tuple[pa.Table, int]:
    """The rows committed above version *after*, in order, and the last version read; a commit without rows, such as an OPTIMIZE, is passed over."""
    tables, version = [], after
    for commit in TableLog(path).commits(after, after + MOST_COMMITS):
        tables.append(read_added(path, commit, REQUESTS.schema))
        version = commit.version
    return pa.concat_tables([REQUESTS.schema.empty_table(), *tables]), version
