"""``python -m tests.benchmarks.small_process <send | drain> <root> <topic> ...``: one client in its own process, for
tests.benchmarks.small. Prints ``ready``, begins when a line comes on its standard input, and prints JSON.

``send ... <messages> <threads>``: threads of one producer send one at a time, with a key each.
``drain ... <subscription> <type> <messages>``: receives and acknowledges each.
"""

import json
import sys
import threading
import time

import pulsar_spark as pulsar
from tests.benchmarks.bench import PAYLOAD_BYTES, peak_memory

TIMEOUT_MS = 120_000
KEYS = 100
_WARM_UP = 20


def send(client: pulsar.Client, topic: str, messages: str, threads: str) -> dict[str, float]:
    """Messages a second, and processor seconds of this process a message."""
    producer = client.create_producer(topic)
    each = int(messages) // int(threads)

    def run(count: int) -> None:
        for number in range(count):
            producer.send(b"x" * PAYLOAD_BYTES, partition_key=f"key-{number % KEYS}")

    run(_WARM_UP)
    senders = [threading.Thread(target=run, args=(each,)) for _ in range(int(threads))]
    _await_start()
    began, processor = time.time(), time.process_time()
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    ended, sent = time.time(), each * len(senders)
    return {"messages": sent, "processor": (time.process_time() - processor) / sent, "began": began, "ended": ended}


def drain(client: pulsar.Client, topic: str, subscription: str, kind: str, messages: str) -> dict[str, float]:
    """Messages a second, and the most memory of this process."""
    consumer = client.subscribe(
        topic, subscription, pulsar.ConsumerType[kind], initial_position=pulsar.InitialPosition.Earliest
    )
    _await_start()
    began, processor = time.time(), time.process_time()
    for _ in range(int(messages)):
        consumer.acknowledge(consumer.receive(TIMEOUT_MS))
    ended, took = time.time(), time.process_time() - processor
    consumer.close()
    return {
        "messages": int(messages),
        "processor": took / int(messages),
        "began": began,
        "ended": ended,
        "memory": peak_memory(),
    }


def _await_start() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def main(what: str, root: str, *given: str) -> None:
    client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=TIMEOUT_MS // 1000)
    found = {"send": send, "drain": drain}[what](client, *given)
    client.close()
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
