"""A request: a row of the table ``requests``, and what makes it valid. Anyone who can write to the table can write any
row, so each one is validated before it is executed."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import repeat
from typing import Any, NamedTuple

import pyarrow as pa

from pulsar_spark.errors import InvalidConfiguration, InvalidMessage, Timeout, shown
from pulsar_spark.protocol.delays.instants import from_micros
from pulsar_spark.protocol.request_properties import MOST, number_in
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.storage.delta.python_rows import uncollected, values_of
from pulsar_spark.table_specs import REQUESTS, VALID_UNTIL

MAX_ID_LENGTH = 1000
MOST_DELAY_MS = 10**14
"""Three thousand years: added to any clock, still a valid time."""


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


def number_of(request: Request, name: str, default: int | None = None, *, least: int = -MOST, most: int = MOST) -> int:
    """A property of *request* that is a number (request_properties.number_in)."""
    return number_in(request.properties, name, default, of=request.kind, least=least, most=most)


def validated(request: Request, *, now: int) -> Request:
    """*request* with its topic's full name. An error if it is not valid, or no longer at *now* (microseconds, the
    machine's clock): after its ``valid_until_ms`` its sender has reported a failure."""
    if request.topic is not None:
        name = _full_name(request.topic)
        request = request if name == request.topic else request._replace(topic=name)
    if VALID_UNTIL in request.properties:
        _check_in_time(request, now)
    for name in ("client_id", "consumer_id", "subscription"):
        _check_id(request, name, is_needed=request.kind == "subscribe")
    if request.ack_set is not None and None in request.ack_set:
        raise InvalidMessage(f"{request.kind}: a word of the ack set is null: give whole numbers")
    if request.kind == "flow" and not (request.permits is not None and 0 < request.permits <= MOST):
        raise InvalidConfiguration(f"permits {request.permits!r}: give a number from 1 to {MOST}")
    if (request.delay_ms or 0) > MOST_DELAY_MS:
        raise InvalidConfiguration(f"{request.kind}: delay_ms {request.delay_ms!r} is above {MOST_DELAY_MS}")
    return request


@lru_cache(maxsize=1024)
def _full_name(topic: str) -> str:
    return str(parse_topic_name(topic))


def _check_in_time(request: Request, now: int) -> None:
    until = number_of(request, VALID_UNTIL, least=0)
    if now > until * 1000:
        raise Timeout(
            f"{request.kind}: the request was valid until {from_micros(until * 1000):%Y-%m-%d %H:%M:%S} UTC and the "
            f"broker read it {now // 1000 - until} ms later, so it was not executed: try again; if it is always late, "
            "compare the clocks of the two machines"
        )


def _check_id(request: Request, name: str, *, is_needed: bool) -> None:
    value = getattr(request, name)
    if is_needed and not value:
        raise InvalidConfiguration(f"{request.kind}: {name} {value!r}: give one")
    if value is not None and len(value) > MAX_ID_LENGTH:
        raise InvalidConfiguration(
            f"{request.kind}: {name} {shown(value)} has {len(value)} characters: use at most {MAX_ID_LENGTH}"
        )
