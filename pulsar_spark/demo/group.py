"""The consumers of one subscription, each in a process, and the accident that befalls one of them."""

import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pulsar_spark.demo.broker_process import BrokerProcess
from pulsar_spark.demo.consumers import Assignment, read_notes, run_consumer
from pulsar_spark.errors import NotConnected, PulsarSparkError, Timeout

_STOP_SECONDS = 60


class ConsumerGroup:
    """A context: the consumers run inside it.

    With *leave_at* the first consumer that received so many messages leaves, closing with a batch unacknowledged. With
    *kill_at* the first consumer is killed at that point, without a word to the broker. With a *handler* messages that
    make it raise are given back (see ``consumers``).
    """

    def __init__(
        self,
        subscription: str,
        kind: str,
        topic: str,
        consumers: int,
        *,
        service_url: str,
        work: Path,
        batch: int,
        is_cumulative: bool,
        leave_at: int = 0,
        kill_at: int = 0,
        handler: Callable[[dict], None] | None = None,
    ):
        self.subscription, self.kind, self.topic = subscription, kind, topic
        self.closed_after: dict[int, int] = {}
        self._kill_at = kill_at
        self.is_waiting = bool(leave_at or kill_at)
        pauses = [kill_at] + [0] * (consumers - 1) if kill_at else [leave_at] * consumers
        self._assignments = [
            Assignment(
                service_url,
                topic,
                subscription,
                kind,
                f"{subscription}-{index}",
                work / f"{subscription}-{index}.notes",
                batch,
                pause,
                is_cumulative,
                handler,
            )
            for index, pause in enumerate(pauses)
        ]
        self._processes: list[multiprocessing.Process] = []
        self._links: list = []
        self._gone: set[int] = set()

    def __enter__(self) -> "ConsumerGroup":
        context = multiprocessing.get_context("spawn")
        for assignment in self._assignments:
            mine, theirs = context.Pipe()
            process = context.Process(target=run_consumer, args=(assignment, theirs), daemon=True)
            process.start()
            theirs.close()
            self._links.append(mine)
            self._processes.append(process)
        return self

    def __exit__(self, *_):
        for process in self._processes:
            if process.is_alive():
                process.kill()
            process.join()

    def wait_ready(self, broker: BrokerProcess, seconds: float) -> None:
        """Wait until every consumer is subscribed."""
        deadline = time.monotonic() + seconds
        for index, link in enumerate(self._links):
            while not link.poll(0.2):
                broker.check()
                self._check_alive(index)
                if time.monotonic() > deadline:
                    raise Timeout(
                        f"consumer {self._assignments[index].name} was not connected within {seconds:g} s; "
                        f"the broker's last words:\n{broker.last_words()}"
                    )
            self._hear(index)

    def watch(self) -> str | None:
        """Look after the consumers: who pauses meets its accident or is sent on. A sentence when an accident
        happened."""
        happened = None
        for index, link in enumerate(self._links):
            if index in self._gone:
                continue
            self._check_alive(index)
            if link.poll():
                pause = self._hear(index)
                if not self.is_waiting:
                    link.send("go on")
                    continue
                self.is_waiting = False
                self._gone.add(index)
                happened = self._kill(index, pause.received) if self._kill_at else self._leave(index, pause)
        return happened

    def stop(self) -> None:
        """Tell the consumers to close and wait until they have."""
        for index, link in enumerate(self._links):
            if index not in self._gone:
                link.send("stop")
        for index, process in enumerate(self._processes):
            process.join(_STOP_SECONDS)
            if process.exitcode and not (self._kill_at and index in self._gone):
                raise NotConnected(f"consumer {self._assignments[index].name} ended with exit code {process.exitcode}")

    def notes(self) -> list[np.ndarray]:
        """What each consumer wrote down."""
        return [read_notes(assignment.notes) for assignment in self._assignments]

    def _kill(self, index: int, received: int) -> str:
        self._processes[index].kill()
        return f"{self._assignments[index].name} was killed after {received} messages, without closing"

    def _leave(self, index: int, pause) -> str:
        self._links[index].send("leave")
        self.closed_after[index] = pause.acknowledged
        held = pause.received - pause.acknowledged
        name = self._assignments[index].name
        return f"{name}, the active consumer, left after {pause.received} messages, {held} of them unacknowledged"

    def _hear(self, index: int):
        try:
            said = self._links[index].recv()
        except EOFError:
            self._processes[index].join()
            raise NotConnected(
                f"consumer {self._assignments[index].name} ended with exit code {self._processes[index].exitcode}"
            ) from None
        if isinstance(said, PulsarSparkError):
            raise said
        return said

    def _check_alive(self, index: int) -> None:
        if not self._processes[index].is_alive() and not self._links[index].poll():
            raise NotConnected(
                f"consumer {self._assignments[index].name} ended with exit code {self._processes[index].exitcode}"
            )
