"""``pulsar-spark broker`` and ``demo``: commands that import and start Spark when they run."""

import logging
from typing import Annotated

import typer

from pulsar_spark.cli.common import Json, Root, RootOrNone, admin, print_done, print_json, progress_console, shows_work
from pulsar_spark.cli.logs import LogFormatOption, LogLevel, LogLevelOption, set_up_logging
from pulsar_spark.cli.signals import clean_up_on_sigterm
from pulsar_spark.metrics.settings import DEFAULT_SUBSCRIPTIONS, LOOPBACK
from pulsar_spark.protocol.delays.delays import MAX_NUM_BUCKETS
from pulsar_spark.protocol.delays.durations import shown_seconds
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes.starting import announce_start
from pulsar_spark.table_specs import CURSOR_LEDGER

log = logging.getLogger(__name__)
ALL_FLIGHTS = 336_776
NO_BROKER = 3
broker_app = typer.Typer(invoke_without_command=True)


AvailableNow = Annotated[
    bool,
    typer.Option(
        "--available-now",
        help="End when all work is done and no client is connected, for a broker that a scheduler starts.",
    ),
]
MaxUnacked = Annotated[
    int,
    typer.Option(
        "--max-unacked-messages-per-broker",
        min=0,
        help=(
            "At this number of unacknowledged messages on Shared subscriptions, those with most of them get no new "
            "messages; 0 = no limit."
        ),
    ),
]
MaxNumBuckets = Annotated[
    int,
    typer.Option(
        "--delayed-delivery-max-num-buckets",
        min=1,
        help="Most buckets of the delay index; beyond it, buckets are merged.",
    ),
]

Housekeeping = Annotated[
    bool,
    typer.Option(
        "--housekeeping/--no-housekeeping",
        help=(
            "Keep the root's tables small and their logs short, in the background, while the broker serves, and sample "
            "activity once a minute."
        ),
    ),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port", min=0, max=65535, help="Serve /metrics for Prometheus, /healthz and /readyz at this port."
    ),
]
MetricsHost = Annotated[str, typer.Option("--metrics-host", help="The address for metrics; 0.0.0.0 for all of IPv4.")]
MetricsSubscriptions = Annotated[
    int,
    typer.Option(
        "--metrics-subscriptions",
        min=0,
        help="How many subscriptions and topics, those with the worst backlog, have metrics of their own.",
    ),
]


@broker_app.callback()
def broker(
    context: typer.Context,
    root: RootOrNone = None,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log a line for each round.")] = False,
    available_now: AvailableNow = False,
    max_unacked: MaxUnacked = 0,
    max_num_buckets: MaxNumBuckets = MAX_NUM_BUCKETS,
    housekeeping: Housekeeping = True,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = LOOPBACK,
    metrics_subscriptions: MetricsSubscriptions = DEFAULT_SUBSCRIPTIONS,
):
    """Run a broker on the root until SIGTERM or Ctrl-C. It logs to standard error.

    The log reports when the broker serves, stands by, takes over and stops, each refused request, and once a minute its
    work. 'pulsar-spark broker status' says which broker serves the root.
    """
    if context.invoked_subcommand:
        return
    if root is None:
        raise typer.BadParameter("give the folder of the tables", param_hint="--root")
    announce_start(root)  # before Spark is imported, which takes seconds
    from pulsar_spark.broker.service.process import run_broker
    from pulsar_spark.metrics.process import metrics_of_this_process

    set_up_logging(log_level, log_format, default_level=LogLevel.info)
    log.info("broker of root %s starts", root)

    def log_round(result, seconds):
        log.info(
            "round of %.3f s, %d messages delivered",
            seconds,
            result.delivered_messages,
            extra={"seconds": seconds, "delivered": result.delivered_messages},
        )

    with metrics_of_this_process(root, port=metrics_port, host=metrics_host, most=metrics_subscriptions):
        run_broker(
            root,
            on_round=log_round if verbose else None,
            max_unacked_messages_per_broker=max_unacked,
            available_now=available_now,
            delayed_delivery_max_num_buckets=max_num_buckets,
            housekeeping=housekeeping,
        )
    log.info("broker of root %s stopped", root)


@broker_app.command()
def status(root: Root, as_json: Json = False):
    """Show the broker that serves the root, and one that is starting. Exit code 0: a broker serves every bundle. 3:
    some bundle has no broker, or the root does not exist yet. 1: the folder is not a root, or cannot be read."""
    root_admin = admin(root)
    is_root = TableLog(root_admin.layout.broker_table(CURSOR_LEDGER.name)).latest() >= 0
    found = root_admin.broker_status() if is_root or _is_something_else(root_admin.layout) else None
    coming = root_admin.starting_broker() if is_root else None
    if as_json:
        print_json({**(found or {}), **({"starting": coming} if coming else {})})
    elif found:
        typer.echo(
            f"{found['broker_id']} serves (process {found['pid']} on {found['host']}, lease of "
            f"{shown_seconds(found['lease_ms'] / 1000)})"
        )
        for bundle in found["unserved"]:
            typer.echo(f"no broker serves bundle {bundle}")
    elif not coming:
        typer.echo("no broker serves" if is_root else f"no broker serves: {root!r} is not a root yet")
    if coming and not as_json:
        typer.echo(coming["text"] if found else f"no broker serves yet: {coming['text']}")
    if found is None or found["unserved"]:
        raise typer.Exit(NO_BROKER)


@broker_app.command("archive-classes")
@shows_work("running a broker to see which classes it loads")
def archive_classes_(as_json: Json = False):
    """Archive the classes that Spark loads, so that this user's brokers on this machine start faster. Run it again
    after an upgrade of Spark or Java."""
    from pulsar_spark.broker.service.class_archive import archive_classes

    path = archive_classes()
    size = path.stat().st_size
    print_done(as_json, f"{path}: {size // 1_000_000} MB", path=str(path), bytes=size)


def _is_something_else(layout: Layout) -> bool:
    root = layout.root
    return root.is_file() or (root.is_dir() and any(root.iterdir()) and not layout.bundle_folder().is_dir())


def demo(
    rows: Annotated[
        int,
        typer.Option(
            "--rows", min=1_000, envvar="PULSAR_SPARK_DEMO_ROWS", help=("Flights to publish, spread over the year.")
        ),
    ] = ALL_FLIGHTS,
    root: Annotated[
        str | None, typer.Option("--root", help="Root of the tables; a temporary folder without it.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the temporary folder.")] = False,
    as_json: Json = False,
):
    """Publish a year of flights, run a broker, consume them through all types of subscription, and check every
    message."""
    from pulsar_spark.demo.run import run_demo

    clean_up_on_sigterm()
    console, show = (progress_console, print_json) if as_json else (None, None)
    if not run_demo(rows=rows, root=root, keep=keep, console=console, show=show):
        raise typer.Exit(1)
