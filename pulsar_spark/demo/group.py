"""Runs the consumers of one subscription, each in a process, and makes some of them fail."""

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np

from pulsar_spark.demo.broker_process import BrokerProcess
from pulsar_spark.demo.consumers import QUEUE_SIZE, READY, Assignment, Pause, read_notes, run_consumer
from pulsar_spark.errors import NotConnected, PulsarSparkError, Timeout
from pulsar_spark.protocol.delays.durations import shown_seconds

_STOP_SECONDS = 60


class ConsumerGroup:
    """Context manager.

    At *leave_at* messages a consumer closes with a batch unacknowledged. At *kill_at* the first consumer is killed.
    After each accident one of *joiners* more consumers joins. Messages refused by *handler* are given back (see
    ``consumers``).
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
        joiners: int = 0,
        handler: Callable[[dict], None] | None = None,
        queue_size: int = QUEUE_SIZE,
    ):
        self.subscription, self.kind, self.topic = subscription, kind, topic
        self.closed_after: dict[int, int] = {}
        self.gone: set[int] = set()
        self._victim = 0 if kill_at else None
        self._kills, self._leaves, self._joining = bool(kill_at), bool(leave_at), 0
        pauses = [kill_at or leave_at, *[leave_at] * (consumers - 1), *[0] * joiners]
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
                queue_size,
            )
            for index, pause in enumerate(pauses)
        ]
        self._at_once = consumers
        self._processes: list[BaseProcess] = []
        self._links: list[Connection] = []

    def __enter__(self) -> "ConsumerGroup":
        for _ in range(self._at_once):
            self._start_next()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            if process.is_alive():
                process.kill()
            process.join()

    def _start_next(self) -> None:
        context = multiprocessing.get_context("spawn")
        mine, theirs = context.Pipe()
        assignment = self._assignments[len(self._processes)]
        process = context.Process(target=run_consumer, args=(assignment, theirs), daemon=True)
        process.start()
        theirs.close()
        self._links.append(mine)
        self._processes.append(process)

    @property
    def is_waiting(self) -> bool:
        """Whether an accident or a consumer joining is to come."""
        return self._kills or self._leaves or self._joining > 0

    def wait_ready(self, broker: BrokerProcess, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for index, link in enumerate(self._links):
            while not link.poll(0.2):
                broker.check()
                self._check_alive(index)
                if time.monotonic() > deadline:
                    raise Timeout(
                        f"consumer {self._assignments[index].name} was not connected within {shown_seconds(seconds)}; "
                        f"the broker's last words:\n{broker.last_words()}"
                    )
            self._report_of(index)

    def watch(self) -> list[str]:
        """Give pausing consumers their accident or let them continue; return a sentence per event."""
        happened = []
        for index, link in enumerate(list(self._links)):
            if index in self.gone:
                continue
            self._check_alive(index)
            if not link.poll():
                continue
            report = self._report_of(index)
            if report == READY:
                self._joining -= 1
                happened.append(f"{self._assignments[index].name} joined")
            elif index == self._victim:
                happened.append(self._kill(index, report.received))
            elif self._leaves:
                happened.append(self._leave(index, report))
            else:
                link.send("go on")
        return happened

    def stop(self) -> None:
        for index, link in enumerate(self._links):
            if index not in self.gone:
                link.send("stop")
        for index, process in enumerate(self._processes):
            process.join(_STOP_SECONDS)
            if process.exitcode and not (index in self.gone and index not in self.closed_after):
                raise self._ended(index)

    def notes(self) -> list[np.ndarray]:
        return [read_notes(assignment.notes) for assignment in self._assignments]

    def _kill(self, index: int, received: int) -> str:
        self._kills = False
        self._processes[index].kill()
        self._is_gone(index)
        return f"{self._assignments[index].name} was killed after {received} messages, without closing"

    def _leave(self, index: int, pause: Pause) -> str:
        self._leaves = False
        self._links[index].send("leave")
        self.closed_after[index] = pause.acknowledged
        self._is_gone(index)
        unacknowledged = pause.received - pause.acknowledged
        who = f"{self._assignments[index].name}{', the active consumer,' if self.kind == 'Failover' else ''}"
        return f"{who} left after {pause.received} messages, {unacknowledged} of them unacknowledged"

    def _is_gone(self, index: int) -> None:
        self.gone.add(index)
        if len(self._processes) < len(self._assignments):
            self._joining += 1
            self._start_next()

    def _report_of(self, index: int) -> Any:
        """:data:`READY` or a :class:`Pause`; raises the error that ended the consumer."""
        try:
            report = self._links[index].recv()
        except EOFError:
            self._processes[index].join()
            raise self._ended(index) from None
        if isinstance(report, PulsarSparkError):
            raise report
        return report

    def _check_alive(self, index: int) -> None:
        if not self._processes[index].is_alive() and not self._links[index].poll():
            raise self._ended(index)

    def _ended(self, index: int) -> NotConnected:
        name, code = self._assignments[index].name, self._processes[index].exitcode
        return NotConnected(f"consumer {name} ended with exit code {code}")
