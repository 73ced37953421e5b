"""Letters: written from the rows of the round that declared entries dead or put messages off.

A projection of ``cursor_ledger``: the round says which messages get a letter and where, and this writes the letters behind it, once, because each append bears
the round's number as its transaction. A crash in between leaves a round whose letters are missing; it is the latest round, since the next one begins after the
letters, so whoever starts writes the letters of the latest round again, which does nothing where they are there.

All letters of a round for one topic are written together, in commits of bounded size, however many subscriptions, partitions and requests they come from:
cursor by cursor, each one's in order of position. A letter keeps the row of its message; what is different is said in :func:`_letter`.
"""
import zlib
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from pulsar_spark.broker.bundle import Bundle, TopicState
from pulsar_spark.broker.drafts import Request
from pulsar_spark.protocol import ack_set as ack_sets
from pulsar_spark.protocol.letters import CAUSE_REDELIVERED, ReconsumeLater, dead_letter_properties, dead_letter_topic, reconsume_later_of
from pulsar_spark.protocol.message_id import MessageId
from pulsar_spark.protocol.positions import Positions
from pulsar_spark.protocol.publish_id import publish_id
from pulsar_spark.protocol.routing import RoundRobinRouter
from pulsar_spark.schemas import MESSAGES
from pulsar_spark.storage.cursor_ledger import CursorKey
from pulsar_spark.storage.entries import read_entries
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.tables import AppendTable
from pulsar_spark.storage.topics import Topic, resolve_topic

LETTERS_A_COMMIT = 20_000
BYTES_A_COMMIT = 64 << 20


class _Order(NamedTuple):
    """A ``letter`` row of a round: letters of the messages it names, into *partitions* of *topic*. ``asked`` is None for entries given back too often."""

    fact: dict
    topic: Topic
    partitions: list[int]
    initial_subscription: str | None
    asked: ReconsumeLater | None
    batch_indexes: frozenset[int] | None

    @property
    def key(self) -> CursorKey:
        return CursorKey(self.fact["topic_id"], self.fact["partition"], self.fact["subscription"])


def write_letters(bundle: Bundle, round_number: int, now: int, facts: Iterable[dict]) -> list[Request]:
    """Write the letters that the ``letter`` rows of a round ask for; the subscriptions to make on topics written to, as requests of the next round."""
    by_table: dict[str, list[_Order]] = defaultdict(list)
    for order in _orders(bundle.layout, facts):
        by_table[str(order.topic.path)].append(order)
    for path, orders in by_table.items():
        table, router = AppendTable(path), RoundRobinRouter(start=round_number)
        for number, letters in enumerate(_commits(_letters(bundle, orders))):
            app_id = f"letters/{bundle.layout.bundle}/{number}"
            rows = _placed(letters, router, publish_id(now // 1000, zlib.crc32(app_id.encode()) << 32 | round_number), now)
            table.append_once(MESSAGES.rows(rows), app_id, round_number)
    wanted = {(order.topic, partition, order.initial_subscription): None for orders in by_table.values() for order in orders
              if order.initial_subscription for partition in order.partitions}
    nothing = dict.fromkeys(Request._fields)
    return [Request(**nothing | dict(request_id=f"letters-{round_number}-{number}", kind="create_subscription", topic=str(topic.name), partition=partition,
                                     subscription=subscription, properties={"initial_position": "Earliest"}))
            for number, (topic, partition, subscription) in enumerate(wanted) if CursorKey(topic.topic_id, partition, subscription) not in bundle.cursors]


def _orders(layout: Layout, facts: Iterable[dict]) -> Iterator[_Order]:
    """The letter rows among *facts*, with their topics, made if they are missing."""
    found: dict[str, tuple[Topic, list[int]]] = {}
    for fact in facts:
        if fact["kind"] != "letter":
            continue
        said = dict(fact["properties"])
        asked = reconsume_later_of(said) if fact.get("request_id") else None
        name = asked.letter_topic if asked else said.get("dead_letter_topic") or dead_letter_topic(fact["topic"], fact["subscription"])
        if name not in found:
            found[name] = resolve_topic(layout, name, create=True)
        batch_indexes = None if fact["ack_set"] is None else frozenset(ack_sets.indexes(fact["ack_set"]))
        yield _Order(fact, *found[name], said.get("initial_subscription_name"), asked, batch_indexes)


def _letters(bundle: Bundle, orders: list[_Order]) -> Iterator[tuple[_Order, dict]]:
    """The rows of all letters, each with its order; none for topics that are gone."""
    by_cursor: dict[CursorKey, list[_Order]] = defaultdict(list)
    for order in orders:
        by_cursor[order.key].append(order)
    for key, ordered in by_cursor.items():
        state = bundle.topic_by_id(key.topic_id)
        if state is not None:
            yield from _letters_of(state, key.partition, ordered)


def _letters_of(state: TopicState, partition: int, orders: list[_Order]) -> Iterator[tuple[_Order, dict]]:
    """A row per message that one cursor's orders name: ranges of entries that died, and messages put off."""
    ahead = deque(sorted((order for order in orders if order.asked is None), key=lambda order: order.fact["first"]))
    here: list[_Order] = []
    put_off: dict[tuple[int, int], list[_Order]] = defaultdict(list)
    for order in orders:
        if order.asked is not None:
            put_off[order.fact["first"], -1 if order.batch_indexes is None else min(order.batch_indexes)].append(order)
    spans = Positions((order.fact["first"], order.fact["last"]) for order in orders)
    for run, rows in read_entries(state.topic.path, state.ledgers(partition), spans):
        for row in _python_rows(rows):
            position = run.first_position + row["entry_id"] - run.first_entry_id
            index = -1 if row["batch_index"] is None else row["batch_index"]
            while ahead and ahead[0].fact["first"] <= position:
                here.append(ahead.popleft())
            here = [order for order in here if order.fact["last"] >= position]
            dead = [order for order in here if order.batch_indexes is None or index in order.batch_indexes]
            for order in [*dead, *(put_off.get((position, index)) or put_off.get((position, -1), ()))]:
                yield order, _letter(order, row, MessageId(partition, run.ledger_id, row["entry_id"], index))


def _letter(order: _Order, row: dict, message_id: MessageId) -> dict:
    """The letter of a message: its row with other properties, by itself, and due when it was put off to."""
    fact, asked = order.fact, order.asked
    if asked is None:
        deliver_at, producer_name = None, f"{fact['topic']}-{fact['subscription']}-DLQ"
        properties = dead_letter_properties(dict(row["properties"] or []), topic=fact["topic"], subscription=fact["subscription"],
                                            message_id=str(message_id), cause=CAUSE_REDELIVERED, attempts=fact["redelivery_count"])
    else:
        deliver_at, producer_name, properties = asked.deliver_at_ms, asked.producer_name, asked.properties
    return dict(row, batch_index=None, batch_size=1, deliver_at_time=None if deliver_at is None else deliver_at * 1000, producer_name=producer_name,
                sequence_id=None, properties=list(properties.items()))


def _commits(letters: Iterable[tuple[_Order, dict]]) -> Iterator[list[tuple[_Order, dict]]]:
    """The letters of one commit after the other, cut where they have become enough or large enough: the same cuts for the same letters."""
    commit, size = [], 0
    for letter in letters:
        commit.append(letter)
        size += len(letter[1]["payload"] or b"")
        if len(commit) == LETTERS_A_COMMIT or size >= BYTES_A_COMMIT:
            yield commit
            commit, size = [], 0
    if commit:
        yield commit


def _placed(letters: list[tuple[_Order, dict]], router: RoundRobinRouter, identity: str, now: int) -> list[dict]:
    """The rows of a publish commit: each letter in the partition of its key, or the next in turn."""
    rows, entries = [], Counter()
    for order, row in letters:
        partition = order.partitions[router.partition(row["partition_key"], len(order.partitions))]
        rows.append(dict(row, publish_id=identity, entry_id=entries[partition], partition=partition, publish_time=now))
        entries[partition] += 1
    return rows


def _python_rows(rows: pa.Table) -> Iterator[dict]:
    """Rows as dicts, instants in microseconds."""
    counted = pa.schema([(field.name, pa.int64() if pa.types.is_timestamp(field.type) else field.type) for field in rows.schema])
    for batch in rows.cast(counted).to_batches(max_chunksize=1000):
        yield from batch.to_pylist()
