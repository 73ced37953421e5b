"""The rows of letters, from the rows of their messages: cursor by cursor, each one's in order of position, a run of
entries at a time.

A run whose rows cannot be read leaves out the letters of its entries, one some of whose messages are lost those of
these, a message of which no letter can be made just that one: they come as :class:`Left`, in their place. Messages that
were deleted or trimmed have no rows, and no letters.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from pulsar_spark.broker.bundle import Bundle
from pulsar_spark.broker.projections.letter_orders import Order, raise_of_root
from pulsar_spark.broker.topics import TopicState
from pulsar_spark.broker.waiting_letters import Left
from pulsar_spark.errors import CorruptState, TopicNotFound
from pulsar_spark.protocol import ack_set as ack_sets
from pulsar_spark.protocol.letters import CAUSE_REDELIVERED, dead_letter_properties
from pulsar_spark.protocol.message_id import MessageId
from pulsar_spark.protocol.numbering import Run
from pulsar_spark.protocol.positions import Positions
from pulsar_spark.storage.cursor_ledger import CursorKey
from pulsar_spark.storage.entries import EntryReader
from pulsar_spark.storage.missing import Missing, lost_error
from pulsar_spark.storage.topics import read_topic


class Letter(NamedTuple):
    """A letter to write, and which message (index -1 outside a batch) it is of."""

    order: Order
    position: int
    index: int
    row: dict


def letters_of(bundle: Bundle, orders: list[Order]) -> Iterator[Letter | Left]:
    """The letters of all orders, or what keeps them; none of topics that are gone."""
    by_cursor: dict[CursorKey, list[Order]] = defaultdict(list)
    for order in orders:
        by_cursor[order.key].append(order)
    for key, ordered in by_cursor.items():
        try:
            state = _state_of(bundle, ordered[0].fact)
        except Exception as error:
            raise_of_root(error)
            yield from (order.left(error) for order in _in_line(ordered))
            continue
        if state is not None:
            yield from _of_cursor(state, key.partition, ordered)


def is_gone(bundle: Bundle, fact: dict) -> bool:
    """Is the topic of a letter row's messages deleted, so that nobody waits for its letters?"""
    try:
        return _state_of(bundle, fact) is None
    except Exception as error:
        raise_of_root(error)
        return False


def _state_of(bundle: Bundle, fact: dict) -> TopicState | None:
    """The topic of a letter row's messages; None where it is gone, an error where it is there and cannot be read."""
    state = bundle.topic_by_id(fact["topic_id"])
    if state is not None:
        return state
    try:
        found = read_topic(bundle.layout, fact["topic"])
    except TopicNotFound:
        return None
    if found.topic_id == fact["topic_id"]:
        raise CorruptState(f"topic {str(found.name)!r} is not served: see what the log says of it")
    return None


def _of_cursor(state: TopicState, partition: int, orders: list[Order]) -> Iterator[Letter | Left]:
    ordered = _in_line(orders)
    ahead = deque(order for order in ordered if order.asked is None)
    here: list[Order] = []
    put_off: dict[tuple[int, int], list[Order]] = defaultdict(list)
    for order in orders:
        if order.asked is not None:
            put_off[order.fact["first"], -1 if order.batch_indexes is None else min(order.batch_indexes)].append(order)
    for run, spans in state.ledgers(partition).spans_of(
        Positions((order.fact["first"], order.fact["last"]) for order in orders)
    ):
        try:
            found = list(EntryReader().read(state.topic.path, run, spans))
        except Exception as error:
            raise_of_root(error)
            yield from _left(run.first_position, run.last_position, ordered, error)
            continue
        lost = deque(_lost(state, run, ordered, found))
        rows = [_counted(rows) for rows in found if not isinstance(rows, Missing)]
        for row in _python_rows(rows):
            position, index = row.pop("position"), -1 if row["batch_index"] is None else row["batch_index"]
            while lost and (lost[0].first, _index_of(lost[0])) < (position, index):
                yield lost.popleft()
            while ahead and ahead[0].fact["first"] <= position:
                here.append(ahead.popleft())
            here = [order for order in here if order.fact["last"] >= position]
            dead = [order for order in here if order.names(index)]
            for order in [*dead, *(put_off.get((position, index)) or put_off.get((position, -1), ()))]:
                yield _letter(order, position, index, row, run)
        yield from lost


def _in_line(orders: list[Order]) -> list[Order]:
    """*orders* of a cursor as their letters follow each other."""
    return sorted(orders, key=lambda order: (order.fact["first"], min(order.batch_indexes or [0])))


def _left(first: int, last: int, ordered: list[Order], error: Exception) -> Iterator[Left]:
    """What is left of orders, by first position, whose entries at *first*..*last* cannot be read."""
    until = bisect_right(ordered, last, key=lambda order: order.fact["first"])
    since = bisect_left(ordered, first, hi=until, key=lambda order: order.fact["last"])
    for order in ordered[since:until]:
        if order.fact["last"] >= first:
            yield order.left(error, max(order.fact["first"], first), min(order.fact["last"], last))


def _lost(state: TopicState, run: Run, ordered: list[Order], found: list) -> Iterator[Left]:
    """What is left of orders because messages of the run are lost, in order of position and index."""
    for missing in found:
        if isinstance(missing, Missing) and missing.is_lost:
            error, to_position = lost_error(state.topic.path, run, missing), run.first_position - run.first_entry_id
            for first, last in missing.entries:
                for left in _left(first + to_position, last + to_position, ordered, error):
                    indexes = missing.parts.get(first)
                    yield from [left] if indexes is None else _parts_of(left, indexes)


def _parts_of(left: Left, indexes: list[int]) -> Iterator[Left]:
    """That letters of some messages of an entry are left, as far as they were to be written."""
    asked = None if left.ack_set is None else set(ack_sets.indexes(left.ack_set))
    for index in indexes:
        if asked is None or index in asked:
            yield left._replace(ack_set=list(ack_sets.of_indexes([index])))


def _index_of(left: Left) -> int:
    """The first message of its entries that is left."""
    return -1 if left.ack_set is None else min(ack_sets.indexes(left.ack_set), default=-1)


def _letter(order: Order, position: int, index: int, row: dict, run: Run) -> Letter | Left:
    try:
        message_id = MessageId(order.fact["partition"], run.ledger_id, row["entry_id"], index)
        return Letter(order, position, index, _letter_row(order, row, message_id))
    except Exception as error:
        raise_of_root(error)
        return order.left(error, position, position, index)


def _letter_row(order: Order, row: dict, message_id: MessageId) -> dict:
    """The letter of a message: its row with other properties, by itself, and due when it was put off to."""
    fact, asked = order.fact, order.asked
    if asked is None:
        deliver_at, producer_name = None, f"{fact['topic']}-{fact['subscription']}-DLQ"
        properties = dead_letter_properties(
            dict(row["properties"] or []),
            topic=fact["topic"],
            subscription=fact["subscription"],
            message_id=str(message_id),
            cause=CAUSE_REDELIVERED,
            attempts=fact["redelivery_count"],
        )
    else:
        deliver_at, producer_name, properties = asked.deliver_at_ms, asked.producer_name, asked.properties
    return dict(
        row,
        batch_index=None,
        batch_size=1,
        deliver_at_time=None if deliver_at is None else deliver_at * 1000,
        producer_name=producer_name,
        sequence_id=None,
        properties=list(properties.items()),
    )


def _counted(rows: pa.Table) -> pa.Table:
    """*rows* with instants in microseconds."""
    return rows.cast(
        pa.schema(
            [(field.name, pa.int64() if pa.types.is_timestamp(field.type) else field.type) for field in rows.schema]
        )
    )


def _python_rows(tables: Iterable[pa.Table]) -> Iterator[dict]:
    """Rows as dicts."""
    for table in tables:
        for batch in table.to_batches(max_chunksize=1000):
            yield from batch.to_pylist()
