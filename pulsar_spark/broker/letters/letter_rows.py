"""The rows of letters, made from their messages' rows in Arrow. What cannot be read becomes a :class:`Left` in its
place. Deleted messages get no letters."""

from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Iterator
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.bundle.topic_state import TopicState
from pulsar_spark.broker.letters.chunked_letters import Whole, wholes_of
from pulsar_spark.broker.letters.letter_blocks import Letters
from pulsar_spark.broker.letters.letter_orders import Order, raise_of_root
from pulsar_spark.broker.letters.waiting_letters import Left
from pulsar_spark.errors import CorruptState, MessagesLost, TopicNotFound
from pulsar_spark.protocol.acknowledgement import ack_set as ack_sets
from pulsar_spark.protocol.acknowledgement.positions import Positions, as_array, expanded
from pulsar_spark.protocol.redelivery.letters import CAUSE_REDELIVERED, believed_properties, dead_letter_properties
from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.entries.entries import EntryReader
from pulsar_spark.storage.entries.missing import Missing, lost_error
from pulsar_spark.storage.topics.topics import read_topic


def letters_of(bundle: Bundle, orders: list[Order]) -> Iterator[Letters | Left]:
    """The letters of all orders, or a :class:`Left` with the cause."""
    by_cursor: dict[tuple, list[Order]] = defaultdict(list)
    for order in orders:
        fact = order.fact
        by_cursor[fact["topic_id"], fact["partition"], fact["subscription"]].append(order)
    for (_, partition, _), ordered in by_cursor.items():
        try:
            state = _state_of(bundle, ordered[0].fact)
        except Exception as error:
            raise_of_root(error)
            yield from (order.left(error) for order in _in_order(ordered))
            continue
        if state is not None:
            yield from _of_cursor(state, partition, ordered)


def is_gone(bundle: Bundle, fact: dict) -> bool:
    try:
        return _state_of(bundle, fact) is None
    except Exception as error:
        raise_of_root(error)
        return False


def _state_of(bundle: Bundle, fact: dict) -> TopicState | None:
    """The topic of a letter row's messages; None if deleted, an error if unreadable."""
    state = bundle.topic_by_id(fact["topic_id"])
    if state is not None:
        return state
    try:
        found = read_topic(bundle.layout, fact["topic"])
    except TopicNotFound:
        return None
    if found.topic_id == fact["topic_id"]:
        raise CorruptState(f"topic {str(found.name)!r} is not served: see the broker's log")
    return None


def _of_cursor(state: TopicState, partition: int, orders: list[Order]) -> Iterator[Letters | Left]:
    ordered = _in_order(orders)
    queue = _Queue(
        [order for order in ordered if order.reconsume_later is None]
        + [order for order in orders if order.reconsume_later]
    )
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
        for messages in found:
            if not isinstance(messages, Missing) and messages.num_rows:
                yield from _of_messages(state, queue, partition, run.ledger_id, messages, lost)
        yield from lost


class _Queue:
    """The orders of a cursor, in the order of one message's letters."""

    def __init__(self, orders: list[Order]):
        self.orders = orders
        self._firsts, self._lasts = as_array((order.fact["first"], order.fact["last"]) for order in orders)
        self._names_some = np.array([order.batch_indexes is not None for order in orders])

    def asking(self, positions: np.ndarray, indexes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which letters exist of messages at *positions* and *indexes*: numbers of message and order."""
        near = np.flatnonzero((self._firsts <= positions[-1]) & (self._lasts >= positions[0]))
        begins = np.searchsorted(positions, self._firsts[near], "left")
        ends = np.searchsorted(positions, self._lasts[near], "right")
        messages, whose = expanded(begins, ends - 1), np.repeat(near, ends - begins)
        is_meant = np.ones(len(whose), bool)
        for at in np.flatnonzero(self._names_some[whose]).tolist():
            is_meant[at] = self.orders[whose[at]].names(int(indexes[messages[at]]))
        messages, whose = messages[is_meant], whose[is_meant]
        in_turn = np.lexsort((whose, messages))
        return messages[in_turn], whose[in_turn]


def _of_messages(
    state: TopicState, queue: _Queue, partition: int, ledger_id: int, messages: pa.Table, lost: deque[Left]
) -> Iterator[Letters | Left]:
    positions, indexes = messages["position"].to_numpy(), pc.fill_null(messages["batch_index"], -1).to_numpy()
    numbers, whose = queue.asking(positions, indexes)
    wholes = wholes_of(state, partition, messages, numbers)
    is_there = np.isin(positions[numbers], [at for at, whole in wholes.items() if whole is None], invert=True)
    numbers, whose = numbers[is_there], whose[is_there]
    places = list(zip(positions[numbers].tolist(), indexes[numbers].tolist()))
    left: list[tuple[int, int, Left]] = []
    while lost and _place(lost[0]) < (positions[-1], indexes[-1]):
        left.append((bisect_right(places, _place(lost[0])), 0, lost.popleft()))
    is_each_once = np.array_equal(numbers, np.arange(len(positions)))
    rows = messages if is_each_once else messages.take(pa.array(numbers))
    orders, properties = [queue.orders[number] for number in whose.tolist()], []
    columns = (rows[name].to_pylist() for name in ("entry_id", "properties", "producer_name", "sequence_id"))
    for order, (position, index), entry_id, own, *sent_by in zip(orders, places, *columns):
        try:
            message_id = MessageId.of_place((ledger_id, entry_id, index, partition), None)
            message_id = _message_id(message_id, wholes.get(position))
            believed = believed_properties(dict(own), order.fact["topic"], *sent_by) if own else {}
            properties.append(_properties(order, believed, message_id))
        except Exception as error:
            raise_of_root(error)
            left.append((len(properties), 1, order.left(error, position, position, index)))
            properties.append([])
    sizes = pc.fill_null(pc.binary_length(rows["payload"]), 0).to_numpy()
    made_of = [whole if isinstance(whole := wholes.get(position), Whole) else None for position, _ in places]
    if any(made_of):
        sizes = np.maximum(sizes, pc.fill_null(rows["total_chunk_msg_size"], 0).to_numpy())
    yield from _beside(Letters(orders, positions[numbers], indexes[numbers], rows, sizes, properties, made_of), left)


def _message_id(message_id: MessageId, whole: Whole | MessagesLost | None) -> MessageId:
    """The id of a message, chunked if there is a *whole*; raises its error."""
    if isinstance(whole, MessagesLost):
        raise whole
    return message_id if whole is None else message_id.of_chunks(whole.first_chunk)


def _beside(letters: Letters, left: list[tuple[int, int, Left]]) -> Iterator[Letters | Left]:
    begin = 0
    for at, instead_of, each in [*sorted(left, key=itemgetter(0, 1)), (letters.number, 0, None)]:
        if begin < at:
            yield letters.part(begin, at)
        if each is not None:
            yield each
        begin = at + instead_of


def _in_order(orders: list[Order]) -> list[Order]:
    return sorted(
        orders, key=lambda order: (order.fact["first"], min(order.batch_indexes) if order.batch_indexes else 0)
    )


def _left(first: int, last: int, ordered: list[Order], error: Exception) -> Iterator[Left]:
    """Parts of orders, by first position, that overlap unreadable *first*..*last*."""
    until = bisect_right(ordered, last, key=lambda order: order.fact["first"])
    since = bisect_left(ordered, first, hi=until, key=lambda order: order.fact["last"])
    for order in ordered[since:until]:
        if order.fact["last"] >= first:
            yield order.left(error, max(order.fact["first"], first), min(order.fact["last"], last))


def _lost(state: TopicState, run: Run, ordered: list[Order], found: list) -> Iterator[Left]:
    """Parts of orders lost in the run, by position and index."""
    for missing in found:
        if isinstance(missing, Missing) and missing.is_lost:
            error = lost_error(state.topic.path, run, missing)
            for first, last in missing.entries:
                for left in _left(first + run.to_position, last + run.to_position, ordered, error):
                    indexes = missing.parts.get(first)
                    yield from [left] if indexes is None else _parts_of(left, indexes)


def _parts_of(left: Left, indexes: list[int]) -> Iterator[Left]:
    wanted = None if left.ack_set is None else set(ack_sets.indexes(left.ack_set))
    for index in indexes:
        if wanted is None or index in wanted:
            yield left._replace(ack_set=list(ack_sets.of_indexes([index])))


def _place(left: Left) -> tuple[int, int]:
    return left.first, -1 if left.ack_set is None else min(ack_sets.indexes(left.ack_set), default=-1)


def _properties(order: Order, properties: dict[str, str], message_id: MessageId) -> list[tuple[str, str]]:
    """A letter's properties: those of the request, or why the message died."""
    if order.reconsume_later is not None:
        return list(order.reconsume_later.properties.items())
    properties = dead_letter_properties(
        properties,
        topic=order.fact["topic"],
        subscription=order.fact["subscription"],
        message_id=str(message_id),
        cause=CAUSE_REDELIVERED,
        attempts=order.fact["redelivery_count"],
    )
    return list(properties.items())
