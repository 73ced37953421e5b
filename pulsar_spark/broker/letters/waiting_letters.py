"""Letters that could not be written yet: visible as rows, and tried again at growing intervals or on request.

A row of kind ``waiting_letter`` has the messages and the cause. Rows of kind ``letterless`` count messages that were
deleted before.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Container, Iterable
from typing import NamedTuple

from pulsar_spark.broker.bundle.clock import Instant
from pulsar_spark.broker.committing.facts import letterless_row, waiting_letter_row
from pulsar_spark.protocol.acknowledgement import ack_set as ack_sets
from pulsar_spark.protocol.delays.instants import to_micros
from pulsar_spark.protocol.redelivery.letters import letters_in
from pulsar_spark.protocol.redelivery.redelivery import MultiplierRedeliveryBackoff
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, LatestRows, WaitingKey

WAITING = "waiting_letter"
INTERVALS = MultiplierRedeliveryBackoff(min_delay_ms=1_000, max_delay_ms=600_000)
_OF_LETTER = (
    "topic",
    *CursorKey._fields,
    "status",
    "consumer_id",
    "redelivery_count",
    "batch_size",
    "request_id",
    "properties",
)
_TIMES = ("due_time", "round_time")

log = logging.getLogger(__name__)


class Left(NamedTuple):
    """Unwritten letters: entries first..last of the row *fact*, or batch indexes of one. *error* is the cause; None if
    others were in the way."""

    fact: dict
    first: int
    last: int
    ack_set: list[int] | None
    error: Exception | None

    @property
    def is_same(self) -> bool:
        """Did exactly these letters wait before?"""
        before = (self.fact["first"], self.fact["last"], self.fact["ack_set"])
        return self.fact["kind"] == WAITING and (self.first, self.last, self.ack_set) == before

    @property
    def messages(self) -> int:
        return letters_in(
            {"first": self.first, "last": self.last, "ack_set": self.ack_set, "batch_size": self.fact["batch_size"]}
        )

    def after(self, written: int) -> "list[Left]":
        """What is left after the first *written* letters are written."""
        entries, more = divmod(written, self.messages // (self.last - self.first + 1))
        rest = self._replace(first=self.first + entries)
        if not more:
            return [rest] if rest.first <= rest.last else []
        indexes = ack_sets.indexes(ack_sets.full(self.fact["batch_size"]) if self.ack_set is None else self.ack_set)
        begun = rest._replace(last=rest.first, ack_set=list(ack_sets.of_indexes(indexes[more:])))
        return [begun, *rest.after(rest.messages // (rest.last - rest.first + 1))]


class WaitingLetters:
    def __init__(self, latest: LatestRows | None = None):
        self.rows: dict[WaitingKey, dict] = {}
        self.letterless: Counter[CursorKey] = Counter()
        self._topics: dict[CursorKey, str] = {}
        self._changed: dict[WaitingKey, dict] = {}
        self._counted: set[CursorKey] = set()
        for key, row in (latest.waiting_letters if latest else {}).items():
            self.rows[key] = row | {name: row[name] and to_micros(row[name]) for name in _TIMES}
        for cursor, row in (latest.letterless if latest else {}).items():
            self.letterless[cursor], self._topics[cursor] = row["msg_out_counter"], row["topic"]

    @property
    def tried(self) -> list[dict]:
        return [row for row in self.rows.values() if row["due_time"] is None]

    def next_due(self) -> int | None:
        """When the first of them is to be tried again."""
        return min((row["due_time"] for row in self.rows.values() if row["due_time"] is not None), default=None)

    def try_due(self, now: int) -> None:
        self.try_again(
            (key for key, row in self.rows.items() if row["due_time"] is not None and row["due_time"] <= now), None
        )

    def try_again(self, keys: Iterable[WaitingKey], due: int | None) -> None:
        """Try these at *due*; None means after the round under way."""
        for key in list(keys):
            self._put(key, self.rows[key] | {"due_time": due})

    def drop(self, keys: Iterable[WaitingKey]) -> None:
        for key in list(keys):
            self._changed[key] = self.rows.pop(key) | {"is_removed": True}

    def record(
        self,
        round_number: int,
        now: Instant,
        tried: list[dict],
        left: list[Left],
        missing: Counter[CursorKey],
        topics: dict[CursorKey, str],
        *,
        known: Container[CursorKey],
    ) -> None:
        """Record a round's letters: *left* of those *tried* were not written; *missing* messages are gone."""
        left = _joined(left)
        stays = {key_of(each.fact) for each in left if each.is_same}
        self.drop(key for key in map(key_of, tried) if key not in stays)
        for number, each in enumerate(left):
            key = key_of(each.fact) if each.is_same else WaitingKey(round_number, number)
            self._put(key, _row(key, each, now))
        for cursor, messages in missing.items():
            if cursor in known:
                self.letterless[cursor] += messages
                self._topics[cursor] = topics[cursor]
                self._counted.add(cursor)
            log.warning(
                "subscription %r of %s: %d messages were deleted or trimmed before their letter was "
                "written; they get no letter",
                cursor.subscription,
                topics[cursor],
                messages,
            )
        _log_left(left)

    def facts(self) -> list[dict]:
        rows = [*self._changed.values(), *(self._letterless_row(key) for key in sorted(self._counted))]
        self._changed, self._counted = {}, set()
        return rows

    def everything(self, known: Container[CursorKey]) -> list[dict]:
        """All rows, for a snapshot, with counts of *known* cursors."""
        return [*self.rows.values(), *(self._letterless_row(key) for key in self.letterless if key in known)]

    def _put(self, key: WaitingKey, row: dict) -> None:
        self.rows[key] = self._changed[key] = row

    def _letterless_row(self, key: CursorKey) -> dict:
        return letterless_row(key, self._topics[key], self.letterless[key])


def key_of(row: dict) -> WaitingKey:
    return WaitingKey(row["delivery_round"], row["join_order"])


def _joined(left: list[Left]) -> list[Left]:
    found: list[Left] = []
    for each in left:
        if found and not each.is_same and _alike(found[-1]) == _alike(each) and found[-1].last + 1 == each.first:
            found[-1] = found[-1]._replace(last=each.last)
        else:
            found.append(each)
    return found


def _alike(left: Left) -> tuple:
    about = [left.fact.get(name) for name in (*_OF_LETTER, "kind", "text")]
    return left.ack_set, type(left.error), str(left.error), about


def _row(key: WaitingKey, left: Left, now: Instant) -> dict:
    before = left.fact if left.fact["kind"] == WAITING else {}
    tries = (before.get("msg_out_counter") or 0) + (left.error is not None)
    error, text = before.get("error"), before.get("text")
    if left.error is not None:
        error, text = type(left.error).__name__, str(left.error)
    due = now.own + 1000 * INTERVALS.delay_ms(tries - 1) if left.error else now.own
    return waiting_letter_row(
        key,
        {name: left.fact.get(name) for name in _OF_LETTER},
        first=left.first,
        last=left.last,
        ack_set=left.ack_set,
        due_time=due,
        error=error,
        text=text,
        msg_out_counter=tries,
        round_time=before.get("round_time") or now.wall,
    )


def _log_left(left: list[Left]) -> None:
    """Log each cause and subscription once, the first time with a traceback."""
    causes = defaultdict(list)
    for each in left:
        if each.error is not None:
            causes[each.fact["subscription"], each.fact["topic"], type(each.error), str(each.error)].append(each)
    for (subscription, topic, _, _), several in causes.items():
        is_new = any(each.fact["kind"] != WAITING for each in several)
        log.log(
            logging.ERROR if is_new else logging.WARNING,
            "subscription %r of %s: letters of %d entries could not be written and are tried again later: %s: %s",
            subscription,
            topic,
            sum(each.last - each.first + 1 for each in several),
            type(several[0].error).__name__,
            several[0].error,
            exc_info=several[0].error if is_new else None,
        )
