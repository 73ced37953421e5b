"""Dispatches a round's rows to a client's consumers and callers.

Order: resets, removals, replies, deliveries. The channel makes all calls, and holds its lock while tables change.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import chain, pairwise
from operator import itemgetter
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.errors import PulsarSparkError, named
from pulsar_spark.storage.cursor_ledger.client_rows import COLUMNS, as_objects, client_rows, from_commit
from pulsar_spark.storage.cursor_ledger.cursor_ledger import concerned_name
from pulsar_spark.storage.delta.actions import Commit
from pulsar_spark.storage.delta.data_files import read_added
from pulsar_spark.storage.delta.scan import reading
from pulsar_spark.storage.store.store import AnyPath
from pulsar_spark.table_specs import CURSOR_LEDGER

Rows: TypeAlias = "pa.Table | list[dict]"
"""Rows of a round: a table, or few as dictionaries."""


class Reply(NamedTuple):
    """The reply to a request in a round; the error may be a failure of the connection."""

    error: PulsarSparkError | None
    text: str | None
    round: int = -1


class Subscriber(Protocol):
    """One consumer on one topic partition. All calls come from the channel's thread."""

    wants_due_first: bool
    """Whether entries that came due precede others of a round; not where the order per key is kept."""

    def on_reset(self) -> None:
        """The cursor was moved."""

    def on_removed(self, text: str | None) -> None:
        """The broker no longer knows the consumer."""

    def on_active(self, is_active: bool) -> None:
        """Whether the consumer is the active one."""

    def on_delivery(self, row: dict, requests_version: int) -> None:
        """Entries were delivered in a round that had read ``requests`` up to this version.

        The row's ``positions`` is None for all from ``first`` to ``last``, else an array, by due time for entries that
        came due.
        """

    def on_failure(self, error: PulsarSparkError) -> None:
        """The connection has failed for good."""


class Answers:
    """Collects the replies to several requests; *done* is called after the last."""

    def __init__(self, rows: list[dict], done: Callable[[], None] = lambda: None):
        self._ids, self._done = [row["request_id"] for row in rows], done
        self._found: dict[str, Reply] = {}

    @property
    def awaited(self) -> dict[str, Callable[[Reply], None]]:
        """Callbacks by request id."""
        return {request_id: partial(self._take, request_id) for request_id in self._ids}

    @property
    def are_there(self) -> bool:
        return len(self._found) == len(self._ids)

    def in_order(self) -> list[Reply]:
        return [self._found[request_id] for request_id in self._ids]

    def _take(self, request_id: str, reply: Reply) -> None:
        self._found[request_id] = reply
        if self.are_there:
            self._done()


def read_rows(path: AnyPath, commit: Commit) -> Rows:
    """The rows that clients need of the round that a *commit* to the ``cursor_ledger`` at *path* made."""
    if commit.reader_rows is not None:
        return from_commit(commit.reader_rows)
    with reading(path):
        return client_rows(read_added(path, commit, CURSOR_LEDGER.schema, COLUMNS))


def is_by_due_time(delivery: dict) -> bool:
    """Whether a delivery names its entries in the order in which they came due."""
    positions = delivery["positions"]
    return positions is not None and bool((positions[1:] < positions[:-1]).any())


class Inbox:
    """Subscribers by consumer, topic and partition; callbacks by request id."""

    def __init__(self):
        self.waiting: dict[str, Callable[[Reply], None]] = {}
        self._subscribers: dict[tuple[str, str, int], Subscriber] = {}
        self._consumer_ids: dict[str, int] = {}

    @property
    def has_consumers(self) -> bool:
        return bool(self._consumer_ids)

    def attach(self, consumer_id: str, topic: str, partition: int, subscriber: Subscriber) -> None:
        self._subscribers[consumer_id, topic, partition] = subscriber
        self._consumer_ids[consumer_id] = self._consumer_ids.get(consumer_id, 0) + 1

    def detach(self, consumer_id: str, topic: str, partition: int) -> None:
        if self._subscribers.pop((consumer_id, topic, partition), None) is not None:
            self._consumer_ids[consumer_id] -= 1
            if not self._consumer_ids[consumer_id]:
                del self._consumer_ids[consumer_id]

    def take_all(self) -> tuple[list[Callable[[Reply], None]], list[Subscriber]]:
        """All callbacks, which are removed, and all subscribers."""
        waiting, self.waiting = list(self.waiting.values()), {}
        return waiting, self.subscribers()

    def subscribers(self) -> list[Subscriber]:
        return list(self._subscribers.values())

    def recipients(self) -> tuple[set[str], set[str]]:
        """The consumer ids and request ids of interest."""
        return set(self._consumer_ids), set(self.waiting)

    def concerns(self, round_commit: Commit) -> bool:
        if round_commit.concerns is None or not round_commit.added:
            return bool(round_commit.added)
        return round_commit.may_concern(map(concerned_name, chain(self._consumer_ids, self.waiting)))

    def receive(
        self, commit: Commit, read: Callable[[Commit], Rows], lock: AbstractContextManager = nullcontext()
    ) -> None:
        """Dispatch the round of *commit*; *read* is as :func:`read_rows`. *lock* is held while the recipients are
        determined."""
        with lock:
            is_ours = self.concerns(commit)
        if is_ours:
            rows = read(commit)
            with lock:
                consumers, waiting = self.recipients()
            self.dispatch(rows, consumers, waiting)

    def forget(self, answers: Answers) -> None:
        for request_id in answers.awaited:
            self.waiting.pop(request_id, None)

    def dispatch(self, rows: Rows, consumers: set[str], waiting: set[str]) -> None:
        """Dispatch rows of one round to those of them."""
        found: dict[str, list[dict]] = {"round": [], "reply": [], "consumer": [], "range": []}
        for row in _few(rows, consumers, waiting):
            if row["kind"] == "round" or row["consumer_id"] in consumers or row["request_id"] in waiting:
                found[row["kind"]].append(row)
        requests_version = max(
            (row["requests_version"] for row in found["round"] if row["requests_version"] is not None), default=-1
        )
        for row in found["reply"]:
            if row["request_id"] is None and row["text"] == "reset" and (subscriber := self._subscriber(row)):
                subscriber.on_reset()
        for row in found["consumer"]:
            if subscriber := self._subscriber(row):
                if row["is_removed"]:
                    subscriber.on_removed(row["text"])
                elif row["is_active"] is not None:
                    subscriber.on_active(row["is_active"])
        for row in found["reply"]:
            replied = self.waiting.pop(row["request_id"], None)
            if replied is not None:
                error = named(row["error"])(row["text"] or row["error"]) if row["error"] else None
                replied(Reply(error, row["text"], row["round"]))
        for row in sorted(_by_position(found["range"]), key=self._comes_later):
            if subscriber := self._subscriber(row):
                subscriber.on_delivery(row, requests_version)

    def _comes_later(self, delivery: dict) -> bool:
        subscriber = None if is_by_due_time(delivery) else self._subscriber(delivery)
        return subscriber is not None and subscriber.wants_due_first

    def _subscriber(self, row: dict) -> Subscriber | None:
        return self._subscribers.get((row["consumer_id"], row["topic"], row["partition"]))


def _few(rows: Rows, consumers: set[str], waiting: set[str]) -> list[dict]:
    """*rows* as dictionaries; of a table those of these consumers and requests."""
    if isinstance(rows, list):
        return rows
    of_consumers, of_requests = (
        pc.is_in(rows[name], pa.array(sorted(ids), pa.string()))
        for name, ids in (("consumer_id", consumers), ("request_id", waiting))
    )
    return as_objects(rows.filter(pc.or_(pc.or_(of_consumers, of_requests), pc.equal(rows["kind"], "round"))))


def _by_position(deliveries: list[dict]) -> list[dict]:
    """The *deliveries* by position, cut where entries of one lie between entries of another. Those by due time stay."""
    found: list[dict] = []
    of_consumers: dict[tuple, list[dict]] = {}
    for row in deliveries:
        if is_by_due_time(row):
            found.append(row)
        else:
            of_consumers.setdefault((row["consumer_id"], row["topic"], row["partition"]), []).append(row)
    for rows in of_consumers.values():
        rows.sort(key=itemgetter("first"))
        is_mixed = any(row["last"] > later["first"] for row, later in pairwise(rows))
        found += _cut(rows) if is_mixed else rows
    return found


def _cut(rows: list[dict]) -> Iterator[dict]:
    """Rows of one consumer, cut so that no entry of one lies between entries of another."""
    named = [np.arange(row["first"], row["last"] + 1) if row["positions"] is None else row["positions"] for row in rows]
    positions, whose = np.concatenate(named), np.repeat(np.arange(len(rows)), [len(each) for each in named])
    order = np.argsort(positions)
    positions, whose = positions[order], whose[order]
    starts = np.flatnonzero(np.diff(whose, prepend=-1)).tolist()
    for begin, end in pairwise([*starts, len(positions)]):
        first, last, part = int(positions[begin]), int(positions[end - 1]), positions[begin:end]
        is_whole = last - first + 1 == len(part)
        yield rows[whose[begin]] | {"first": first, "last": last, "positions": None if is_whole else part}
