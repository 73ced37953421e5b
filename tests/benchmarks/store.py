"""A root in an object store beside one on the disk: what a broker and a client at rest ask of the store, what messages
cost in calls, and how long one takes from publish to receive.

The store is an S3 server in a process of its own (``moto``), which answers in milliseconds: what counts are the calls,
which are the same with any store, and cost what that takes for one. Broker and client are in this process, so what both
ask is counted; rounds are planned without Spark, which asks nothing of the store.
"""

import contextlib
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator

import pulsar_spark as pulsar
from pulsar_spark.storage.layout import Layout
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.benchmarks.bench import Bench
from tests.benchmarks.figures import COUNT, PER_SECOND, SECONDS, Budget, Figure
from tests.support.object_store import asking, new_root

FAMILY = "store"
REST_SECONDS = 10
CALLS_AT_REST = Budget(42)
"""Of a broker 30, of a client with consumers 12."""
SERVER = """
import sys
from tests.support.object_store import s3_server
with s3_server() as url:
    print(url, flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def server() -> Iterator[str]:
    """The URL of a server that runs as long as the block."""
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.wait()


class _Served:
    """A root with a broker, a client, a producer and a Shared consumer."""

    def __init__(self, root: str, stack: contextlib.ExitStack):
        self.calls: Counter[str] = getattr(Layout(root).store, "calls", Counter())
        stack.enter_context(PlainBroker(root))
        self._client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=60)
        stack.callback(self._client.close)
        self._consumer = self._client.subscribe("t", "s", consumer_type=pulsar.ConsumerType.Shared)
        self._producer = self._client.create_producer("t")
        for _ in range(3):
            self.one()

    def one(self) -> float:
        """Seconds from a publish to its receipt, which is acknowledged."""
        began = time.perf_counter()
        self._producer.send(b"x" * 100)
        message = self._consumer.receive(60_000)
        took = time.perf_counter() - began
        self._consumer.acknowledge(message)
        return took

    def many(self, count: int) -> None:
        """So many messages, sent as they come and acknowledged as they are received."""
        for _ in range(count):
            self._producer.send_async(b"x" * 100, lambda *_: None)
        self._producer.flush()
        for _ in range(count):
            self._consumer.acknowledge(self._consumer.receive(60_000))

    def asked(self, since: Counter[str]) -> Counter[str]:
        return Counter(self.calls) - since


def measure(bench: Bench) -> Iterator[Figure]:
    singles, many = bench.few(10, 50), bench.few(200, 1000)
    with contextlib.ExitStack() as stack:
        local = _Served(str(bench.new_folder("store") / "root"), stack)
        bench.say("one message after the other on the disk")
        beside = [local.one() for _ in range(singles)]
    with server() as url, asking(url), contextlib.ExitStack() as stack:
        served = _Served(new_root(), stack)
        bench.say("one message after the other in the store")
        before = Counter(served.calls)
        times = [served.one() for _ in range(singles)]
        of_singles = served.asked(before)
        bench.say("many messages in the store")
        before = Counter(served.calls)
        served.many(many)
        of_many = served.asked(before)
        bench.say("at rest")
        before = Counter(served.calls)
        time.sleep(REST_SECONDS)
        at_rest = served.asked(before)
    yield Figure(FAMILY, "publish to receive, one at a time", SECONDS, times, "on the disk", beside)
    rate = [at_rest.total() / REST_SECONDS]
    yield Figure(FAMILY, f"calls at rest: {_by_kind(at_rest, REST_SECONDS)}", PER_SECOND, rate, budget=CALLS_AT_REST)
    of_one = [of_singles.total() / singles]
    yield Figure(FAMILY, f"calls for one message at a time: {_by_kind(of_singles, singles)}", COUNT, of_one)
    of_thousand = [1000 * of_many.total() / many]
    yield Figure(FAMILY, f"calls for 1,000 messages: {_by_kind(of_many, many / 1000)}", COUNT, of_thousand)


def _by_kind(calls: Counter[str], by: float) -> str:
    return ", ".join(f"{kind} {count / by:.1f}" for kind, count in calls.most_common())
