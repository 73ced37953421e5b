"""Validate a row of ``requests`` before it is executed: anyone who can write to the table can write any row. A request
past its ``valid_until_ms`` is refused, since its sender has reported a failure."""

from functools import lru_cache

from pulsar_spark.broker.requests.request import Request
from pulsar_spark.broker.requests.request_handler import number_of
from pulsar_spark.errors import InvalidConfiguration, InvalidMessage, Timeout, shown
from pulsar_spark.protocol.delays.instants import from_micros
from pulsar_spark.protocol.request_properties import MOST
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.table_specs import VALID_UNTIL

MAX_ID_LENGTH = 1000
MOST_DELAY_MS = 10**14
"""Three thousand years: added to any clock, still a valid time."""


def admitted(request: Request, *, now: int) -> Request:
    """*request* with its topic's full name; an error if it is not valid at *now* (microseconds, the machine's
    clock)."""
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
