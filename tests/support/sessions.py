"""The session that tests share: a page or a notebook leaves in it what a user would keep, and what no other test may
see."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def unchanged(session: SparkSession) -> Iterator[None]:
    """Drop the temporary views that are made inside, clear the cache and close the figures."""
    before = _temporary_views(session)
    try:
        yield
    finally:
        for name in _temporary_views(session) - before:
            session.catalog.dropTempView(name)
        session.catalog.clearCache()
        from matplotlib import pyplot  # here: most tests draw nothing

        pyplot.close("all")


def _temporary_views(session: SparkSession) -> set[str]:
    return {table.name for table in session.catalog.listTables() if table.isTemporary}
