"""Runs the demo, from the session to the account."""

import datetime
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pulsar_spark.admin import Admin
from pulsar_spark.demo import billing, flight_plan, reminders
from pulsar_spark.demo.account import Account, Keyed, Letters, make_account
from pulsar_spark.demo.broker_process import BrokerProcess
from pulsar_spark.demo.consumers import REDELIVERIES, bill
from pulsar_spark.demo.flights import aircraft_of, flight_messages, read_flights, write_flights
from pulsar_spark.demo.group import ConsumerGroup
from pulsar_spark.errors import Timeout
from pulsar_spark.frames import publish
from pulsar_spark.protocol.redelivery.letters import retry_letter_topic
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.session import spark_session
from pulsar_spark.storage.topics.topics import prepare_root

PARTITIONS = 4
BROKER_LOG = "broker.log"
PATIENCE_SECONDS = 180
POLL_SECONDS = 0.25
_LARGEST_KEYED_QUEUE = 20_000
"""Of a Key_Shared consumer; at most a tenth of all messages, to leave some for later consumers."""
_BATCHES_A_CONSUMER = 40
_LARGEST_BATCH = 1_000


class _Place(NamedTuple):
    """Root, service URL, topics of this run, and a folder for notes and logs."""

    root: str
    service_url: str
    topics: dict[str, int]
    work: Path


def run_demo(
    *,
    rows: int,
    root: str | os.PathLike | None = None,
    keep: bool = False,
    console: Console | None = None,
    show: Callable[[list[dict]], None] | None = None,
) -> bool:
    """Run the demo on *rows* flights; True if nothing was lost and order held where it must.

    *root* is kept; by default a temporary folder is removed unless *keep*. A failed run keeps the broker's log. *show*
    gets the accounts instead of a printed table.
    """
    console = console or Console()
    flights = read_flights(rows)
    work = Path(tempfile.mkdtemp(prefix="pulsar_spark_demo_"))
    accounts: list[Account] = []

    def clean_up(kind: type[BaseException] | None, *_: object) -> None:
        has_failed = _has_defects(accounts) or (kind is not None and issubclass(kind, Exception))
        kept = [work / "root"] if keep and root is None else []
        _clean_up(work, [*kept, work / BROKER_LOG] if has_failed or kept else [], console)

    with ExitStack() as ending:
        ending.push(clean_up)
        with ExitStack() as stack:
            place = _prepare(root or work / "root", work)
            console.print(f"{flights.num_rows} flights, root {place.root}", highlight=False, soft_wrap=True)
            accounts += _run(place, flights, console, stack)
        if show is not None:
            show([account._asdict() for account in accounts])
        else:
            _print_table(accounts, pc.count_distinct(flights["tailnum"]).as_py(), console)
    return not _has_defects(accounts)


def _has_defects(accounts: list[Account]) -> bool:
    return any(account.defects for account in accounts)


def _clean_up(work: Path, kept: list[Path], console: Console) -> None:
    for found in work.iterdir():
        if found in kept:
            console.print(f"kept: {found}", highlight=False, soft_wrap=True)
        elif found.is_dir():
            shutil.rmtree(found, ignore_errors=True)
        else:
            found.unlink()
    if not any(work.iterdir()):
        work.rmdir()


def _prepare(root: str | os.PathLike, work: Path) -> _Place:
    layout = Layout(root)
    prepare_root(layout)
    namespace = f"public/demo-{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%S}"
    names = {"flights": PARTITIONS, "departures": 0, "reminders": 0, "flight-plans": 0}
    topics = {f"persistent://{namespace}/{name}": partitions for name, partitions in names.items()}
    place = _Place(str(layout.root), f"delta:{layout.root}", topics, work)
    admin = Admin(place.service_url)
    for topic, partitions in topics.items():
        admin.create_partitioned_topic(topic, partitions) if partitions else admin.create_topic(topic)
    return place


def _run(place: _Place, flights: pa.Table, console: Console, stack: ExitStack) -> list[Account]:
    """Spark starts first, because it finds Delta's jar."""
    with console.status("starting Spark"):
        spark = spark_session("pulsar_spark demo", root=place.root)
        paths = write_flights(flights, place.work)
    broker = stack.enter_context(BrokerProcess(place.root, place.work / BROKER_LOG))
    groups = [stack.enter_context(group) for group in _groups(place, flights.num_rows)]
    with Progress(
        TextColumn("{task.description:<32}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    ) as progress:
        partitioned, plain, delayed, plans = place.topics
        _publish(spark, place.root, plain, paths, progress)
        waiting = progress.add_task("broker and consumers connected", total=len(groups))
        for group in groups:
            group.wait_ready(broker, PATIENCE_SECONDS)
            progress.advance(waiting)
        _publish(spark, place.root, partitioned, paths, progress)
        at_once = [group for group in groups if group.topic != delayed]
        stats = _consume(place, at_once, flights.num_rows, broker, progress)
        plan = flight_plan.send_and_receive(spark, place.root, place.service_url, plans, flights, place.work)
        due = reminders.send(spark, place.root, delayed, flights, place.work)
        letters = {billing.SUBSCRIPTION: _repair(spark, place, plain, billing.unbillable(flights), broker, progress)}
        stats |= _consume(place, [group for group in groups if group.topic == delayed], len(due), broker, progress)
    spark.stop()
    for group in groups:
        group.stop()
    broker.stop()
    aircraft = aircraft_of(flights)
    accounts = [
        make_account(
            group.subscription,
            group.kind,
            flights.num_rows,
            stats[group.subscription],
            group.notes(),
            group.closed_after,
            letters.get(group.subscription),
            Keyed(aircraft, group.gone) if group.kind == "KeyShared" else None,
            due if group.subscription == reminders.SUBSCRIPTION else None,
        )
        for group in groups
    ]
    return [*accounts, plan]


def _groups(place: _Place, rows: int) -> list[ConsumerGroup]:
    partitioned, plain, delayed, _ = place.topics
    batch = max(1, min(_LARGEST_BATCH, rows // _BATCHES_A_CONSUMER))
    group = partial(ConsumerGroup, service_url=place.service_url, work=place.work, batch=batch)
    return [
        group("audit", "Exclusive", partitioned, 1, is_cumulative=True),
        group("archive", "Failover", plain, 2, is_cumulative=True, leave_at=rows // 2),
        group("workers", "Shared", partitioned, 3, is_cumulative=False, kill_at=max(1, rows // 20)),
        group(
            "fleet",
            "KeyShared",
            partitioned,
            3,
            is_cumulative=False,
            kill_at=max(1, rows // 20),
            leave_at=max(1, rows // 8),
            joiners=2,
            queue_size=max(batch, min(_LARGEST_KEYED_QUEUE, rows // 10)),
        ),
        group(billing.SUBSCRIPTION, "Shared", plain, 2, is_cumulative=False, handler=bill),
        group(reminders.SUBSCRIPTION, "Shared", delayed, 2, is_cumulative=False),
    ]


def _publish(spark: SparkSession, root: str, topic: str, paths: list[Path], progress: Progress) -> None:
    total = sum(pq.read_metadata(path).num_rows for path in paths)
    task = progress.add_task(f"published to {_short(topic)}", total=total)
    for path in paths:
        progress.advance(task, publish(flight_messages(spark, path), root, topic).messages)


def _consume(
    place: _Place, groups: list[ConsumerGroup], rows: int, broker: BrokerProcess, progress: Progress
) -> dict[str, dict]:
    """Return the final stats of each."""
    tasks = {
        group.subscription: progress.add_task(f"{group.kind} {group.subscription} of {_short(group.topic)}", total=rows)
        for group in groups
    }

    def is_over(stats: dict[str, dict]) -> bool:
        for group in groups:
            for happened in group.watch():
                progress.console.print(happened, highlight=False, soft_wrap=True)
        for name, task in tasks.items():
            progress.update(task, completed=stats[name]["ackedEntries"])
        return all(_is_done(sub, rows) for sub in stats.values()) and not any(group.is_waiting for group in groups)

    return _wait_until(is_over, place, {group.subscription: group.topic for group in groups}, broker)


def _repair(
    spark: SparkSession, place: _Place, topic: str, expected: np.ndarray, broker: BrokerProcess, progress: Progress
) -> Letters | None:
    """None if no flight had to die."""
    if not len(expected):
        return None
    progress.console.print(
        f"{len(expected)} flights without a tail number could not be billed: they are dead letters after "
        f"{REDELIVERIES + 1} attempts each",
        highlight=False,
        soft_wrap=True,
    )
    task = progress.add_task("repaired, sent back and billed", total=len(expected))
    report = billing.send_back(spark, place.root, topic)

    def is_over(stats: dict[str, dict]) -> bool:
        progress.update(task, completed=stats[billing.SUBSCRIPTION]["ackedEntries"])
        return _is_done(stats[billing.SUBSCRIPTION], report.sent)

    topics = {billing.SUBSCRIPTION: retry_letter_topic(topic, billing.SUBSCRIPTION)}
    stats = _wait_until(is_over, place, topics, broker)
    return Letters(expected, report.matched, report.sent, stats[billing.SUBSCRIPTION]["ackedEntries"])


def _wait_until(
    is_over: Callable[[dict[str, dict]], bool], place: _Place, topics: dict[str, str], broker: BrokerProcess
) -> dict[str, dict]:
    """Read the stats of each subscription in *topics* until the final ones; :class:`Timeout` if they stop changing."""
    admin = Admin(place.service_url)
    last_change, before = time.monotonic(), None
    while True:
        broker.check()
        of_topics = {topic: admin.stats(topic)["subscriptions"] for topic in set(topics.values())}
        stats = {name: of_topics[topic][name] for name, topic in topics.items()}
        if is_over(stats):
            return stats
        now = {name: (sub["msgOutCounter"], sub["ackedEntries"]) for name, sub in stats.items()}
        if now != before:
            last_change, before = time.monotonic(), now
        elif time.monotonic() - last_change > PATIENCE_SECONDS:
            raise Timeout(f"nothing moved for {PATIENCE_SECONDS} s; the broker's last words:\n{broker.last_words()}")
        time.sleep(POLL_SECONDS)


def _is_done(stats: dict, rows: int) -> bool:
    return stats["msgBacklog"] == 0 and stats["unackedMessages"] == 0 and stats["ackedEntries"] >= rows


def _short(topic: str) -> str:
    return topic.rpartition("/")[2]


def _print_table(accounts: list[Account], aircraft: int, console: Console) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column("subscription", no_wrap=True)
    for column in ("published", "delivered", "re-\ndelivered", "dead", "re-\npaired", "acknow-\nledged", "left"):
        table.add_column(column, justify="right")
    table.add_column("ok")
    for account in accounts:
        figures = (
            account.published,
            account.delivered,
            account.redelivered,
            account.dead,
            account.repaired,
            account.acknowledged,
            account.left,
        )
        table.add_row(
            f"{account.kind} {account.subscription}",
            *(f"{figure:,}" for figure in figures),
            "no" if account.defects else "yes",
        )
    console.print(table)
    for account in accounts:
        for defect in account.defects:
            console.print(f"{account.subscription}: {defect}", style="red", highlight=False, soft_wrap=True)
    if not any(account.defects for account in accounts):
        console.print(
            "Nothing was lost, order held on every partition of the Exclusive and the Failover subscription and for "
            f"each of {aircraft:,} aircraft on the Key_Shared one, every dead letter was repaired, and every boarding "
            "reminder came once and not before its departure. The flight plan of the busiest day, 12 MB, came as one "
            "message.",
            soft_wrap=True,
        )
