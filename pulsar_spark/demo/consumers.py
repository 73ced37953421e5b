"""One consumer of the demo, in its own process without Spark: it receives, writes notes, then acknowledges.

Notes are fixed-size records, so a killed process leaves a true account. At ``pause_at`` messages (0 = never) the
consumer stops before acknowledging, until it gets ``leave`` or ``go on``, or is killed. Messages that ``handler``
refuses die after :data:`REDELIVERIES` more attempts.
"""

import json
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import numpy as np

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.errors import PulsarSparkError

NOTE = np.dtype(
    [
        ("flight", "i8"),
        ("ledger", "i8"),
        ("entry", "i8"),
        ("partition", "i4"),
        ("redelivery_count", "i4"),
        ("is_repaired", "?"),
        ("time", "i8"),
    ]
)
"""The note of a delivery; ``time`` in nanoseconds by a clock that all processes share."""


QUEUE_SIZE = 50_000


class Assignment(NamedTuple):
    """The consumer's settings."""

    service_url: str
    topic: str
    subscription: str
    subscription_type: str
    name: str
    notes: Path
    batch: int
    pause_at: int
    is_cumulative: bool
    handler: Callable[[dict], None] | None = None
    queue_size: int = QUEUE_SIZE


class Pause(NamedTuple):
    """Messages received, and acknowledged."""

    received: int
    acknowledged: int


CONNECT_SECONDS = 180
LEASE_SECONDS = 10
REDELIVERIES = 2
_REDELIVERY_DELAY_MS = 300
_LOOK_SECONDS = 0.1
READY = "ready"


def run_consumer(assignment: Assignment, parent: Connection) -> None:
    """Consume until ``stop`` or ``leave``; send :data:`READY` when subscribed, or the error that ended it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _run(assignment, parent)
    except PulsarSparkError as error:
        parent.send(error)


def _run(assignment: Assignment, parent: Connection) -> None:
    _wait_for_broker(assignment.service_url)
    client = pulsar.Client(
        assignment.service_url, operation_timeout_seconds=CONNECT_SECONDS, lease_seconds=LEASE_SECONDS
    )
    has_letters = assignment.handler is not None
    consumer = client.subscribe(
        assignment.topic,
        assignment.subscription,
        consumer_type=pulsar.ConsumerType[assignment.subscription_type],
        consumer_name=assignment.name,
        initial_position=pulsar.InitialPosition.Earliest,
        receiver_queue_size=assignment.queue_size,
        batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(assignment.batch, -1, 100),
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(REDELIVERIES) if has_letters else None,
        retry_enable=has_letters,
        negative_ack_redelivery_delay_ms=_REDELIVERY_DELAY_MS,
    )
    parent.send(READY)
    received = acknowledged = 0
    pause_at = assignment.pause_at
    with assignment.notes.open("ab", buffering=0) as notes:
        while not parent.poll():
            messages = consumer.batch_receive()
            flights = [json.loads(message.data()) for message in messages]
            notes.write(_notes(messages, flights))
            received += len(messages)
            if pause_at and received >= pause_at:
                pause_at = 0
                parent.send(Pause(received, acknowledged))
                if parent.recv() == "leave":
                    break
            if assignment.handler is None:
                _acknowledge(consumer, messages, assignment.is_cumulative)
            else:
                _handle(consumer, messages, flights, assignment.handler)
            acknowledged += len(messages)
    consumer.close()
    client.close()


def _wait_for_broker(service_url: str) -> None:
    """Clients without one log warnings."""
    deadline, admin = time.monotonic() + CONNECT_SECONDS, Admin(service_url)
    while admin.broker_status() is None and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)


def read_notes(path: Path) -> np.ndarray:
    """The complete records."""
    data = path.read_bytes() if path.exists() else b""
    return np.frombuffer(data[: len(data) // NOTE.itemsize * NOTE.itemsize], NOTE)


def _notes(messages: list["pulsar.Message"], flights: list[dict]) -> bytes:
    now = time.monotonic_ns()

    def note(message: pulsar.Message, flight: dict) -> tuple:
        message_id = message.message_id()
        return (
            flight["id"],
            message_id.ledger_id(),
            message_id.entry_id(),
            message_id.partition(),
            message.redelivery_count(),
            "repaired" in flight,
            now,
        )

    return np.array(list(map(note, messages, flights)), NOTE).tobytes()


def _acknowledge(consumer: "pulsar.Consumer", messages: list["pulsar.Message"], is_cumulative: bool) -> None:
    if is_cumulative:
        for message in {message.message_id().partition(): message for message in messages}.values():
            consumer.acknowledge_cumulative(message)
    else:
        for message in messages:
            consumer.acknowledge(message)


def _handle(
    consumer: "pulsar.Consumer", messages: list["pulsar.Message"], flights: list[dict], handler: Callable[[dict], None]
) -> None:
    for message, flight in zip(messages, flights):
        try:
            handler(flight)
        except ValueError:
            consumer.negative_acknowledge(message)
        else:
            consumer.acknowledge(message)


def bill(flight: dict) -> None:
    """ValueError for a flight without a tail number."""
    if flight.get("tailnum") is None:
        raise ValueError(f"flight {flight['id']} has no tail number")
