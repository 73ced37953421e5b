"""A workload of messages that wait for their deliver time, whose outcome is known to the last message, whatever happens
to their broker, or to the index of what waits, meanwhile.

One producer sends numbers, each with its deliver time, some soon, some later, some without; one consumer (Shared)
acknowledges all. Now and then somebody has the index made anew. Each number comes once, and none before its time.
"""

import random
import time
from collections import defaultdict

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from tests.broker.workload import LEASE_SECONDS, Account, received

TOPIC = "persistent://public/default/later"
WAITS_MS = (None, 0, 100, 400, 1_500)
REBUILD_EVERY = 7


class DelayedWorkload:
    """As :class:`tests.broker.workload.Workload`."""

    def __init__(self, root, patience_seconds: int):
        self._patience_seconds, self._chance, self._steps = patience_seconds, random.Random(1), 0
        self._admin = Admin(f"delta:{root}", timeout_seconds=patience_seconds)
        self._client = pulsar.Client(
            f"delta:{root}", operation_timeout_seconds=patience_seconds, lease_seconds=LEASE_SECONDS
        )
        self._due_ms: list[int] = []
        self._received: dict[int, list[int]] = defaultdict(list)
        self._early: list[int] = []

    def __enter__(self) -> "DelayedWorkload":
        self._consumer = self._client.subscribe(TOPIC, "work", consumer_type=pulsar.ConsumerType.Shared)
        self._producer = self._client.create_producer(TOPIC)
        return self

    def __exit__(self, *_):
        self._client.close()

    def step(self) -> None:
        """Send some numbers, and handle what has come."""
        self._steps += 1
        for wait_ms in self._chance.choices(WAITS_MS, k=8):
            due_ms = round(time.time() * 1000) + (wait_ms or 0)
            number, later = str(len(self._due_ms)).encode(), {} if wait_ms is None else {"deliver_at": due_ms}
            self._producer.send_async(number, None, **later)
            self._due_ms.append(0 if wait_ms is None else due_ms)
        self._producer.flush()
        if not self._steps % REBUILD_EVERY:
            self._admin.repair("delay-index")
        self._handle(20)

    def settle(self) -> None:
        """Handle what still comes, until everything expected is there, or nothing is for too long."""
        until = time.monotonic() + self._patience_seconds
        while self._handle(300) or ((self._missing() or self._left()) and time.monotonic() < until):
            """There may be more."""

    def account(self) -> Account:
        """What went wrong; call it when settled."""
        unexpected = [(number, counts) for number, counts in self._received.items() if counts != [0]]
        return Account(self._missing(), unexpected + self._early, [], self._left())

    def _left(self) -> dict[str, int]:
        found = self._admin.stats(TOPIC)["subscriptions"]["work"]
        return {name: found[name] for name in ("msgBacklog", "unackedMessages", "msgDelayed") if found[name]}

    def _missing(self) -> list[int]:
        return [number for number in range(len(self._due_ms)) if number not in self._received]

    def _handle(self, timeout_ms: int) -> int:
        count = 0
        while message := received(self._consumer, timeout_ms):
            number = int(message.data())
            if time.time() * 1000 < self._due_ms[number]:
                self._early.append(number)
            self._received[number].append(message.redelivery_count())
            self._consumer.acknowledge(message)
            count, timeout_ms = count + 1, 1
        return count
