"""``python -m tests.benchmarks.past_client <folder> <messages>``: a client that receives and acknowledges so many
messages, one a publish commit, of a root that tests.benchmarks.past has written; nothing of a broker is in its process.
Prints its largest memory, and messages a second, as JSON."""

import json
import sys
import time

import pulsar_spark as pulsar

TOPIC = "persistent://public/default/past"
TIMEOUT_MS = 120_000


def receive(root: str, messages: int) -> dict[str, list[float]]:
    """The largest memory it took, and how many messages it had a second."""
    client, began = pulsar.Client(f"delta:{root}"), time.perf_counter()
    consumer = client.subscribe(
        TOPIC, "all", consumer_type=pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest
    )
    for _ in range(messages):
        consumer.acknowledge(consumer.receive(TIMEOUT_MS))
    rate = messages / (time.perf_counter() - began)
    client.close()
    return {"client_bytes": [largest_memory()], "client_rate": [rate]}


def largest_memory() -> int:
    """The most bytes of this process that were in memory at a time; ``getrusage`` counts what started it, too."""
    with open("/proc/self/status") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM"))


if __name__ == "__main__":
    print(json.dumps(receive(sys.argv[1], int(sys.argv[2]))))
