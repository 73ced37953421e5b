"""Rounds in this process: real tables and the broker's own prepared plan; only the stream is left out."""

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from pulsar_spark.broker.bundle.load_bundle import load_bundle
from pulsar_spark.broker.planning.planner import Planner
from pulsar_spark.broker.requests.request import requests_of
from pulsar_spark.broker.round import pipeline
from pulsar_spark.broker.round.rounds import RoundResult, Rounds
from pulsar_spark.protocol.topics.numbering import publish_id
from pulsar_spark.storage.clock import now_micros
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import create_topic, prepare_root
from pulsar_spark.table_specs import MESSAGES, REQUESTS
from tests.benchmarks.bench import PAYLOAD_BYTES, seconds
from tests.support.requests import On, request

PERMITS = 10**9
_LEASE_MS = 86_400_000


class RoundRig:
    """A root with topics and Shared subscriptions, without limits of unacknowledged messages, whose rounds are run and
    timed one by one."""

    def __init__(self, planner: Planner, root: Path, now: Callable[[], int] = now_micros):
        self.layout = Layout(root)
        prepare_root(self.layout)
        self.rounds = Rounds(load_bundle(self.layout), planner.run, now, "benchmark")
        self.rounds.take_over()
        self._tables: dict[str, AppendTable] = {}
        self._publishes = 0
        self.ask(
            [
                request(
                    "policy",
                    properties={"namespace": "public/default", "name": f"max_unacked_messages_per_{whose}", "value": 0},
                )
                for whose in ("consumer", "subscription")
            ]
        )

    def create_topic(self, name: str) -> str:
        """A topic without partitions; its full name."""
        topic = create_topic(self.layout, name)
        self._tables[str(topic.name)] = AppendTable(topic.path)
        return str(topic.name)

    def subscribe(self, topics: list[str], subscriptions: int = 1, with_permits: int | None = None) -> list[On]:
        """That many Shared subscriptions of each topic with a consumer each, of which the first *with_permits* (all by
        default) may be sent messages."""
        subscribed = [On(topic, subscription=f"s{number}") for topic in topics for number in range(subscriptions)]
        self.ask([on.subscribe("c", initial_position="Latest", lease_ms=_LEASE_MS) for on in subscribed])
        self.ask([on.flow("c", PERMITS) for on in subscribed[:with_permits]])
        return subscribed

    def append(self, topic: str, rows: pa.Table) -> None:
        """A publish commit of these rows."""
        self._tables[topic].append(rows)

    def publish(self, topic: str, messages: int, commits: int = 1) -> None:
        """*messages* in each of so many publish commits."""
        for _ in range(commits):
            self._publishes += 1
            self._tables[topic].append(_publish_rows(messages, self._publishes))

    def publish_keys(self, topic: str, hashes: np.ndarray) -> None:
        """A message with a key for each of *hashes*, in one publish commit."""
        self._publishes += 1
        rows = _publish_rows(len(hashes), self._publishes)
        for name, column in (("partition_key", pa.repeat("k", len(hashes))), ("sticky_key_hash", pa.array(hashes))):
            rows = rows.set_column(rows.schema.get_field_index(name), MESSAGES.schema.field(name), column)
        self._tables[topic].append(rows)

    def ask(self, requests: list[dict] | pa.Table) -> RoundResult:
        """One round over *requests*, which are read from rows of the table if they are none yet."""
        rows = requests if isinstance(requests, pa.Table) else REQUESTS.rows(requests)
        return self.rounds.run(requests_of(rows), self.rounds.bundle.requests_version)

    def timed_round(self) -> float:
        """Seconds of a round over what is new."""
        return seconds(lambda: self.ask([]))

    def timed_delivery(self, topic: str, messages: int, subscribed: list[On], commits: int = 1) -> float:
        """Publish, time the round that delivers, and acknowledge in another round, so that the next one finds the same
        state. Checks what was delivered."""
        end = self.rounds.bundle.topics[topic].end_position(-1)
        self.publish(topic, messages, commits)
        began = time.perf_counter()
        result = self.ask([])
        elapsed = time.perf_counter() - began
        if result.delivered_messages != messages * commits * len(subscribed):
            raise AssertionError(
                f"{result.delivered_messages} messages delivered, not {messages * commits} to each of "
                f"{len(subscribed)} subscriptions"
            )
        with self.silent():
            self.ask([on.ack(end, end + messages * commits - 1) for on in subscribed])
        return elapsed

    # Phases

    _phases: dict[str, list[float]] | None = None

    @contextlib.contextmanager
    def phases(self) -> Iterator[dict[str, list[float]]]:
        """Collects how long each phase of the rounds inside takes."""
        bundle, rounds, self._phases = self.rounds.bundle, self.rounds, defaultdict(list)
        with contextlib.ExitStack() as stack:
            for owner, name, phase in (
                (bundle, "scan", "look for topics"),
                (bundle, "number_new", "number"),
                (pipeline, "gather_work", "gather"),
                (rounds, "plan", "plan"),
                (pipeline, "absorb", "absorb"),
                (rounds.tables.cursor_ledger, "append_fenced", "commit"),
                (rounds.tables.ledgers, "append_fenced", "commit ledgers"),
            ):
                stack.enter_context(patch.object(owner, name, self._timed(getattr(owner, name), phase)))
            yield self._phases
        self._phases = None

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """Rounds inside are not counted among the phases."""
        phases, self._phases = self._phases, None
        yield
        self._phases = phases

    def _timed(self, function: Callable, phase: str) -> Callable:
        def timed(*args, **kwargs):
            began = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                if self._phases is not None:
                    self._phases[phase].append(time.perf_counter() - began)

        return timed


def median_parts(phases: dict[str, list[float]]) -> dict[str, float]:
    """The median of each phase."""
    return {phase: median(values) for phase, values in phases.items()}


def _publish_rows(messages: int, number: int) -> pa.Table:
    """One publish commit of *messages* entries as a client writes them."""
    now = datetime.now(timezone.utc)
    same = {
        "publish_id": publish_id(int(now.timestamp() * 1000), number),
        "batch_size": 1,
        "partition": -1,
        "payload": b"x" * PAYLOAD_BYTES,
        "publish_time": now,
        "producer_name": "benchmark",
    }

    def column(field: pa.Field) -> pa.Array:
        if field.name in ("entry_id", "sequence_id"):
            return pa.array(range(messages), field.type)
        return (
            pa.repeat(pa.scalar(same[field.name], field.type), messages)
            if field.name in same
            else pa.nulls(messages, field.type)
        )

    return pa.Table.from_arrays([column(field) for field in MESSAGES.schema], schema=MESSAGES.schema)
