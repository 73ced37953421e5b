"""A broker as it runs, but for Spark: the query is a thread that calls one batch after the other, the plan is made
without it."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar, cast

from pyspark.sql import SparkSession

from pulsar_spark.broker import runner
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.planning.planner import Planner
from pulsar_spark.broker.requests.reading import RequestBatch, read_request_batch
from pulsar_spark.broker.requests.request import Request
from pulsar_spark.broker.service.micro_batches import CLOCK, LOOK_SECONDS
from pulsar_spark.broker.service.stream import Stream
from pulsar_spark.link.channel import Channel
from pulsar_spark.link.worker import live_workers
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.storage.clock import now_micros
from pulsar_spark.table_specs import REQUESTS, VALID_UNTIL
from pulsar_spark.testing.plain_planner import PlainPlanner

T = TypeVar("T")
BATCH_THREAD = "plain batches"


def said(request: Request) -> dict[str, str]:
    """The properties of a request, but for the instant until which it holds."""
    return {name: value for name, value in request.properties.items() if name != VALID_UNTIL}


class PlainPlans(PlainPlanner):
    def __init__(self, folder: Path):
        self.folder = folder

    def warm_up(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def end(self) -> None:
        """There is nothing to wait for."""


class PlainStream:
    def __init__(self, run_batch: Callable, stopping: threading.Event):
        self._run_batch, self._stopping = run_batch, stopping
        self._thread = threading.Thread(target=self._run, name=BATCH_THREAD, daemon=True)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._run_batch(None, 0)

    def start(self) -> None:
        self._thread.start()

    def supervise(self) -> None:
        self._stopping.wait()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._thread.join(60)


class PlainBroker(runner.Broker):
    """``with PlainBroker(root) as broker``; the end of the block raises what ended it.

    A test may hold its rounds back, let a consumer's lease end, let time pass, ask what was asked of it and what
    became of a cursor. Its clock is the machine's and what it was told to add. It keeps house where a test is of that,
    so that writes can be counted.
    """

    def __init__(self, root, **options):
        self._ahead = 0
        given = {"now": lambda: now_micros() + self._ahead, "housekeeping": False, **options}
        super().__init__(cast(SparkSession, None), root, **given)
        self._planner = cast(Planner, PlainPlans(self._planner.folder))
        self._stream = cast(Stream, PlainStream(self._batches.run, self._stopping))
        self._pause = threading.RLock()
        self._batches.run_round = self._between_pauses(self._batches.run_round)  # type: ignore[method-assign]
        self._batches.look = self._between_pauses(self._batches.look)  # type: ignore[method-assign]
        self._is_paused = False
        self._asked = RequestBatch([], 0, [])

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """No round runs in the block, and nobody looks whether one is due."""
        with self._pause:
            was_paused, self._is_paused = self._is_paused, True
            try:
                yield
            finally:
                self._is_paused = was_paused

    def _between_pauses(self, call: Callable[[], T]) -> Callable[[], T]:
        def run() -> T:
            with self._pause:
                return call()

        return run

    def requests_version(self) -> int:
        """The version of the latest requests that are committed."""
        return self._batches._requests_log.latest(self.rounds.bundle.requests_version)

    def requests(self) -> list[Request]:
        """All requests that are committed now, in order."""
        with self._pause:
            found = read_request_batch(self.layout.broker_table(REQUESTS.name), after=self._asked.version)
            self._asked = RequestBatch(self._asked.requests + found.requests, found.version, [])
            return list(self._asked.requests)

    def asked(self, *kinds: str) -> list[Request]:
        """The requests of these kinds that are committed now, when rounds have taken them in."""
        latest = self.requests_version()
        while self.rounds.bundle.requests_version < latest and not (self._is_paused or self._stopping.is_set()):
            if not self._batches._run_if_due():
                self._stopping.wait(LOOK_SECONDS)
        return [each for each in self.requests() if each.kind in kinds and (each.requests_version or 0) <= latest]

    def cursor(self, topic: str, subscription: str, partition: int = -1) -> Cursor:
        """What the broker keeps of a subscription, which there must be."""
        wanted = str(parse_topic_name(topic)), subscription, partition
        (found,) = (
            cursor
            for cursor in list(self.rounds.bundle.cursors.values())
            if (cursor.topic, cursor.key.subscription, cursor.key.partition) == wanted
        )
        return found

    def statuses(self, topic: str, subscription: str) -> dict[int, str]:
        """What became of each entry behind mark-delete that was delivered or acknowledged."""
        with self._pause:
            ranges = list(self.cursor(topic, subscription).ranges())
        return {position: each.status for each in ranges for position in range(each.first, each.last + 1)}

    def end_lease(self, consumer_id: str) -> None:
        """As if nothing had been heard of the consumer's client for too long: it is let go in a round of its own."""
        with self._pause:
            bundle = self.rounds.bundle
            (client_id,) = {
                cursor.consumers[consumer_id].client_id
                for cursor in bundle.cursors.values()
                if consumer_id in cursor.consumers
            }
            bundle.liveness.has_sign(client_id)
            bundle.leases[client_id] = bundle.now.own
            self.rounds.run([], bundle.requests_version)

    def keep_leases(self, micros: int) -> None:
        """Extend all leases by the time that is about to pass at once: every client was heard of in it."""
        leases = self.rounds.bundle.leases
        leases.update({client_id: until + micros for client_id, until in leases.items()})

    def advance(self, seconds: float) -> None:
        """Let so much time pass at once, in which every client was heard of."""
        micros = round(seconds * 1_000_000)
        with self._pause:
            self.keep_leases(micros)
            self._ahead += micros

    def settle(self) -> None:
        """Run rounds, and let clients send and hear, until nothing is left to do without time passing. No round runs
        inside :meth:`paused`."""
        before = None
        while before != (before := self._progress()):
            if not self._is_paused:
                self._run_rounds()
            for worker in live_workers():
                if isinstance(worker, Channel) and worker.root == self.layout.root:
                    exchange(worker)

    def _progress(self) -> tuple[int, int]:
        if self.failure is not None:
            raise self.failure
        return self.requests_version(), self.rounds.bundle.round

    def _run_rounds(self) -> None:
        """Run rounds until one that time alone was the reason for has no effect: a topic's new folder counts as changed
        for a while."""
        with self._batches.lock:
            while not self._stopping.is_set() and (moved := self._batches.look()):
                before = self.rounds.bundle.round
                self._batches._run_patiently()
                if self.rounds.bundle.round == before and all(each.log == CLOCK for each in moved):
                    return


def exchange(channel: Channel) -> None:
    """Let a client send all that it has gathered, and receive all rounds that are committed."""
    is_done = threading.Event()

    def look() -> list[dict]:
        channel._rounds.next_look = float("-inf")  # without waiting for a report
        channel.call_later(0, is_done.set)
        return []

    channel.gather(look, 0, is_urgent=True)
    while not is_done.wait(0.1) and channel.is_alive:
        pass
