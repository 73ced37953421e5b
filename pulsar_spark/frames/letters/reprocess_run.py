"""One run of a job that sends dead letters back (see ``frames.letters.reprocess``)."""

import hashlib
import json
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.progress import Progress

from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.frames.letters.dead_letters import read_letters
from pulsar_spark.frames.letters.reprocess_chunk import Fix, fixed_letters, published_numbers, rows_to_send
from pulsar_spark.frames.letters.reprocess_plan import ORIGIN, REASONS, SUBSCRIPTION, TOPIC, Letter, plan_letters
from pulsar_spark.frames.letters.retry_subscription import prepare_retry_topic
from pulsar_spark.frames.publishing.producer import publish
from pulsar_spark.protocol.redelivery.letters import REPROCESSED
from pulsar_spark.protocol.topics.numbering import publish_id
from pulsar_spark.protocol.topics.routing import Scheme
from pulsar_spark.storage.cursor_ledger.reprocessing import Claim, Job, Reprocessing
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.entries.slices import PositionRange
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.session import local_frame
from pulsar_spark.storage.topics.topics import Topic, resolve_topic

COUNTS = ("matched", "selected", "sent", "dropped_by_fix", *REASONS)
"""The counts of a report, in all and for each cause."""
log = logging.getLogger(__name__)


class Reprocessed(NamedTuple):
    """What a job did with the letters it selected. ``causes`` has these counts for each cause of death."""

    job_id: str
    topic: str
    is_dry_run: bool
    matched: int
    """letters that meet the conditions"""
    selected: int
    """letters among them to be sent; the others are in the ``left`` counts"""
    sent: int
    """letters sent in all runs of the job; 0 in a dry run"""
    dropped_by_fix: int
    left_by_guard: int
    """letters that were sent back as often as allowed"""
    taken_before: int
    """letters that another job has sent or selected"""
    without_origin: int
    """letters without an origin"""
    unreadable: int
    """chunked letters whose chunks contradict their stated size"""
    causes: dict[str, dict[str, int]]
    destinations: dict[str, int]
    """letters selected, by destination topic"""


class Selection(NamedTuple):
    where: str | Column | None
    since: datetime | None
    until: datetime | None
    keys: Sequence[str] | None
    chunk_letters: int

    def of(self, letters: DataFrame) -> DataFrame:
        if self.where is not None:
            try:
                letters = letters.filter(self.where)
            except (AnalysisException, ParseException) as wrong:
                raise InvalidConfiguration(f"where {str(self.where)!r}: {str(wrong).splitlines()[0]}") from wrong
        if self.since is not None:
            letters = letters.filter(F.col("publish_time") >= F.lit(self.since))
        if self.until is not None:
            letters = letters.filter(F.col("publish_time") < F.lit(self.until))
        return letters if self.keys is None else letters.filter(F.col("partition_key").isin(*self.keys))


class Chosen(NamedTuple):
    job: Job
    claims: list[Claim]


class Run:
    """A run of the job *job_id* on the dead letter topic *topic*; *settings* are the job's, as its row stores them."""

    def __init__(
        self,
        spark: SparkSession,
        layout: Layout,
        topic: Topic,
        job_id: str,
        settings: dict,
        fix: Fix | None,
        scheme: Scheme,
        clock: Callable[[], datetime],
    ):
        self._spark, self._layout, self._topic, self._job_id, self._settings = spark, layout, topic, job_id, settings
        self._fix, self._scheme, self._clock = fix, scheme, clock
        self._table = Reprocessing(layout)

    def try_out(self, selecting: Selection) -> Reprocessed:
        job, claims = planned = self._plan(selecting)
        dropped: Counter[str] = Counter()
        if self._fix is not None and claims:
            fixed = fixed_letters(self._letters(job, claims), self._fix)
            kept = {row.message_id for row in fixed.select("message_id").collect()}
            dropped = Counter(claim.cause for claim in claims if claim.message_id not in kept)
        return _report(planned, True, Counter(), dropped)

    def choose(self, selecting: Selection) -> Chosen:
        self._table.create()
        with self._table.planning():
            known = self._table.version()  # read first, so that a job recorded after the look is noticed, too
            while (job := self._table.read_job(self._job_id)) is None:
                self._table.record_job(*self._plan(selecting), known)
                known = self._table.version()
        if job.topic_id != self._topic.topic_id:
            raise InvalidConfiguration(
                f"job {self._job_id!r} was for topic {job.topic!r} before it was deleted and created "
                "again: choose another job id"
            )
        changed = sorted(name for name, value in self._settings.items() if job.settings[name] != value)
        if changed:
            raise InvalidConfiguration(
                f"job {self._job_id!r} was started with another {' and '.join(changed)}: give the same value, "
                "or choose another job id"
            )
        return Chosen(job, self._table.read_claims(self._job_id))

    def _plan(self, selecting: Selection) -> Chosen:
        version = TableLog(self._topic.path).latest()
        letters = selecting.of(read_letters(self._spark, self._layout, self._topic, version))
        facts = letters.select(*Letter._fields).toArrow().to_pylist()
        planned = plan_letters(
            (Letter(**fact) for fact in facts),
            self._table.read_taken(self._topic.topic_id),
            topic=str(self._topic.name),
            chunk_letters=selecting.chunk_letters,
            **{name: self._settings[name] for name in ("to", "max_replays", "limit")},
        )
        if planned.unreadable:
            first = planned.unreadable[0]
            log.warning(
                "job %s: %d letters of topic %r cannot be put together and stay where they are, the first is %s: %s",
                self._job_id,
                len(planned.unreadable),
                str(self._topic.name),
                first.message_id,
                first.payload_error,
            )
        name, topic_id = str(self._topic.name), self._topic.topic_id
        job = Job(self._job_id, name, topic_id, self._clock(), version, self._settings, planned.left)
        return Chosen(job, planned.claims)

    def prepare(self, claims: list[Claim], timeout: float) -> None:
        """Ensure that each destination with unsent chunks exists; :class:`TopicNotFound` for a deleted origin."""
        done = self._table.read_chunks(self._job_id)
        subscriptions = {
            claim.destination: claim.subscription for claim in claims if (claim.destination, claim.chunk) not in done
        }
        for name, subscription in sorted(subscriptions.items()):
            if self._settings["to"] == SUBSCRIPTION and subscription is not None:
                prepare_retry_topic(self._layout, name, subscription, timeout)
            else:
                resolve_topic(self._layout, name, create=self._settings["to"].startswith(TOPIC))

    def send(self, chosen: Chosen, rate: float | None, wait: Callable[[float], None]) -> None:
        claims = chosen.claims
        done = self._table.read_chunks(self._job_id)
        console = Console(stderr=True)
        started, sent = time.monotonic(), 0
        with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
            task = progress.add_task(f"letters of job {self._job_id}", total=len(claims))
            for (destination, chunk), group in groupby(claims, key=lambda claim: (claim.destination, claim.chunk)):
                of_chunk = list(group)
                if (destination, chunk) not in done:
                    if rate and sent:
                        wait(max(0.0, started + sent / rate - time.monotonic()))
                    self._send_chunk(chosen.job, destination, chunk, of_chunk)
                    sent += len(of_chunk)
                progress.advance(task, len(of_chunk))

    def _send_chunk(self, job: Job, destination: str, chunk: int, claims: list[Claim]) -> None:
        app_id = f"reprocess/{self._job_id}/{destination}"
        identity = hashlib.sha256(json.dumps([app_id, chunk, self._topic.topic_id]).encode()).digest()[:10]
        identifier = publish_id(int(job.job_time.timestamp() * 1000), int.from_bytes(identity) >> 6)
        found, partitions = resolve_topic(self._layout, destination)
        is_to_partition = self._settings["to"] == ORIGIN and found.partitions > 0
        rows = rows_to_send(self._letters(job, claims), self._fix, claims, partitions if is_to_partition else [])
        publish(
            rows,
            str(self._layout.root),
            destination,
            app_id=app_id,
            app_version=chunk,
            publish_id=identifier,
            create=False,
            producer_name=f"{REPROCESSED}{self._job_id}",
            hashing_scheme=self._scheme,
            chunking=True,
            deduplicate=False,
            clock=self._clock,
        )
        numbers = published_numbers(found, app_id, chunk)
        sent = [claim for claim in claims if claim.number in numbers]
        self._table.record_chunk(job, destination, chunk, identifier, sent, self._clock())

    def _letters(self, job: Job, claims: list[Claim]) -> DataFrame:
        positions: dict[int, list[int]] = defaultdict(list)
        for claim in claims:
            positions[claim.partition].append(claim.position)
        ranges = [PositionRange(partition, min(found), max(found)) for partition, found in sorted(positions.items())]
        letters = read_letters(
            self._spark, self._layout, self._topic, job.table_version, ranges, as_stored=self._fix is None
        )
        chosen = local_frame(self._spark, pa.table({"message_id": [claim.message_id for claim in claims]}))
        return letters.join(F.broadcast(chosen), on="message_id", how="left_semi")

    def report(self, chosen: Chosen) -> Reprocessed:
        sent = Counter(self._table.read_sent(self._job_id)["cause"].to_pylist())
        return _report(chosen, False, sent, Counter(claim.cause for claim in chosen.claims) - sent)


def _report(chosen: Chosen, is_dry_run: bool, sent: Counter[str], dropped: Counter[str]) -> Reprocessed:
    job, claims = chosen
    selected = Counter(claim.cause for claim in claims)
    causes = {}
    for cause in sorted(selected.keys() | job.left.keys()):
        left = dict.fromkeys(REASONS, 0) | job.left.get(cause, {})
        causes[cause] = {
            "matched": selected[cause] + sum(left.values()),
            "selected": selected[cause],
            "sent": sent[cause],
            "dropped_by_fix": dropped[cause],
            **left,
        }
    return Reprocessed(
        job_id=job.job_id,
        topic=job.topic,
        is_dry_run=is_dry_run,
        causes=causes,
        destinations=dict(Counter(claim.destination for claim in claims)),
        **{name: sum(counts[name] for counts in causes.values()) for name in COUNTS},
    )
