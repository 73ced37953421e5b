"""A streaming query without Spark: it calls the data source's reader in the order of Spark's MicroBatchExecution, and
can be killed at every step. As in Spark, a micro-batch whose offset is logged is run again until it is committed."""

import copy
import json
import os
import pickle
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pulsar_spark.errors import SubscriptionNotFound
from tests.frames.source.reading import read_batch, source

STEPS = ("asked", "planned", "logged", "source committed", "partitioned", "half read", "read", "written", "committed")
"""What was done last when a query may be killed."""


class Killed(Exception):
    """The process of the query is gone."""


def killed_after(wanted: str) -> Callable[[str], None]:
    def after(step: str) -> None:
        if step == wanted:
            raise Killed(step)

    return after


@dataclass
class Checkpoint:
    """What a query has on the disk: offsets and commits by batch id."""

    offsets: list[str] = field(default_factory=list)
    commits: int = 0

    def log_offset(self, offset: dict) -> None:
        self.offsets.append(json.dumps(offset))

    def commit(self) -> None:
        self.commits += 1


@dataclass
class Sink:
    """Rows by batch id, as a Delta table keeps them; and every row that was ever written, as foreachBatch gets them."""

    batches: dict[int, list[dict]] = field(default_factory=dict)
    every: list[dict] = field(default_factory=list)

    def write(self, batch_id: int, rows: list[dict]) -> None:
        self.every += rows
        self.batches.setdefault(batch_id, rows)

    @property
    def payloads(self) -> list[bytes]:
        return [row["payload"] for _, rows in sorted(self.batches.items()) for row in rows]


class Query:
    """One life of a query. *after* is called with each step and raises :class:`Killed` to end the process."""

    def __init__(self, root, checkpoint: Checkpoint, sink: Sink, after: Callable[[str], None] = len, **options: object):
        made = source(root, **options)
        self.schema, self._checkpoint, self._sink, self._after = made.schema(), checkpoint, sink, after
        self.reader = made.streamReader(self.schema)
        self._tasks = pickle.loads(pickle.dumps(self.reader))  # planned before the query runs
        self.progress: dict | None = None

    def run(self, batches: int | None = None, *, available_now: bool = False) -> int:
        """Run micro-batches: so many, or until there is nothing to do; returns how many had data."""
        checkpoint, done = self._checkpoint, 0
        if available_now:
            self.reader.prepareForTriggerAvailableNow()
        limit = self.reader.getDefaultReadLimit()
        if len(checkpoint.offsets) > checkpoint.commits:
            self._run_batch()
            done += 1
        while batches is None or done < batches:
            start = self._offset(len(checkpoint.offsets) - 1)
            self._after("asked")
            end = self._through_json(self.reader.latestOffset(copy.deepcopy(start), limit))
            self.progress = self._through_json(self.reader.reportLatestOffset())
            self._after("planned")
            if end == start:
                if batches is None:
                    break
                continue
            checkpoint.log_offset(end)
            self._after("logged")
            if len(checkpoint.offsets) > 1:
                self.reader.commit(start)
                self._after("source committed")
            self._run_batch()
            done += 1
        return done

    def stop(self) -> None:
        self.reader.stop()

    def _run_batch(self) -> None:
        batch_id = self._checkpoint.commits
        start, end = self._offset(batch_id - 1), self._offset(batch_id)
        slices = pickle.loads(pickle.dumps(self.reader.partitions(start, end)))
        self._after("partitioned")
        rows: list[dict] = []
        for number, each in enumerate(slices):
            if number:
                self._after("half read")
            rows += [row for batch in self._tasks.read(each) for row in batch.to_pylist()]
        self._after("read")
        self._sink.write(batch_id, rows)
        self._after("written")
        self._checkpoint.commit()
        self._after("committed")

    def _offset(self, batch_id: int) -> dict:
        text = self._checkpoint.offsets[batch_id] if batch_id >= 0 else json.dumps(self.reader.initialOffset())
        return json.loads(text)

    def _through_json(self, offset: dict | None) -> dict | None:
        return json.loads(json.dumps(offset))

    def die(self, broker, *, is_seen: bool = True) -> None:
        """End as a killed process does: nothing is sent any more, and *broker* sees that the process is gone."""
        if self.reader._stream is not None:
            for consumer in self.reader._stream._consumers.values():
                channel = consumer.connection.channel
                with channel._condition:
                    channel._outbox.take_sources()
                    channel._outbox.take()
                channel.stop(60)
                if (
                    is_seen
                    and not consumer.connection.outlives
                    and consumer.receiver.consumer_id in consumers_of(broker)
                ):
                    broker.end_lease(consumer.receiver.consumer_id)
            self.reader._stream = None


class Files(Checkpoint, Sink):
    """Both in *folder*, for processes that are killed: a file for each offset, commit and micro-batch's payloads."""

    def __init__(self, folder: Path):
        offsets, commits, rows = (sorted(folder.glob(f"{kind}-*")) for kind in ("offset", "commit", "rows"))
        super().__init__([each.read_text() for each in offsets], len(commits))
        self.folder = folder
        self.batches = {
            number: [{"payload": text.encode()} for text in json.loads(each.read_text())]
            for number, each in enumerate(rows)
        }

    def _save(self, kind: str, number: int, value: object) -> None:
        path = self.folder / f"{kind}-{number:04}"
        if not path.exists():
            path.with_name("new").write_text(json.dumps(value))
            path.with_name("new").rename(path)

    def log_offset(self, offset: dict) -> None:
        self._save("offset", len(self.offsets), offset)
        super().log_offset(offset)

    def commit(self) -> None:
        self._save("commit", self.commits, None)
        super().commit()

    def write(self, batch_id: int, rows: list[dict]) -> None:
        self._save("rows", batch_id, [row["payload"].decode() for row in rows])


def run_and_kill(root: str, folder: Path, step: str | None, options: dict[str, object]) -> None:
    """Run a query whose disk is *folder* in this process until it has all that was published; SIGKILL ends the process
    after *step*."""

    def after(done: str) -> None:
        if done == step:
            os.kill(os.getpid(), signal.SIGKILL)

    files = Files(folder)
    query = Query(root, files, files, after, **options)
    query.run(available_now=True)
    query.stop()


def consumers_of(broker) -> set[str]:
    """The ids of all consumers that are connected."""
    with broker.paused():
        return {each for cursor in broker.rounds.bundle.cursors.values() for each in cursor.consumers}


def payloads_left(broker, topic: str, subscription: str) -> set[int]:
    """The messages, which are numbers, that *subscription* has not acknowledged; all of them without the
    subscription."""
    rows = read_batch(broker.layout.root, topic=topic).to_pylist()
    payloads = {(row["partition"], row["position"], row["batch_index"] or 0): int(row["payload"]) for row in rows}
    with suppress(SubscriptionNotFound):
        left = broker._left(topic, subscription)
        return {payloads[each.cursor.key.partition, each.position, max(0, each.batch_index)] for each in left}
    return {*payloads.values()}
