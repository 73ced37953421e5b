"""Which letters a round asks for: of which messages, into which topic. Each row fails by itself."""

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from pulsar_spark.broker.letters.waiting_letters import Left
from pulsar_spark.errors import InvalidTopicName
from pulsar_spark.protocol.acknowledgement import ack_set as ack_sets
from pulsar_spark.protocol.redelivery.letters import ReconsumeLater, dead_letters_to, letters_in, reconsume_later_of
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.store.faults import is_fault_of_disk
from pulsar_spark.storage.topics.topics import Topic, resolve_topic


class Order(NamedTuple):
    """A ``letter`` or ``waiting_letter`` row: letters into *partitions* of *topic*. ``reconsume_later`` is None for
    dead entries."""

    fact: dict
    topic: Topic
    partitions: list[int]
    initial_subscription: str | None
    reconsume_later: ReconsumeLater | None
    batch_indexes: frozenset[int] | None

    @property
    def key(self) -> CursorKey:
        return CursorKey(self.fact["topic_id"], self.fact["partition"], self.fact["subscription"])

    @property
    def messages(self) -> int:
        return letters_in(self.fact)

    @property
    def deliver_at(self) -> int | None:
        milliseconds = self.reconsume_later and self.reconsume_later.deliver_at_ms
        return None if milliseconds is None else milliseconds * 1000

    @property
    def producer_name(self) -> str | None:
        if self.reconsume_later is not None:
            return self.reconsume_later.producer_name
        return f"{self.fact['topic']}-{self.fact['subscription']}-DLQ"

    def names(self, index: int) -> bool:
        """Is message *index* of its entries meant? -1 outside a batch."""
        return self.batch_indexes is None or max(index, 0) in self.batch_indexes

    def left(
        self, error: Exception | None, first: int | None = None, last: int | None = None, index: int | None = None
    ) -> Left:
        """What is unwritten: all, entries *first*..*last*, or message *index* of *first*."""
        return Left(
            self.fact,
            self.fact["first"] if first is None else first,
            self.fact["last"] if last is None else last,
            self.fact["ack_set"] if index is None or index < 0 else list(ack_sets.of_indexes([index])),
            error,
        )

    def left_at(self, places: list[tuple[int, int]], error: Exception | None) -> list[Left]:
        """The unwritten letters at (position, index); whole neighbours are joined."""
        whole = self.messages // (self.fact["last"] - self.fact["first"] + 1)
        found: list[Left] = []
        for position, same in groupby(places, key=lambda place: place[0]):
            indexes = [index for _, index in same]
            each = self.left(error, position, position)
            if len(indexes) < whole:
                each = each._replace(ack_set=list(ack_sets.of_indexes(max(index, 0) for index in indexes)))
            if found and len(indexes) == whole and found[-1][3:] == each[3:] and found[-1].last + 1 == position:
                found[-1] = found[-1]._replace(last=position)
            else:
                found.append(each)
        return found


def raise_of_root(error: Exception) -> None:
    """Raise an error of the whole root, such as a full disk; return for others."""
    if isinstance(error, MemoryError) or is_fault_of_disk(error):
        raise error


def orders_of(layout: Layout, facts: Iterable[dict]) -> tuple[list[Order], list[Left]]:
    """The orders of letter rows, and rows that fail; creates missing topics. If a partition fails, others of that topic
    wait a round, so that a commit's letters do not change after a crash."""
    found: dict[str, tuple[Topic, list[int]] | Exception] = {}
    orders, left, failed = [], [], set()
    policies: dict[tuple, tuple] = {}
    for fact in facts:
        try:
            name, subscription, reconsume_later, batch_indexes = _parsed(fact, policies)
        except Exception as error:
            raise_of_root(error)
            left.append(_left(fact, error))
            continue
        if name not in found:
            found[name] = _resolved(layout, name)
        topic = found[name]
        if isinstance(topic, Exception):
            left.append(_left(fact, topic))
            failed.add(_partitioned(name))
        else:
            orders.append((name, Order(fact, *topic, subscription, reconsume_later, batch_indexes)))
    beside = {name for name in found if failed and _partitioned(name) in failed}
    left += [order.left(None) for name, order in orders if name in beside]
    return [order for name, order in orders if name not in beside], left


def _parsed(
    fact: dict, policies: dict[tuple, tuple]
) -> tuple[str, str | None, ReconsumeLater | None, frozenset | None]:
    """Topic, initial subscription, request and batch indexes of a row."""
    batch_indexes = None if fact["ack_set"] is None else frozenset(ack_sets.indexes(fact["ack_set"]))
    if fact.get("request_id"):
        properties = dict(fact["properties"] or [])
        reconsume_later = reconsume_later_of(properties)
        return reconsume_later.letter_topic, properties.get("initial_subscription_name"), reconsume_later, batch_indexes
    topic, subscription = fact["topic"], fact["subscription"]
    key = (id(fact["properties"]), topic, subscription)
    if key not in policies:
        properties = dict(fact["properties"] or [])
        policies[key] = dead_letters_to(properties, topic, subscription), properties.get("initial_subscription_name")
    return *policies[key], None, batch_indexes


def _left(fact: dict, error: Exception) -> Left:
    return Left(fact, fact["first"], fact["last"], fact["ack_set"], error)


def _resolved(layout: Layout, name: str) -> tuple[Topic, list[int]] | Exception:
    try:
        return resolve_topic(layout, name, create=True)
    except Exception as error:
        raise_of_root(error)
        return error


def _partitioned(name: str) -> str:
    try:
        return str(parse_topic_name(name).partitioned_topic)
    except InvalidTopicName:
        return name
