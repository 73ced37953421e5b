"""The application and its entry point. Exit codes: 0 done, 1 refused or failed, 2 wrong usage."""

from typing import Annotated

import typer

from pulsar_spark.cli.common import errors_as_one_line
from pulsar_spark.cli.logs import set_up_logging
from pulsar_spark.cli.on_demand import Entry, group_of

COMMANDS = {
    "doctor": Entry("operations.doctor:doctor", "Check the tables of a root for damage."),
    "repair": Entry("operations.doctor:repair", "Repair broken commits from their data files."),
    "produce": Entry("messages.messages:produce", "Publish messages."),
    "consume": Entry("messages.messages:consume", "Receive messages; print ids, keys, properties and sizes."),
    "read": Entry("messages.read:read", "Read messages of a topic without a subscription."),
    "compact": Entry("policies.compaction:compact", "Compact a topic or a partition: keep the latest of each key."),
    "stats": Entry("administration.stats:stats", "Show all backlogs, or one topic and its consumers."),
    "top": Entry("monitor.top:top", "Show all backlogs live, with keys to sort and look into one."),
    "check": Entry("monitor.check:check", "Compare backlogs and their age with thresholds."),
    "metrics": Entry("monitor.metrics:metrics", "Serve the metrics of a whole root, apart from its brokers."),
    "explain": Entry("messages.explain:explain", "Show why a message is where it is on each subscription."),
    "demo": Entry("operations.processes:demo", "Publish a year of flights and check every message."),
    "topics": Entry("administration.topics:app", "Create, list, describe and delete topics."),
    "namespaces": Entry("administration.namespaces:app", "Create, list and delete namespaces, and their settings."),
    "tenants": Entry("administration.tenants:app", "List, create and delete tenants."),
    "subscriptions": Entry("administration.subscriptions:app", "Create, list, move and delete subscriptions."),
    "policies": Entry("policies.policies:app", "Show, set and remove policies of a namespace or a topic."),
    "brokers": Entry("administration.brokers:app", "List the brokers of a root, and check that they answer."),
    "bundles": Entry("administration.bundles:app", "List the bundles of a root, and split one."),
    "schemas": Entry("administration.schemas:app", "Show, upload and remove the schemas that a topic keeps."),
    "set-aside": Entry("messages.set_aside:app", "List, retry and drop what the broker failed on and set aside."),
    "dlq": Entry("letters.dead_letters:app", "List, count and send back dead letters."),
    "delayed": Entry("messages.delayed:app", "List, count, cancel and move delayed messages."),
    "chunks": Entry("messages.chunks:app", "List and count incomplete chunked messages."),
    "maintain": Entry("operations.maintain:app", "Trim topics; optimize, vacuum and checkpoint tables."),
    "catalog": Entry("operations.catalog:app", "Register topics and tables in a catalog, for SQL."),
    "broker": Entry("operations.processes:broker_app", "Run a broker on the root until it is stopped."),
    "durability": Entry("operations.doctor:app", "Show and set whether writes survive a power loss."),
}
"""By name, with their lines in ``pulsar-spark --help``."""

app = typer.Typer(
    cls=group_of(COMMANDS),
    help="Apache Pulsar's broker semantics on Delta tables, executed by Apache Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version  # 20 ms that no other command needs

        typer.echo(f"pulsar-spark {version('pulsar-spark')}")
        raise typer.Exit()


@app.callback()
def options(
    is_version_wanted: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
):
    """Options before the command."""


def main() -> None:
    with errors_as_one_line():
        set_up_logging()
        app()
