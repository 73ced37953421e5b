"""Write letters from the rows of the round that declared entries dead or put messages off.

Appends are transactions with the round's number, and the next round begins after them, so a crash leaves only the
latest round without letters. What fails waits (see waiting_letters), and for one round so do later letters for that
topic, so that a numbered commit never changes.
"""

import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow.dataset as ds

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.bundle.clock import Instant
from pulsar_spark.broker.letters.letter_blocks import Letters, rows_of
from pulsar_spark.broker.letters.letter_orders import Order, orders_of, raise_of_root
from pulsar_spark.broker.letters.letter_rows import is_gone, letters_of
from pulsar_spark.broker.letters.waiting_letters import Left
from pulsar_spark.broker.requests.request import Request, new_request
from pulsar_spark.protocol.topics.numbering import publish_id
from pulsar_spark.protocol.topics.routing import RoundRobinRouter
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey
from pulsar_spark.storage.delta.scan import dataset_of, reading
from pulsar_spark.storage.delta.tables import AppendTable, is_committed

LETTERS_A_COMMIT = 20_000
BYTES_A_COMMIT = 64 << 20
_ENDS_A_MESSAGE = ds.field("uuid").is_null() | (ds.field("chunk_id") == ds.field("num_chunks_from_msg") - 1)
"""The last chunk of a letter counts."""


def write_letters(
    bundle: Bundle, round_number: int, now: Instant, facts: Iterable[dict], *, is_again: bool = False
) -> list[Request]:
    """Write a round's letters, and waiting ones tried after it; returns requests for the topics' subscriptions.
    *is_again*: some may be written."""
    app_id, tried = f"letters/{bundle.layout.bundle}", bundle.waiting_letters.tried
    orders: list[Order] = []
    left: list[Left] = []
    missing: Counter[CursorKey] = Counter()
    topics: dict[CursorKey, str] = {}
    for prefix, rows in ((app_id, [fact for fact in facts if fact["kind"] == "letter"]), (f"{app_id}/waiting", tried)):
        found, impossible = orders_of(bundle.layout, rows)
        left += impossible
        for table in _by_table(found):
            letters = _Commits(table, prefix, round_number, now.wall)
            letters.write(bundle, is_again=is_again)
            left += letters.left
            missing += letters.missing
            topics |= letters.topics
            orders += table if letters.error is None else []
    gone = {
        row["topic_id"] for row in {each.fact["topic_id"]: each.fact for each in left}.values() if is_gone(bundle, row)
    }
    left = [each for each in left if each.fact["topic_id"] not in gone]
    bundle.waiting_letters.record(round_number, now, tried, left, missing, topics, known=bundle.cursors)
    return _subscriptions(bundle, round_number, orders)


def _by_table(orders: list[Order]) -> Iterable[list[Order]]:
    by_table: dict[str, list[Order]] = defaultdict(list)
    for order in orders:
        by_table[str(order.topic.path)].append(order)
    return by_table.values()


def _subscriptions(bundle: Bundle, round_number: int, orders: list[Order]) -> list[Request]:
    wanted = {
        (order.topic, partition, order.initial_subscription): None
        for order in orders
        if order.initial_subscription
        for partition in order.partitions
    }
    return [
        new_request(
            f"letters-{round_number}-{number}",
            "create_subscription",
            topic=str(topic.name),
            partition=partition,
            subscription=subscription,
            properties={"initial_position": "Earliest"},
        )
        for number, (topic, partition, subscription) in enumerate(wanted)
        if CursorKey(topic.topic_id, partition, subscription) not in bundle.cursors
    ]


class _Unwritten(NamedTuple):
    order: Order
    places: list[tuple[int, int]]


class _Commits:
    """The letters of one topic, in commits cut by count and size, always alike. After a failure none is written.
    ``missing`` counts messages that no longer exist, by cursor."""

    def __init__(self, orders: list[Order], app_id: str, round_number: int, now: int):
        self._orders, self._app_id, self._round, self._now = orders, app_id, round_number, now
        self._router, self._number = RoundRobinRouter(start=round_number), 0
        self._commit: list[Letters] = []
        self._count = self._size = 0
        self._is_open, self._written = True, 0
        self._unwritten: dict[int, _Unwritten] = {}
        self.error: Exception | None = None
        self.left: list[Left] = []
        self.missing: Counter[CursorKey] = Counter()
        self.topics: dict[CursorKey, str] = {}

    def write(self, bundle: Bundle, *, is_again: bool) -> None:
        """Write what can be written; with *is_again*, what is missing."""
        try:
            self._table = AppendTable(self._orders[0].topic.path)
            self._written = self._count_written() if is_again else 0
        except Exception as error:
            raise_of_root(error)
            self.error, self.left = error, [order.left(error) for order in self._orders]
            return
        seen: Counter[int] = Counter()
        for found in letters_of(bundle, self._orders):
            if isinstance(found, Left):
                seen[id(found.fact)] += found.messages
                for rest in self._unwritten_of(found):
                    self._stop(rest)
            else:
                seen.update(id(order.fact) for order in found.orders)
                self._take(found)
        self._append()
        for order, places in self._unwritten.values():
            self.left += order.left_at(places, self.error)
        for order in self._orders:
            if (missing := order.messages - seen[id(order.fact)]) > 0:
                self.missing[order.key] += missing
                self.topics[order.key] = order.fact["topic"]

    def _count_written(self) -> int:
        written, path = 0, self._orders[0].topic.path
        while is_committed(path, f"{self._app_id}/{self._number}", self._round):
            is_letter = (ds.field("publish_id") == self._identity) & _ENDS_A_MESSAGE
            with reading(path):
                written += dataset_of(path).count_rows(filter=is_letter)
            self._number += 1
        return written

    def _unwritten_of(self, left: Left) -> list[Left]:
        written = min(self._written, left.messages)
        self._written -= written
        return left.after(written)

    @property
    def _identity(self) -> str:
        return publish_id(self._now // 1000, zlib.crc32(f"{self._app_id}/{self._number}".encode()) << 32 | self._round)

    def _take(self, letters: Letters) -> None:
        if written := min(self._written, letters.number):
            self._written -= written
            letters.part(0, written).partitions(self._router)
            letters = letters.part(written, letters.number)
        while letters.number and self._is_open:
            now = letters.up_to(LETTERS_A_COMMIT - self._count, BYTES_A_COMMIT - self._size)
            self._commit.append(letters.part(0, now))
            self._count, self._size = self._count + now, self._size + int(letters.sizes[:now].sum())
            letters = letters.part(now, letters.number)
            if self._count == LETTERS_A_COMMIT or self._size >= BYTES_A_COMMIT:
                self._append()
        self._leave(letters)

    def _append(self) -> None:
        if not self._commit:
            return
        app_id, commit = f"{self._app_id}/{self._number}", self._commit
        try:
            partitions = [partition for letters in commit for partition in letters.partitions(self._router)]
            self._table.append_once(rows_of(commit, self._identity, self._now, partitions), app_id, self._round)
        except Exception as error:
            raise_of_root(error)
            if not self._is_there(app_id):
                self._blame(commit, error)
        self._commit, self._count, self._size, self._number = [], 0, 0, self._number + 1

    def _is_there(self, app_id: str) -> bool:
        """Did a failed append commit anyway? If unreadable, it did not begin."""
        try:
            return is_committed(self._orders[0].topic.path, app_id, self._round)
        except Exception as error:
            raise_of_root(error)
            return False

    def _blame(self, commit: list[Letters], error: Exception) -> None:
        """Divide a failed commit into bad letters and waiting ones; without bad ones the table is the cause."""
        self._is_open = False
        cause: Exception | None = error
        for letters in commit:
            begin = 0
            for number, reason in _unwritable(letters):
                position, index = int(letters.positions[number]), int(letters.indexes[number])
                self.left.append(letters.orders[number].left(reason, position, position, index))
                self._leave(letters.part(begin, number))
                begin, cause = number + 1, None
            self._leave(letters.part(begin, letters.number))
        self.error = cause

    def _stop(self, left: Left) -> None:
        self.left.append(left)
        self._is_open = False
        for letters in self._commit:
            self._leave(letters)
        self._commit = []

    def _leave(self, letters: Letters) -> None:
        for order, *place in zip(letters.orders, letters.positions.tolist(), letters.indexes.tolist()):
            self._unwritten.setdefault(id(order), _Unwritten(order, [])).places.append(tuple(place))


def _unwritable(letters: Letters) -> Iterator[tuple[int, Exception]]:
    """Letters that no table takes, and why, found by halving."""
    try:
        rows_of([letters], "", 0, [0] * letters.number)
    except Exception as error:
        raise_of_root(error)
        if letters.number == 1:
            yield 0, error
            return
        middle = letters.number // 2
        for begin, end in ((0, middle), (middle, letters.number)):
            yield from ((begin + number, reason) for number, reason in _unwritable(letters.part(begin, end)))
