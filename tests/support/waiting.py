"""Sending, and waiting for another thread, with a deadline."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

import pulsar_spark as pulsar

DEADLINE_SECONDS = 300
"""Generous: a busy machine is slower, not wrong."""


def eventually(condition: Callable[[], object], seconds: float = DEADLINE_SECONDS) -> object:
    """What *condition* gives, as soon as it is true; AssertionError when it does not become so in so many *seconds*."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.005)
    raise AssertionError("it did not become true in time")


def in_background(broker, call: Callable, *arguments) -> Future:
    """*call* in a thread, once the broker has been asked something by it."""
    version, future = broker.requests_version(), Future()

    def run() -> None:
        try:
            future.set_result(call(*arguments))
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    eventually(lambda: broker.requests_version() > version)
    return future


def send(client, topic: str, *values: str) -> None:
    """Publish *values* to the topic, by a producer of their own."""
    producer = client.create_producer(topic)
    for value in values:
        producer.send(value.encode())
    producer.close()


def receive_values(consumer, count: int) -> list[str]:
    """The next *count* messages' payloads as text."""
    return [consumer.receive(DEADLINE_SECONDS * 1000).data().decode() for _ in range(count)]


def receive_of_any(consumers: list, count: int) -> list[str]:
    """The next *count* messages' payloads as text, whoever of the *consumers* gets them: who asks first has more."""
    values, deadline = [], time.monotonic() + DEADLINE_SECONDS
    while len(values) < count and time.monotonic() < deadline:
        for consumer in consumers:
            try:
                values.append(consumer.receive(20).data().decode())
            except pulsar.Timeout:
                continue
    return values


def nothing_comes(consumer, timeout_millis: int = 150) -> bool:
    """Whether no message comes within the time."""
    try:
        consumer.receive(timeout_millis)
    except pulsar.Timeout:
        return True
    return False
