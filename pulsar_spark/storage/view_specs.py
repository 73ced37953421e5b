"""The views for people, as data: one row's meaning, and the columns taken from ``cursor_ledger`` with the meanings its schema gives them."""
from typing import NamedTuple

from pulsar_spark.schemas import CURSOR_LEDGER, Column


class ViewSpec(NamedTuple):
    """A view over the rows of one ``kind``; *key* is what the latest row replaces."""

    name: str
    row: str
    kind: str
    key: tuple[str, ...]
    column_names: tuple[str, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns with their types and meanings."""
        by_name = {column.name: column for column in CURSOR_LEDGER.columns}
        return tuple(by_name[name] for name in self.column_names)


_CURSOR = ("topic_id", "partition", "subscription")

VIEWS = (
    ViewSpec("cursors", "where a subscription stands on one topic partition", "cursor", _CURSOR, (
        "topic", "partition", "subscription", "subscription_type", "mark_delete_position", "read_position", "is_blocked", "msg_out_counter",
        "msg_redeliver_counter", "properties", "round")),
    ViewSpec("pending_acks", "a run of entries delivered to a consumer and not acknowledged, or waiting to be delivered again", "range", _CURSOR, (
        "topic", "partition", "subscription", "first", "last", "status", "consumer_id", "delivery_round", "redelivery_count", "due_time", "ack_set", "batch_size")),
    ViewSpec("consumers", "a consumer connected to a subscription on one topic partition", "consumer", (*_CURSOR, "consumer_id"), (
        "topic", "partition", "subscription", "consumer_name", "consumer_id", "client_id", "priority_level", "permits", "is_active", "is_blocked",
        "lease_time", "join_order", "msg_out_counter", "msg_redeliver_counter", "properties", "round")),
    ViewSpec("rounds", "a round of the broker: one commit", "round", ("round",), (
        "round", "round_time", "requests_version", "epoch", "broker_id", "is_snapshot")),
)


def view_documentation() -> str:
    """The views and their columns as Markdown."""
    lines = []
    for view in VIEWS:
        lines += [f"### {view.name}", "", f"One row is {view.row}.", "", "| column | meaning |", "|---|---|"]
        lines += [f"| `{column.name}` | {column.meaning.replace('|', chr(92) + '|')} |" for column in view.columns] + [""]
    return "\n".join(lines)


def view_lines() -> str:
    """One line a view, for a command line's help.

    >>> view_lines().splitlines()[0]
    'cursors: one row is where a subscription stands on one topic partition'
    """
    return "\n".join(f"{view.name}: one row is {view.row}" for view in VIEWS)
