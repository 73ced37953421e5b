"""The ``reprocessing`` table: which dead letters jobs have selected and sent back.

A job and its claims are one commit; so are a chunk and its sent letters, after publishing. A claimed letter is free
again only if its chunk is done without it.
"""

import json
from contextlib import AbstractContextManager
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.storage.delta.definitions import create_table
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import read_rows
from pulsar_spark.storage.delta.table_lock import lock_where_there_is_one
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.store.store import AnyPath
from pulsar_spark.table_specs import REPROCESSING

SELECTION = "selection"
"""Transaction of all commits that record a selection; none is recorded if another was since the table was read."""


class Claim(NamedTuple):
    destination: str
    chunk: int
    number: int
    message_id: str
    partition: int
    position: int
    subscription: str | None
    cause: str
    replays: int


class Job(NamedTuple):
    """A job as recorded. ``left`` counts unclaimed letters by cause and reason."""

    job_id: str
    topic: str
    topic_id: str
    job_time: datetime
    table_version: int
    settings: dict
    left: dict[str, dict[str, int]]


class Reprocessing:
    """The table of one root; empty until :meth:`create`."""

    def __init__(self, layout: Layout):
        self._layout = layout
        self.path: AnyPath = layout.root_table(REPROCESSING.name)

    def create(self) -> None:
        create_table(self.path, REPROCESSING)

    def exists(self) -> bool:
        return TableLog(self.path).exists()

    def planning(self) -> AbstractContextManager[None]:
        """Exclude other selections meanwhile, if the place has locks."""
        return lock_where_there_is_one(self._layout.root_table(f"{REPROCESSING.name}-plan"))

    def read_job(self, job_id: str) -> Job | None:
        found = self._rows(_of_job("job", job_id)).to_pylist()
        if not found:
            return None
        row, text = found[0], json.loads(found[0]["text"])
        return Job(
            job_id, row["topic"], row["topic_id"], row["job_time"], row["table_version"], text["settings"], text["left"]
        )

    def read_claims(self, job_id: str) -> list[Claim]:
        rows = self._rows(_of_job("claim", job_id)).select(Claim._fields)
        return sorted(Claim(**row) for row in rows.to_pylist())

    def read_chunks(self, job_id: str) -> dict[tuple[str, int], int]:
        """Letters sent per finished (destination, chunk)."""
        return {
            (row["destination"], row["chunk"]): row["letters"]
            for row in self._rows(_of_job("chunk", job_id)).to_pylist()
        }

    def read_sent(self, job_id: str) -> pa.Table:
        return self._rows(_of_job("sent", job_id))

    def read_taken(self, topic_id: str) -> set[str]:
        """Message ids of a topic's letters that jobs have sent or will send."""
        rows = self._rows(pc.field("topic_id") == topic_id)
        columns = (rows[name].to_pylist() for name in ("kind", "message_id", "job_id", "destination", "chunk"))
        steps = [(kind, message_id, tuple(chunk)) for kind, message_id, *chunk in zip(*columns)]
        done = {chunk for kind, _, chunk in steps if kind == "chunk"}
        return {
            message_id for kind, message_id, chunk in steps if kind == "sent" or (kind == "claim" and chunk not in done)
        }

    def version(self) -> int:
        return TableLog(self.path).latest()

    def record_job(self, job: Job, claims: list[Claim], known: int) -> None:
        """Record a job and its selection, unless another was recorded after version *known*."""
        common = dict(job_id=job.job_id, topic=job.topic, topic_id=job.topic_id, job_time=job.job_time)
        text = json.dumps({"settings": job.settings, "left": job.left}, sort_keys=True)
        rows = [
            dict(common, kind="job", table_version=job.table_version, text=text),
            *(dict(common, kind="claim", **claim._asdict()) for claim in claims),
        ]
        transactions = {f"job/{job.job_id}": 1, SELECTION: known + 1}
        AppendTable(self.path).append_after(known, REPROCESSING.rows(rows), transactions)

    def record_chunk(
        self, job: Job, destination: str, chunk: int, publish_id: str, sent: list[Claim], now: datetime
    ) -> None:
        """Record, once, a finished chunk and the letters sent."""
        common = dict(job_id=job.job_id, topic=job.topic, topic_id=job.topic_id, job_time=now, publish_id=publish_id)
        rows = [
            dict(common, kind="chunk", destination=destination, chunk=chunk, letters=len(sent)),
            *(dict(common, kind="sent", **claim._asdict()) for claim in sent),
        ]
        AppendTable(self.path).append_once(REPROCESSING.rows(rows), f"job/{job.job_id}/{destination}", chunk)

    def _rows(self, of: pc.Expression) -> pa.Table:
        if not self.exists():
            return REPROCESSING.schema.empty_table()
        return read_rows(self.path, REPROCESSING.schema.names, of).cast(REPROCESSING.schema)


def _of_job(kind: str, job_id: str) -> pc.Expression:
    return (pc.field("kind") == kind) & (pc.field("job_id") == job_id)
