"""The rows of the view ``backlog``, for Spark."""

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from pulsar_spark.storage.layout import Layout
from pulsar_spark.views.overview.overview import Overview
from pulsar_spark.views.overview.values import SubscriptionState
from pulsar_spark.views.view_specs import BACKLOG


def backlog_rows(root: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """One row per subscription on a topic partition of the root, as it is when the function that is returned runs; the
    worst backlog comes first."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield from BACKLOG.rows(list(map(as_row, Overview(Layout(root)).look().subscriptions))).to_batches()

    return read


def as_row(state: SubscriptionState) -> dict:
    """The columns of the view."""
    found = {column.name: getattr(state, column.name) for column in BACKLOG.columns}
    return found | {"consumers": len(state.consumers)}
