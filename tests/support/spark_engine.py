"""The real thing with the reference broker's methods: real tables, real rounds, Spark's plan; only the stream and the
clock are left out.

State is given as the committed rows say it, not as the broker remembers it, so that every case also proves what a
restart would find.
"""

import tempfile
from ast import literal_eval
from datetime import datetime, timezone
from functools import cache
from pathlib import Path

import pyarrow.compute as pc
from pyspark.sql import SparkSession

from pulsar_spark.broker.bundle.load_bundle import load_bundle
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.planning.planner import Planner
from pulsar_spark.broker.requests.request import Request
from pulsar_spark.broker.round.rounds import Rounds
from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, PENDING, REPLAY, Range
from pulsar_spark.protocol.acknowledgement.packing import unpacked_pairs
from pulsar_spark.protocol.delays.instants import to_micros
from pulsar_spark.protocol.redelivery.letters import (
    ATTEMPTS,
    ORIGIN_MESSAGE_ID,
    RECONSUME_TIMES,
    dead_letter_topic,
    retry_letter_topic,
)
from pulsar_spark.protocol.subscriptions.unacked_limit import BLOCKED_BY_BROKER
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.storage.cursor_ledger.committed_rounds import read_round
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, LatestRows, ranges_by_cursor
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import dataset_of
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import create_topic, prepare_root, resolve_topic
from pulsar_spark.table_specs import MESSAGES
from pulsar_spark.testing.plain_planner import PlainPlanner
from pulsar_spark.views.stats import Observation, partition_stats
from tests.support import chunk_rows, due_rows
from tests.support.model import Reply, as_ranges
from tests.support.model_chunks import Chunk
from tests.support.model_cursor import Delivery, Letter
from tests.support.model_keys import Key
from tests.support.requests import PLACE


@cache
def planner_of(spark) -> Planner:
    """One planner for all engines of a session, so that plans are prepared once. It sets how expressions are evaluated,
    so it has a sibling session."""
    return Planner(spark.newSession(), Path(tempfile.mkdtemp(prefix="pulsar_spark_inputs_")))


def cursor_of(engine: "SparkEngine", subscription: str = "s") -> Cursor:
    """The first cursor of a subscription, as the broker remembers it."""
    return next(each for key, each in engine.rounds.bundle.cursors.items() if key.subscription == subscription)


def new_engine(spark: SparkSession | None, root: Path | str, **options) -> "SparkEngine":
    """An engine on a root of its own; without Spark it plans as :class:`PlainPlanner` does."""
    prepare_root(Layout(root))
    return SparkEngine(spark, Layout(root), **options)


class SparkEngine:
    def __init__(self, spark, layout: Layout, **options):
        """*options* are those of :class:`Rounds`, also after a restart."""
        self.layout, self.now_ms, self.options = layout, 0, options
        self.planner = planner_of(spark) if spark else PlainPlanner()
        self.latest, self.read_version = LatestRows(), 0
        self.topic_ids: dict[str, str] = {}
        self.tables: dict[str, AppendTable] = {}
        self.published = 0
        self.start()

    def start(self) -> None:
        """Start a broker: from the tables alone."""
        self.rounds = Rounds(
            load_bundle(self.layout), self.planner.run, lambda: self.now_ms * 1000, "engine", **self.options
        )

    @property
    def number(self) -> int:
        """The number the next round has."""
        return self.rounds.bundle.round + 1

    def create_topic(self, topic: str, partitions: int = 0) -> None:
        made = create_topic(self.layout, topic, partitions)
        self.topic_ids[topic], self.tables[topic] = made.topic_id, AppendTable(made.path)

    def publish(
        self,
        topic: str,
        partition: int,
        entries: list[int],
        publish_time_ms: int | None = None,
        deliver_at_ms: list[int | None] | None = None,
        keys: list[tuple[Key, ...]] | None = None,
        chunks: list[Chunk | None] | None = None,
        **columns,
    ) -> list[int]:
        instant = _instant(self.now_ms if publish_time_ms is None else publish_time_ms)
        due = deliver_at_ms or [None] * len(entries)
        self.published += 1
        self.tables[topic].append(
            MESSAGES.rows(
                [
                    dict(
                        publish_id=f"{self.published:032x}",
                        entry_id=entry_id,
                        batch_index=index if size > 1 else None,
                        batch_size=size,
                        partition=partition,
                        publish_time=instant,
                        **{
                            "payload": b"x",
                            "deliver_at_time": None if due[entry_id] is None else 1000 * due[entry_id],
                            **_key_columns(keys and keys[entry_id], index),
                            **chunk_rows.columns_of(chunks[entry_id] if chunks else None),
                            **columns,
                        },
                    )
                    for entry_id, size in enumerate(entries)
                    for index in range(size)
                ]
            )
        )
        ends = self.rounds.bundle.topic(topic)
        before = ends.end_position(partition)
        return list(range(before, before + len(entries)))

    def round(self, requests: list[dict], now_ms: int) -> dict:
        self.run(requests, now_ms)
        return self.committed()

    def run(self, requests: list[dict], now_ms: int) -> None:
        self.now_ms = now_ms
        self.rounds.run([_request(row) for row in requests], self.rounds.bundle.requests_version)

    def restart(self, now_ms: int) -> None:
        """Another broker takes over."""
        self.now_ms = now_ms
        self.start()
        self.rounds.take_over()

    def committed(self) -> dict:
        """What the rounds committed since the last look say: deliveries and replies."""
        deliveries, replies = [], []
        path = self.layout.broker_table("cursor_ledger")
        for version in range(self.read_version + 1, TableLog(path).latest(self.read_version) + 1):
            rows = read_round(path, version)
            self.latest.apply(rows)
            replies += [
                Reply(row["request_id"], row["consumer_id"], row["error"], row["text"])
                for row in rows.filter(pc.equal(rows["kind"], "reply")).to_pylist()
            ]
            deliveries += self._deliveries(rows)
            self.read_version = version
        return {"deliveries": sorted(deliveries, key=lambda delivery: delivery[:5]), "replies": replies}

    def _deliveries(self, rows) -> list[Delivery]:
        topics = {topic_id: topic for topic, topic_id in self.topic_ids.items()}
        positions = {
            (CursorKey(row["topic_id"], row["partition"], row["subscription"]), row["first"]): row["positions"]
            for row in rows.filter(pc.is_valid(rows["positions"])).to_pylist()
        }
        chunks = self._chunk_sets(rows)
        return [
            Delivery(
                topics[key.topic_id],
                key.partition,
                key.subscription,
                held.consumer_id,
                int(position),
                held.redelivery_count,
                held.ack_set,
                chunks.get((key, int(position))),
            )
            for key, ranges in ranges_by_cursor(rows.filter(pc.equal(rows["kind"], "range")))
            for held in filter(self._is_delivery, ranges)
            for position in positions.get((key, held.first), range(held.first, held.last + 1))
        ]

    def _chunk_sets(self, rows) -> dict[tuple[CursorKey, int], tuple[int, ...]]:
        """The chunks of the messages that ranges say they deliver, by cursor and last chunk."""
        topics, found = {topic_id: topic for topic, topic_id in self.topic_ids.items()}, {}
        for row in rows.filter(pc.is_valid(rows["chunks"])).to_pylist():
            key = CursorKey(row["topic_id"], row["partition"], row["subscription"])
            state = self.rounds.bundle.topic(topics[key.topic_id])
            for first, last in unpacked_pairs(row["chunks"]):
                found[key, last] = chunk_rows.chunk_set(state, key.partition, first, last)
        return found

    def _is_delivery(self, held: Range) -> bool:
        return held.status == PENDING and held.delivery_round == self.latest.round

    def state(self, topic: str, partition: int, subscription: str) -> dict:
        key = CursorKey(self.topic_ids[topic], partition, subscription)
        cursor = self.latest.cursors[key]
        ranges = self.latest.ranges(key)
        assert all(behind.first > held.last for held, behind in zip(ranges, ranges[1:])), f"ranges overlap: {ranges}"
        held_at, waits = due_rows.by_position(_in_micros(cursor), ranges, self.rounds.bundle.topic(topic), partition)
        waits |= {
            position: held.due_time
            for position, held in held_at.items()
            if held.status == REPLAY and held.due_time is not None
        }
        chunks = chunk_rows.chunks_of(self.rounds.bundle.topic(topic), partition)
        held_back = chunk_rows.of_unacknowledged(chunks, cursor, held_at)
        each, unacked = held_at.items(), {}
        for held in held_at.values():
            if held.status == PENDING:
                unacked[held.consumer_id] = unacked.get(held.consumer_id, 0) + held.unacked_messages
        return {
            "mark_delete_position": cursor["mark_delete_position"],
            "read_position": cursor["read_position"],
            "subscription_type": cursor["subscription_type"],
            "is_blocked": bool(cursor["is_blocked"]),
            "is_blocked_by_broker": cursor["status"] == BLOCKED_BY_BROKER,
            "acknowledged": as_ranges(
                {position for position, held in each if held.status == ACKNOWLEDGED and position not in held_back}
            ),
            "pending": {
                position: (held.consumer_id, held.redelivery_count, _ms(held.due_time))
                for position, held in each
                if held.status == PENDING
            },
            "replay": {
                position: held.redelivery_count
                for position, held in each
                if held.status == REPLAY and position not in waits
            },
            "waits": {position: _ms(due) for position, due in sorted(waits.items())},
            "ack_sets": {position: held.ack_set for position, held in each if held.ack_set is not None},
            "recently_joined": {
                consumer_id: row["read_position"]
                for consumer_id, row in self.latest.consumers[key].items()
                if row["read_position"] is not None
            },
            "consumers": {
                consumer_id: {
                    "permits": row["permits"],
                    "unacked": unacked.get(consumer_id, 0),
                    "is_active": row["is_active"],
                    "is_blocked": bool(row["is_blocked"]),
                }
                for consumer_id, row in sorted(self.latest.consumers[key].items())
            },
        }

    def waits_by_deliver_time(self, topic: str, partition: int, subscription: str) -> bool:
        """Does the subscription wait for deliver times?"""
        row = self.latest.cursors[CursorKey(self.topic_ids[topic], partition, subscription)]
        return row["due_since"] is not None

    def stats(self, topic: str, subscription: str) -> dict[str, int]:
        """What statistics say of a subscription of a topic without partitions."""
        observed = Observation(self.layout, _instant(self.now_ms))
        found, (partition,) = resolve_topic(self.layout, topic)
        said = partition_stats(observed, found, partition, observed.stored(found)[partition])
        return said["subscriptions"][subscription]

    def letters(self, topic: str, subscription: str) -> list[Letter]:
        """What the subscription's dead letter topic holds, by what its rows say of their origin."""
        state = self.rounds.bundle.topic(topic)
        return sorted(self._letter(state, row) for row in self._units(dead_letter_topic(topic, subscription)))

    def letters_put_off(self, topic: str, subscription: str) -> list[Letter]:
        """What its retry letter topic holds."""
        return sorted(self._letter(None, row) for row in self._units(retry_letter_topic(topic, subscription)))

    def _units(self, topic: str) -> list[dict]:
        """The rows of a topic, of chunked messages the last chunks; none may lack others."""
        return chunk_rows.whole_messages(self.rows(topic))

    def rows(self, topic: str) -> list[dict]:
        """The rows of a topic's table, properties as dicts; none for a topic that does not exist."""
        path = self.layout.topic(parse_topic_name(topic))
        if not path.exists():
            return []
        rows = dataset_of(path).to_table().to_pylist()
        return [row | {"properties": dict(row["properties"] or [])} for row in rows]

    def _letter(self, state, row: dict) -> Letter:
        if PLACE in row["properties"]:
            return Letter(*map(int, row["properties"][PLACE].split(",")), int(row["properties"][RECONSUME_TIMES]))
        ledger_id, entry_id, partition, batch_index = _unit(row["properties"][ORIGIN_MESSAGE_ID])
        (run,) = (
            run
            for run in state.ledgers(partition).runs
            if run.ledger_id == ledger_id and 0 <= entry_id - run.first_entry_id < run.entries
        )
        return Letter(partition, entry_id + run.to_position, batch_index, int(row["properties"][ATTEMPTS]))

    def subscriptions(self, topic: str) -> list[str]:
        return sorted({key.subscription for key in self.latest.cursors if key.topic_id == self.topic_ids[topic]})


def _request(row: dict) -> Request:
    parse_topic_name(row["topic"]) if row.get("topic") else None
    return Request(
        **{name: row.get(name) for name in Request._fields if name != "properties"},
        properties=dict(row.get("properties") or {}),
    )


def _key_columns(keys: tuple[Key, ...] | None, index: int) -> dict:
    """What message *index* of an entry carries: the last of *keys* where they are fewer."""
    key = keys[min(index, len(keys) - 1)] if keys else Key()
    return {
        "partition_key": key.partition_key,
        "ordering_key": key.ordering_key,
        "partition_key_b64_encoded": key.is_base64 or None,
    }


def _in_micros(cursor: dict) -> dict:
    """A row of a cursor with its instant as microseconds."""
    since = cursor.get("due_since")
    return cursor | {"due_since": since and to_micros(since)}


def _instant(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)


def _ms(micros: int | None) -> int | None:
    return None if micros is None else micros // 1000


def _unit(message_id: str) -> tuple[int, int, int, int]:
    """Ledger, entry, partition and batch index of an id as text; of a chunked message that of its last chunk."""
    return literal_eval(message_id.split(";")[-1])
