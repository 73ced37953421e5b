"""``pulsar-spark metrics``: the exporter as a process of its own."""

import threading
from typing import Annotated

import typer

from pulsar_spark.cli.common import Json, Root, print_done
from pulsar_spark.cli.signals import stopping_on_signals
from pulsar_spark.link.requester import require_root
from pulsar_spark.metrics.exporter import Exporter
from pulsar_spark.metrics.server import listener, serving
from pulsar_spark.metrics.settings import DEFAULT_SUBSCRIPTIONS, LOOPBACK
from pulsar_spark.storage.layout import Layout


def metrics(
    root: Root,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0 for any that is free.")] = 8080,
    host: Annotated[str, typer.Option("--host", help="The address; 0.0.0.0 for all of IPv4.")] = LOOPBACK,
    most: Annotated[
        int, typer.Option("--subscriptions", min=0, help="How many have metrics of their own, the worst backlog first.")
    ] = DEFAULT_SUBSCRIPTIONS,
    as_json: Json = False,
):
    """Serve /metrics for Prometheus, /healthz and /readyz until SIGTERM or Ctrl-C. These are the numbers of the whole
    root. A broker with --metrics-port shows those of the bundles that it serves."""
    require_root(Layout(root))
    stopping = threading.Event()
    with serving(Exporter(root, most=most), listener(host, port)) as server:
        print_done(as_json, f"metrics at {server.url}", url=server.url)
        with stopping_on_signals(stopping.set):
            stopping.wait()
