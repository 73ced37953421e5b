"""``python small_clients_process.py <root> <first> <clients> <messages>``: clients in a process of their own, for
tests.benchmarks.small_clients.

Each has a producer and a Shared consumer on a topic that it shares with nine others. A client alone sends a message at
a time, at irregular moments, many send one a second each. The process prints a line when all are connected, when all is
sent, what it measured, and when the rounds that delivered were committed; a line on its standard input starts each.
"""

import json
import os
import random
import sys
import threading
import time
from pathlib import Path

import pulsar_spark as pulsar
from pulsar_spark.storage.cursor_ledger.committed_rounds import read_round
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import Layout

SHARE = 10
PATIENCE_SECONDS = 120
_WARM_UP = 10


class _Pair:
    """A client with a producer and a consumer whose listener notes when each message came."""

    def __init__(self, root: str, number: int):
        self.client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=PATIENCE_SECONDS)
        topic = f"shared-{number // SHARE}"
        self.arrived: list[tuple[float, float, int]] = []
        self.producer = self.client.create_producer(topic)
        self.client.subscribe(topic, "s", pulsar.ConsumerType.Shared, message_listener=self._listen)

    def _listen(self, consumer, message) -> None:
        self.arrived.append((float(message.data()), time.time(), message.message_id().ledger_id()))
        consumer.acknowledge(message)

    def send_every_second(self, messages: int) -> None:
        began = time.monotonic() + random.Random(id(self)).uniform(0.0, 1.0)
        for number in range(messages):
            time.sleep(max(0.0, began + number - time.monotonic()))
            self.producer.send_async(repr(time.time()).encode(), None)
        self.producer.flush()

    def send_one_at_a_time(self, messages: int) -> None:
        pause = random.Random(1)
        for _ in range(messages):
            time.sleep(pause.uniform(0.1, 0.4))
            before = len(self.arrived)
            self.producer.send(repr(time.time()).encode())
            until = time.monotonic() + PATIENCE_SECONDS
            while len(self.arrived) == before and time.monotonic() < until:
                time.sleep(0.02)


def _when_committed(rounds: TableLog, after: int) -> dict[int, float]:
    """When the round appeared that numbered each publish commit."""
    found: dict[int, float] = {}
    numbered = 0
    for version in range(1, rounds.latest() + 1):
        rows = read_round(rounds.folder.parent, version, ["topic"]).to_pylist()
        until = max((row["ledger_id"] or 0 for row in rows), default=0)
        at = os.stat(rounds.file(version)).st_ctime
        found |= dict.fromkeys(range(numbered + 1, until + 1), at)
        numbered = max(numbered, until)
    return found


def main(root: str, first: int, clients: int, messages: int) -> None:
    pairs = [_Pair(root, first + number) for number in range(clients)]
    rounds = TableLog(Layout(Path(root)).broker_table("cursor_ledger"))
    if clients == 1:
        pairs[0].send_one_at_a_time(_WARM_UP)
        pairs[0].arrived.clear()
    _next("ready")
    processor, began = time.process_time(), rounds.latest()
    send = _Pair.send_one_at_a_time if clients == 1 else _Pair.send_every_second
    senders = [threading.Thread(target=send, args=(pair, messages)) for pair in pairs]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    _next("sent")
    until = time.monotonic() + PATIENCE_SECONDS
    while sum(len(pair.arrived) for pair in pairs) < clients * messages and time.monotonic() < until:
        time.sleep(0.05)
    arrived = [each for pair in pairs for each in pair.arrived]
    took, ended = time.process_time() - processor, rounds.latest()
    _next(json.dumps({"waited": [received - sent for sent, received, _ in arrived], "processor": took}))
    committed = _when_committed(rounds, began) if clients == 1 else {}
    after = [received - committed[ledger_id] for _, received, ledger_id in arrived if ledger_id in committed]
    print(json.dumps({"round": after, "rounds": ended - began}), flush=True)
    for pair in pairs:
        pair.client.close()


def _next(line: str) -> None:
    print(line, flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
