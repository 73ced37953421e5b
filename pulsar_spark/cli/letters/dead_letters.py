"""``pulsar-spark dlq``: dead letters. Spark starts only if there are some. Payloads are never printed."""

import datetime
import importlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from pulsar_spark.cli.common import (
    DryRun,
    Json,
    Limit,
    Root,
    TimeoutSeconds,
    print_json,
    print_listed,
    print_table,
    shows_work,
    working,
)
from pulsar_spark.cli.letters import waiting_letters
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.payloads.encoding import ENCODING_COLUMNS
from pulsar_spark.protocol.delays.instants import named_time
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.letter_topics import letter_topic
from pulsar_spark.views.dead_letters import count_letters

if TYPE_CHECKING:
    from pulsar_spark.frames.letters.reprocess_run import Reprocessed

app = typer.Typer(no_args_is_help=True)

DeadLetterTopic = Annotated[
    str, typer.Argument(help="The dead letter topic; with --subscription, the topic on which the letters died.")
]
DiedOn = Annotated[str | None, typer.Option("--subscription", "-s", help="The subscription on which the letters died.")]
Where = Annotated[
    str | None,
    typer.Option(
        "--where", help="SQL condition, such as \"cause = 'max_redeliver_count' and properties['tail'] is null\"."
    ),
]


JobId = Annotated[
    str, typer.Option("--job-id", help="Name of the job. A repeated name continues the job and sends nothing twice.")
]
Since = Annotated[
    str | None, typer.Option("--since", help="Letters written at or after this time, such as 2026-01-31T12:00:00Z.")
]
Keys = Annotated[list[str] | None, typer.Option("--key", "-k", help="Letters with this key; repeatable.")]
Destination = Annotated[
    str,
    typer.Option(
        "--to",
        help="'subscription' (its retry letter topic), 'origin' (its topic, so every subscription) or 'topic:<name>'.",
    ),
]
FixFunction = Annotated[
    str | None,
    typer.Option("--fix", help="module:function that gets the letters as a DataFrame and returns those to send."),
]
MaxReplays = Annotated[
    int, typer.Option("--max-replays", min=1, help="Leave out letters that were sent back this often.")
]


@app.command("list")
@shows_work("looking at letters")
def list_(
    topic: DeadLetterTopic,
    root: Root,
    subscription: DiedOn = None,
    where: Where = None,
    limit: Limit = 20,
    as_json: Json = False,
):
    """List letters, the oldest first; with --json one line of JSON each."""
    if letter_topic(Layout(root), topic, subscription) is None:
        return _print_letters([], as_json)
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import functions as F

    from pulsar_spark.frames.letters.dead_letters import dead_letters

    letters = (
        dead_letters(_spark(root), root, topic, subscription=subscription)
        .withColumn("size", F.octet_length("payload"))
        .drop("payload", *ENCODING_COLUMNS)
    )
    try:
        chosen = letters.filter(where) if where else letters
        rows = chosen.orderBy("partition", "position").limit(limit).toArrow().to_pylist()
    except (AnalysisException, ParseException) as wrong:
        raise InvalidConfiguration(f"--where {where!r}: {str(wrong).splitlines()[0]}") from wrong
    _print_letters(rows, as_json)


def _print_letters(rows: list[dict], as_json: bool) -> None:
    if as_json:
        for row in rows:
            print_json(
                {
                    name: value.isoformat() if isinstance(value, datetime.datetime) else value
                    for name, value in {**row, "properties": dict(row["properties"] or [])}.items()
                }
            )
        return
    columns = ("cause", "attempts", "replays", "partition_key", "size", "sent_by")
    print_table(
        ["letter", "written", "cause", "attempts", "replays", "key", "size", "sent by"],
        [(row["message_id"], _seconds(row["publish_time"]), *(row[name] for name in columns)) for row in rows],
    )


@app.command()
@shows_work("counting letters")
def count(topic: DeadLetterTopic, root: Root, subscription: DiedOn = None, as_json: Json = False):
    """Count letters by cause. It starts no Spark."""
    found = letter_topic(Layout(root), topic, subscription)
    rows = [] if found is None else count_letters(Layout(root), found)
    counts = [
        {
            "cause": row["cause"],
            "letters": row["letters"],
            "sent": row["sent"],
            "firstTime": row["first_time"] and row["first_time"].isoformat(),
            "lastTime": row["last_time"] and row["last_time"].isoformat(),
        }
        for row in rows
    ]
    shown = [
        (row["cause"], row["letters"], row["sent"], _seconds(row["first_time"]), _seconds(row["last_time"]))
        for row in rows
    ]
    print_listed(counts, as_json, ["cause", "letters", "sent back", "first", "last"], shown)


@app.command()
def reprocess(
    topic: DeadLetterTopic,
    root: Root,
    job_id: JobId,
    subscription: DiedOn = None,
    where: Where = None,
    since: Since = None,
    until: Annotated[str | None, typer.Option("--until", help="Letters written before this time.")] = None,
    key: Keys = None,
    to: Destination = "subscription",
    fix: FixFunction = None,
    rate: Annotated[float | None, typer.Option("--rate", "-r", help="Most messages per second.")] = None,
    max_replays: MaxReplays = 3,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Most letters to send.")] = None,
    dry_run: DryRun = False,
    timeout: TimeoutSeconds = 30,
    as_json: Json = False,
):
    """Send letters back, by default to the subscription on which they died. Without letters the command does
    nothing."""
    letter_topic(Layout(root), topic, subscription)  # refuses unknown names before Spark starts
    from pulsar_spark.frames.letters.reprocess import reprocess_dead_letters

    function, first, last = load_function("--fix", fix), parse_time("--since", since), parse_time("--until", until)
    report = reprocess_dead_letters(
        _spark(root),
        root,
        topic,
        job_id=job_id,
        subscription=subscription,
        where=where,
        since=first,
        until=last,
        keys=key or None,
        fix=function,
        to=to,
        rate=rate,
        max_replays=max_replays,
        limit=limit,
        dry_run=dry_run,
        timeout=timeout,
    )
    print_report(report, as_json)


def print_report(report: "Reprocessed", as_json: bool) -> None:
    if as_json:
        print_json(report._asdict())
        return
    typer.echo(
        f"job {report.job_id}: "
        + (
            f"{report.selected} of {report.matched} letters would be sent"
            if report.is_dry_run
            else f"{report.sent} of {report.matched} letters sent"
        )
    )
    for destination, letters in report.destinations.items():
        typer.echo(f"  {letters} to {destination}")
    if not report.causes:
        return
    reasons = ["left_by_guard", "taken_before", "without_origin", "unreadable"]
    names = ["matched", "selected", "sent", "dropped_by_fix", *reasons]
    print_table(
        ["cause", *(name.replace("_", " ") for name in names)],
        [(cause, *(counts[name] for name in names)) for cause, counts in report.causes.items()],
    )


def load_function(option: str, text: str | None) -> Callable | None:
    """Load ``module:function``, also from the working folder."""
    if text is None:
        return None
    module, _, name = text.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as missing:
        raise InvalidConfiguration(
            f"{option} {text!r}: give module:function, of a module that can be imported here ({missing})"
        ) from missing
    if not callable(found):
        raise InvalidConfiguration(f"{option} {text!r} is no function: give module:function")
    return found


def parse_time(option: str, text: str | None) -> datetime.datetime | None:
    """By default in UTC."""
    if text is None:
        return None
    try:
        return named_time(text)
    except ValueError:
        raise InvalidConfiguration(f"{option} {text!r}: give a time such as 2026-01-31T12:00:00Z") from None


def parse_seconds(option: str, seconds: float | None) -> datetime.timedelta | None:
    try:
        return None if seconds is None else datetime.timedelta(seconds=seconds)
    except (OverflowError, ValueError):  # ValueError: nan
        raise InvalidConfiguration(f"{option} '{seconds}': give seconds that 64 bits hold as milliseconds") from None


def _seconds(time: datetime.datetime | None) -> str:
    return "" if time is None else time.isoformat(" ", "seconds").removesuffix("+00:00")


def _spark(root: str):
    from pulsar_spark.storage.session import spark_session

    with working("starting Spark"):
        return spark_session("pulsar_spark dlq", root=root)


app.command("waiting")(waiting_letters.waiting)
app.command("retry-waiting")(waiting_letters.retry_waiting)
app.command("drop-waiting")(waiting_letters.drop_waiting)
