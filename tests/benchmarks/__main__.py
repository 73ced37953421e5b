"""``python -m tests.benchmarks``: measures, and writes ``benchmarks.json`` and ``benchmarks.md``."""

import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tests.benchmarks import (
    age,
    backlog,
    bundles,
    chunks,
    client_rates,
    delays,
    fixed_cost,
    growth,
    holes,
    housekeeping,
    key_shared,
    keyed_backlog,
    latency,
    many,
    many_clients,
    past,
    plan_twin,
    publishing,
    redelivery,
    restart,
    small,
    small_clients,
    soak,
    source,
    store,
    week,
)
from tests.benchmarks.bench import Bench
from tests.benchmarks.figures import Figure
from tests.benchmarks.machine import describe_machine
from tests.benchmarks.profiling import profile_rounds
from tests.benchmarks.publish_profile import profile_publish
from tests.benchmarks.table import as_markdown, shown, write

FAMILIES: dict[str, Callable[[Bench], Iterator[Figure]]] = {
    "fixed_cost": fixed_cost.measure,
    "latency": latency.measure,
    "client": client_rates.measure,
    "many_clients": many_clients.measure,
    "publish": publishing.measure,
    "small": small.measure,
    "small_clients": small_clients.measure,
    "backlog": backlog.measure,
    "topic_size": growth.measure_topic_size,
    "topics": growth.measure_topics,
    "subscriptions": growth.measure_subscriptions,
    "age": age.measure,
    "housekeeping": housekeeping.measure,
    "past": past.measure,
    "many": many.measure,
    "holes": holes.measure,
    "random_acks": holes.measure_random,
    "redelivery": redelivery.measure,
    "key_shared": key_shared.measure,
    "keyed_backlog": keyed_backlog.measure,
    "delays": delays.measure,
    "chunks": chunks.measure,
    "chunks_between": chunks.measure_between,
    "bundles": bundles.measure,
    "plan": plan_twin.measure,
    "restart": restart.measure,
    "source": source.measure,
}

ON_DEMAND: dict[str, Callable[[Bench], Iterator[Figure]]] = {
    "delays_billion": delays.measure_billion,
    "many_holes": holes.measure_many,
    "soak": soak.measure,
    "soak_plain": soak.measure_plain,
    "store": store.measure,
    "week": week.measure,
}
"""Families that need so much disk and time, or a server, that they are measured only when they are named."""


def main(
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller sizes and fewer repeats: under five minutes on two cores.")
    ] = False,
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            help=f"Families to measure, separated by commas: {', '.join(FAMILIES)}. All of these without it. "
            f"Only when named: {', '.join(ON_DEMAND)}.",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for benchmarks.json, benchmarks.md and profile.txt.")
    ] = Path("benchmarks"),
    profile: Annotated[
        bool,
        typer.Option("--profile", help="Where rounds and publishes spend time, in profile.txt; alone without --only."),
    ] = False,
):
    """Measure the product and compare it with its budgets."""
    names = only.split(",") if only else [] if profile else list(FAMILIES)
    families = FAMILIES | ON_DEMAND
    unknown = [name for name in names if name not in families]
    if unknown:
        raise typer.BadParameter(f"{unknown}: choose from {', '.join(families)}", param_hint="--only")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that brokers and folders go, too
    console = Console(stderr=True)
    machine = describe_machine() | {"run": "--quick" if quick else "full"}
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="pulsar_spark_benchmarks_") as folder, console.status("") as status:
        bench = Bench(Path(folder), quick, lambda words: status.update(words))
        for name in names:
            began = time.perf_counter()
            for figure in families[name](bench):
                figures.append(figure)
                console.print(f"{figure.what}: {shown(figure.value, figure.unit)}", highlight=False)
                write(out, machine, figures)
            console.print(f"{name} took {time.perf_counter() - began:.0f} s", style="dim")
        if profile:
            out.mkdir(parents=True, exist_ok=True)
            with (out / "profile.txt").open("w", buffering=1) as report:
                report.writelines(chain(profile_rounds(bench), profile_publish(bench)))
            console.print(f"profile: {out / 'profile.txt'}", highlight=False)
    if figures:
        print(as_markdown(machine, figures))


if __name__ == "__main__":
    typer.run(main)
