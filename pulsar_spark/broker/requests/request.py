"""A request as a row of the table ``requests`` says it."""

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any, NamedTuple

import pyarrow as pa

from pulsar_spark.storage.delta.python_rows import uncollected, values_of
from pulsar_spark.table_specs import REQUESTS


class Request(NamedTuple):
    """A row of the ``requests`` table. ``requests_version`` and ``row`` say where it was read from, if it was."""

    request_id: str
    kind: str
    client_id: str | None
    consumer_id: str | None
    topic: str | None
    partition: int | None
    subscription: str | None
    first: int | None
    last: int | None
    ack_set: list[int] | None
    permits: int | None
    delay_ms: int | None
    properties: dict[str, str]
    requests_version: int | None = None
    row: int | None = None


def new_request(request_id: str, kind: str, *, properties: dict[str, str], **columns: Any) -> Request:
    """A request with these columns; all others are None."""
    empty: dict[str, Any] = dict.fromkeys(Request._fields)
    return Request(**empty | columns | {"request_id": request_id, "kind": kind, "properties": properties})


def places_of(requests: Iterable[Request]) -> Iterator[tuple[int, int]]:
    """Where those of *requests* lie that were read from a commit: version and row."""
    for request in requests:
        if request.requests_version is not None and request.row is not None:
            yield request.requests_version, request.row


_COLUMNS = Request._fields[:-2]


@uncollected()
def requests_of(rows: pa.Table, requests_version: int | None = None) -> list[Request]:
    """The requests of an Arrow table, in order; *requests_version* if it is a whole commit."""
    columns = {name: values_of(rows.column(name)) for name in _COLUMNS}
    columns["properties"] = [dict(pairs) if pairs else {} for pairs in columns["properties"]]
    numbers = repeat(None) if requests_version is None else range(rows.num_rows)
    return list(map(Request._make, zip(*columns.values(), repeat(requests_version), numbers)))


assert set(_COLUMNS) <= set(REQUESTS.schema.names)
