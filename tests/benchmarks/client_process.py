"""``python -m tests.benchmarks.client_process <root> <topic> <subscription> <type> <way> <queue>``: one consumer in a
process of its own, for tests.benchmarks.client_rates.

Prints a line when it has subscribed, begins when a line comes on its standard input, receives and acknowledges until
nothing has come for :data:`QUIET_MS`, and prints what it counted as JSON. It takes the messages in one of these ways:
``each`` acknowledges each, ``tenth`` gives every tenth back when it comes for the first time, ``listener`` lets a
listener acknowledge each, ``batch`` takes and acknowledges lists.
"""

import json
import sys
import time
from collections.abc import Callable

import pulsar_spark as pulsar

QUIET_MS = 10_000
FIRST_MS = 60_000
BATCH = pulsar.ConsumerBatchReceivePolicy(1000, -1, QUIET_MS)


class Counted:
    """How many messages were received, how often again, and when the last one was, on the system's clock."""

    def __init__(self):
        self.messages, self.again, self.last = 0, 0, 0.0

    def add(self, message) -> None:
        if message.redelivery_count():
            self.again += 1
        else:
            self.messages += 1


def each(consumer, counted: Counted) -> None:
    """Receive and acknowledge one after the other."""
    receive, acknowledge, wait = consumer.receive, consumer.acknowledge, FIRST_MS
    try:
        while True:
            message = receive(wait)
            acknowledge(message)
            counted.add(message)
            wait = QUIET_MS
    except pulsar.Timeout:
        counted.last = time.time() - QUIET_MS / 1000


def tenth(consumer, counted: Counted) -> None:
    """Give every tenth message back once."""
    wait, number = FIRST_MS, 0
    try:
        while True:
            message = consumer.receive(wait)
            is_first = not message.redelivery_count()
            number += is_first
            if is_first and number % 10 == 0:
                consumer.negative_acknowledge(message)
            else:
                consumer.acknowledge(message)
            counted.add(message)
            wait = QUIET_MS
    except pulsar.Timeout:
        counted.last = time.time() - QUIET_MS / 1000


def batch(consumer, counted: Counted) -> None:
    """Receive and acknowledge lists."""
    while messages := consumer.batch_receive():
        consumer.acknowledge(messages)
        for message in messages:
            counted.add(message)
        counted.last = time.time()


def listen(counted: Counted) -> Callable:
    def take(consumer, message) -> None:
        consumer.acknowledge(message)
        counted.add(message)
        counted.last = time.time()

    return take


def wait_for_listener(counted: Counted) -> None:
    """Return when nothing came for :data:`QUIET_MS`."""
    counted.last = time.time() + FIRST_MS / 1000 - QUIET_MS / 1000
    while time.time() < counted.last + QUIET_MS / 1000:
        time.sleep(QUIET_MS / 10_000)


def main(root: str, topic: str, subscription: str, kind: str, way: str, queue: str) -> None:
    counted = Counted()
    client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=120)
    consumer = client.subscribe(
        topic,
        subscription,
        pulsar.ConsumerType[kind],
        message_listener=listen(counted) if way == "listener" else None,
        receiver_queue_size=int(queue),
        initial_position=pulsar.InitialPosition.Earliest,
        negative_ack_redelivery_delay_ms=100,
        batch_receive_policy=BATCH,
    )
    if way == "listener":
        consumer.pause_message_listener()
    print("ready", flush=True)
    sys.stdin.readline()
    if way == "listener":
        consumer.resume_message_listener()
        wait_for_listener(counted)
    else:
        {"each": each, "tenth": tenth, "batch": batch}[way](consumer, counted)
    client.close()
    print(json.dumps({"messages": counted.messages, "again": counted.again, "last": counted.last}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
