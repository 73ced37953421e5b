"""``pulsar-spark broker`` and ``pulsar-spark demo``: the commands that start Spark, which is imported only here."""
from pathlib import Path
from typing import Annotated

import typer

from pulsar_spark.cli.common import Root

ALL_FLIGHTS = 336_776


def broker(root: Root):
    """Run a broker on the root until it is told to stop (SIGTERM or Ctrl-C)."""
    from pulsar_spark.broker.runner import run_broker

    run_broker(root)


def demo(rows: Annotated[int, typer.Option("--rows", min=100, envvar="PULSAR_SPARK_DEMO_ROWS", help="Flights to publish, from the first on.")] = ALL_FLIGHTS,
         root: Annotated[Path | None, typer.Option("--root", help="Folder of the tables; a temporary one without it.")] = None,
         keep: Annotated[bool, typer.Option("--keep", help="Keep the temporary folder.")] = False):
    """Publish a year of flights, run a broker, consume them through three kinds of subscription and check what became of each message."""
    from pulsar_spark.demo import run_demo

    if not run_demo(rows=rows, root=root, keep=keep):
        raise typer.Exit(1)
