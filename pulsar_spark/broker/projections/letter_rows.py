"""The rows of letters, from the rows of their messages: cursor by cursor, each one's in order of position, a run of
entries at a time. They stay Arrow: only what a letter says otherwise is made a Python object.

A run whose rows cannot be read leaves out the letters of its entries, one some of whose messages are lost those of
these, a message of which no letter can be made just that one: they come as :class:`Left`, in their place. Messages that
were deleted or trimmed have no rows, and no letters.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from itertools import groupby, repeat
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

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
from pulsar_spark.table_specs import MESSAGES


class Letter(NamedTuple):
    """A letter to write: row *number* of *messages*, which is message *index* (-1 outside a batch) of an entry, with
    other *properties*. ``size`` counts the bytes of its payload."""

    order: Order
    position: int
    index: int
    messages: pa.Table
    number: int
    key: str | None
    size: int
    properties: list[tuple[str, str]]


def rows_of(letters: list[Letter], publish_id: str, now: int, places: list[tuple[int, int]]) -> pa.Table:
    """The rows of a publish commit at *now*: messages copied as they are, but for what a letter says otherwise, each at
    its place (partition, entry id). The hash of an entry is its first message's key's: the others of a batch go without
    one, which whoever needs it computes."""
    messages = [
        source.take(pa.array([number for _, number in same]))
        for source, same in _of_same_source((letter.messages, letter.number) for letter in letters)
    ]
    said = {
        "publish_id": [publish_id] * len(letters),
        "publish_time": [now] * len(letters),
        "partition": [partition for partition, _ in places],
        "entry_id": [entry_id for _, entry_id in places],
        "batch_index": [None] * len(letters),
        "batch_size": [1] * len(letters),
        "sequence_id": [None] * len(letters),
        "deliver_at_time": [letter.order.deliver_at for letter in letters],
        "producer_name": [letter.order.producer_name for letter in letters],
        "properties": [letter.properties for letter in letters],
    }
    kept = pa.concat_tables(messages)
    speaks_for_itself = pa.array([letter.index <= 0 for letter in letters])
    said["sticky_key_hash"] = pc.if_else(speaks_for_itself, kept["sticky_key_hash"], pa.scalar(None, pa.int32()))
    return pa.table(
        [
            pa.array(said[field.name], field.type) if field.name in said else kept[field.name].cast(field.type)
            for field in MESSAGES.schema
        ],
        MESSAGES.schema,
    )


def _of_same_source(rows: Iterable[tuple[pa.Table, int]]) -> Iterator[tuple[pa.Table, list[tuple[pa.Table, int]]]]:
    for _, same in groupby(rows, key=lambda row: id(row[0])):
        found = list(same)
        yield found[0][0], found


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
        tables = [rows for rows in found if not isinstance(rows, Missing)]
        for messages, number, position, entry_id, batch_index, *content in _python_rows(tables):
            index = -1 if batch_index is None else batch_index
            while lost and (lost[0].first, _index_of(lost[0])) < (position, index):
                yield lost.popleft()
            while ahead and ahead[0].fact["first"] <= position:
                here.append(ahead.popleft())
            here = [order for order in here if order.fact["last"] >= position] if here else here
            asking = [order for order in here if order.batch_indexes is None or order.names(index)]
            if put_off:
                asking += put_off.get((position, index)) or put_off.get((position, -1), ())
            message_id = MessageId(partition, run.ledger_id, entry_id, index)
            for order in asking:
                yield _letter(order, position, message_id, messages, number, *content)
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
            error = lost_error(state.topic.path, run, missing)
            for first, last in missing.entries:
                for left in _left(first + run.to_position, last + run.to_position, ordered, error):
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


def _letter(
    order: Order,
    position: int,
    message_id: MessageId,
    messages: pa.Table,
    number: int,
    key: str | None,
    size: int | None,
    properties: list[tuple[str, str]] | None,
) -> Letter | Left:
    index = message_id.batch_index()
    try:
        said = _properties(order, dict(properties or []), message_id)
    except Exception as error:
        raise_of_root(error)
        return order.left(error, position, position, index)
    return Letter(order, position, index, messages, number, key, size or 0, said)


def _properties(order: Order, properties: dict[str, str], message_id: MessageId) -> list[tuple[str, str]]:
    """What the letter of a message says: what was asked for, or why the message died."""
    if order.asked is not None:
        return list(order.asked.properties.items())
    said = dead_letter_properties(
        properties,
        topic=order.fact["topic"],
        subscription=order.fact["subscription"],
        message_id=str(message_id),
        cause=CAUSE_REDELIVERED,
        attempts=order.fact["redelivery_count"],
    )
    return list(said.items())


def _python_rows(tables: Iterable[pa.Table]) -> Iterator[tuple]:
    """Of each row its table, its number in that, position, entry id, batch index, key, bytes of payload, and
    properties. Payloads stay where they are."""
    for messages in tables:
        names = ("position", "entry_id", "batch_index", "partition_key")
        columns = [*map(messages.column, names), pc.binary_length(messages["payload"]), messages["properties"]]
        numbers = range(messages.num_rows)
        yield from zip(repeat(messages), numbers, *(column.to_pylist() for column in columns))
