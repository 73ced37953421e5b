"""``pulsar-spark brokers``."""

import typer

from pulsar_spark.cli.common import (
    AWAITS_BROKER,
    Json,
    Root,
    TimeoutSeconds,
    admin,
    print_done,
    print_listed,
    shows_work,
)
from pulsar_spark.protocol.delays.durations import shown_seconds

app = typer.Typer(no_args_is_help=True)


@app.command("list")
def list_(root: Root, as_json: Json = False):
    """List the brokers that serve the root, and the bundles of each. 'broker status' has an exit code for scripts."""
    found = admin(root).brokers()
    rows = [(each["broker"], each["host"], each["pid"], ", ".join(each["bundles"])) for each in found]
    print_listed(found, as_json, ["broker", "host", "process", "bundles"], rows, none="no broker serves")


@app.command()
@shows_work(AWAITS_BROKER)
def healthcheck(root: Root, timeout: TimeoutSeconds = 30, as_json: Json = False):
    """Let the broker of each bundle answer a request in a round. Exit code 1: a bundle has no broker, or a broker does
    not answer in time."""
    seconds = admin(root, timeout).healthcheck()
    print_done(as_json, f"ok: answered in {shown_seconds(seconds)}", healthy=True, seconds=round(seconds, 3))
