"""A request as a row of the table ``requests`` says it."""

from itertools import repeat
from typing import NamedTuple

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

    @property
    def place(self) -> tuple[int | None, int | None]:
        return self.requests_version, self.row


_COLUMNS = Request._fields[:-2]


@uncollected()
def requests_of(rows: pa.Table, requests_version: int | None = None) -> list[Request]:
    """The requests of an Arrow table, in order; *requests_version* if it is a whole commit."""
    columns = {name: values_of(rows.column(name)) for name in _COLUMNS}
    columns["properties"] = [dict(pairs) if pairs else {} for pairs in columns["properties"]]
    numbers = repeat(None) if requests_version is None else range(rows.num_rows)
    return list(map(Request._make, zip(*columns.values(), repeat(requests_version), numbers)))


assert set(_COLUMNS) <= set(REQUESTS.schema.names)
