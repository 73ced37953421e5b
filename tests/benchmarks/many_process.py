"""``python -m tests.benchmarks.many_process <root> <number> <clients> <messages>``: clients in a process of their own,
for tests.benchmarks.many_clients.

Each client has a producer and a Shared consumer on a topic that it shares with nine others. The process prints a line
when all are connected and begins when a line comes on its standard input; then each client sends a message a second
and receives and acknowledges what comes to it. When a second line comes it waits until all that was sent has come, two
minutes at most, and prints how many seconds each message took.
"""

import json
import random
import sys
import threading
import time

import pulsar_spark as pulsar

SHARE = 10
PATIENCE_SECONDS = 120


class _Pair:
    """A client with a producer and a listener that notes how long each message took."""

    def __init__(self, root: str, number: int, waited: list[float]):
        self.client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=PATIENCE_SECONDS)
        topic = f"shared-{number // SHARE}"
        self.producer = self.client.create_producer(topic)
        self.client.subscribe(topic, "s", pulsar.ConsumerType.Shared, message_listener=self._listen)
        self._waited = waited

    def _listen(self, consumer, message) -> None:
        self._waited.append(time.time() - float(message.data()))
        consumer.acknowledge(message)

    def send(self, messages: int) -> None:
        pause = random.Random(id(self))
        began = time.monotonic() + pause.uniform(0.0, 1.0)
        for number in range(messages):
            time.sleep(max(0.0, began + number - time.monotonic()))
            self.producer.send_async(repr(time.time()).encode(), None)
        self.producer.flush()


def main(root: str, first: int, clients: int, messages: int) -> None:
    waited: list[float] = []
    pairs = [_Pair(root, first + number, waited) for number in range(clients)]
    print("ready", flush=True)
    sys.stdin.readline()
    senders = [threading.Thread(target=pair.send, args=(messages,)) for pair in pairs]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    print("sent", flush=True)
    sys.stdin.readline()
    patient_until = time.monotonic() + PATIENCE_SECONDS
    while len(waited) < clients * messages and time.monotonic() < patient_until:
        time.sleep(0.05)
    print(json.dumps(waited), flush=True)
    for pair in pairs:
        pair.client.close()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
