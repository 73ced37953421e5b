"""Who acknowledged an entry: the request that a round applied, or a rule of the broker."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from deltalake.exceptions import TableNotFoundError

from pulsar_spark.protocol.acknowledgement import ack_set
from pulsar_spark.protocol.acknowledgement.cursor import DELIVERY_ROUND, PENDING
from pulsar_spark.protocol.delays.delays import CANCEL
from pulsar_spark.protocol.entries.entry_codes import EntryState
from pulsar_spark.protocol.policies.policies import policy_text
from pulsar_spark.protocol.request_properties import is_true
from pulsar_spark.storage.delta.scan import open_table
from pulsar_spark.storage.delta.table_parts import Term, read_parts, term
from pulsar_spark.table_specs import REQUESTS
from pulsar_spark.views.explain.entry import Entry
from pulsar_spark.views.explain.life import SUBSCRIBED_LATER, Event
from pulsar_spark.views.explain.reasons import Seen

_COLUMNS = ["request_id", "kind", "consumer_id", "subscription", "last", "ack_set", "request_time", "properties"]
_CLOCKS_DIFFER = timedelta(minutes=1)
"""How far the clocks of a client and of the broker may be apart."""
HOW = {
    "individual": "acknowledged it individually",
    "cumulative": "acknowledged it cumulatively",
    "reconsume_later": "put it off with reconsume_later",
    "cancelled": "cancelled it before its deliver time",
    "skip": "skipped it ('subscriptions skip')",
    "clear_backlog": "cleared the backlog",
    "expire": "expired it ('subscriptions expire')",
    "seek": "moved the subscription past it",
    "time_to_live": "the time to live of its topic ended",
    "subscribed_later": "the subscription began after it",
    "chunk_released": "the broker released its incomplete message",
    "broker": "by a rule of the broker, such as a quota, or by a request that is no longer kept",
}
"""How a message may have been acknowledged."""
_MOVES = ("skip", "clear_backlog", "expire", "seek")


def acknowledged_by(seen: Seen, entry: Entry, event: Event) -> dict[str, Any]:
    """Facts on an acknowledgement: ``how``, a word of :data:`HOW`, and of a request its ``consumerId`` and
    ``requestTime``."""
    found = min(_requests(seen, entry, event), key=lambda row: _rank(row, event.time), default=None)
    if found is None:
        return {"how": _rule(seen, entry, event)}
    how = {"ack": "individual", "cumulative_ack": "cumulative"}.get(found["kind"], found["kind"])
    how = "cancelled" if is_true(dict(found["properties"] or ()), CANCEL) else how
    return {
        "how": how,
        "consumerId": found["consumer_id"],
        "requestId": found["request_id"],
        "requestTime": found["request_time"].isoformat(),
    }


def _rank(row: dict, until: datetime | None) -> tuple[int, float]:
    """Less for a likelier request: the first that names the entry, then the latest move *until* the event."""
    time = row["request_time"].timestamp()
    if row["kind"] not in _MOVES:
        return 0, time
    return (2, time) if until is not None and time > until.timestamp() else (1, -time)


def _rule(seen: Seen, entry: Entry, event: Event) -> str:
    if entry.is_incomplete:
        return "chunk_released"
    seconds = int(policy_text(seen.latest.policies, str(entry.topic.name), "message_ttl_seconds"))
    age = event.time - entry.published if event.time and entry.published else timedelta(0)
    if 0 < seconds <= age.total_seconds():
        return "time_to_live"
    return "subscribed_later" if event.event == SUBSCRIBED_LATER else "broker"


def _requests(seen: Seen, entry: Entry, event: Event) -> Iterator[dict]:
    """The requests that may have acknowledged it; those of earlier deliveries are left out."""
    state, until = event.state, event.time
    since = seen.time_of(state.delivery_round if state else None) or entry.published
    for row in _rows(seen, entry, event):
        is_late = until is not None and row["request_time"] > until + _CLOCKS_DIFFER
        is_early = since is not None and row["request_time"] < since - _CLOCKS_DIFFER
        if not (is_late or is_early) and _covers(row, entry) and _is_of_delivery(row, state):
            yield row


def _covers(row: dict, entry: Entry) -> bool:
    """Whether a request is about the message, rather than others of its batch."""
    left, index = row["ack_set"], entry.batch_index
    if left is None or row["last"] != entry.position:
        return True
    return not any(left) if index < 0 else not ack_set.has(tuple(left), index)


def _is_of_delivery(row: dict, state: EntryState | None) -> bool:
    """Whether a request that names the round of a delivery names that of the entry."""
    delivery_round = dict(row["properties"] or ()).get(DELIVERY_ROUND)
    if delivery_round is None:
        return True
    of = row["consumer_id"], delivery_round
    return state is not None and state.status == PENDING and of == (state.consumer_id, str(state.delivery_round))


def _rows(seen: Seen, entry: Entry, event: Event) -> Iterator[dict]:
    try:
        opened = open_table(seen.layout.broker_table(REQUESTS.name))
    except TableNotFoundError:
        return
    here = [
        term("topic", "==", str(entry.topic.name)),
        term("partition", "==", entry.partition),
        term("subscription", "==", event.subscription),
    ]
    reaches, begins = term("last", ">=", entry.position), term("first", "<=", entry.position)
    wanted: list[list[Term]] = [
        [term("kind", "in", ["ack", "reconsume_later"]), begins, reaches],
        [term("kind", "==", "cumulative_ack"), reaches],
        [term("kind", "in", list(_MOVES))],
    ]
    for terms in wanted:
        for rows in read_parts(opened, REQUESTS.schema, _COLUMNS, [*here, *terms]):
            yield from rows.to_pylist()
