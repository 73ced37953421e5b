"""``pulsar-spark compact``, ``topics compact``, ``compaction-status``, and compaction thresholds, as in
``pulsar-admin``."""

from collections.abc import Callable
from typing import Annotated

import typer
from typer.models import ArgumentInfo

from pulsar_spark.cli.common import (
    AWAITS_BROKER,
    Json,
    Root,
    TimeoutSeconds,
    Topic,
    admin,
    print_done,
    print_found,
    shows_work,
)
from pulsar_spark.cli.policies.policies import add_get_and_remove
from pulsar_spark.errors import InvalidConfiguration

Threshold = Annotated[
    str, typer.Option("--threshold", "-t", help="Uncompacted bytes, such as 500M; 0 = never automatically.")
]
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def bytes_of(option: str, text: str) -> int:
    """Parse a size as ``pulsar-admin`` writes it.

    >>> [bytes_of("--threshold", text) for text in ("100", "2K", "1m")]
    [100, 2048, 1048576]
    """
    number, unit = (text[:-1], text[-1].upper()) if text[-1:].isalpha() else (text, "")
    if not number.isdecimal() or unit not in _UNITS:
        raise InvalidConfiguration(f"{option} {text!r}: give a size such as 4096, 100M or 10G")
    return int(number) * _UNITS[unit]


@shows_work("compacting")
def compact(topic: Topic, root: Root, as_json: Json = False):
    """Compact a topic or a partition: its compacted view has the latest message of each key. Starts Spark, except for a
    small topic; needs no broker."""

    def session():
        from pulsar_spark.storage.session import spark_session

        return spark_session("pulsar_spark compact", root=root)

    root_admin = admin(root)
    root_admin.compact(topic, session)
    found = root_admin.stats(topic)["compaction"]
    removed = found["lastCompactionRemovedEventCount"]
    print_found(found, as_json, f"compacted {topic}: {removed} messages are not in its compacted view")


def compaction_status(topic: Topic, root: Root, as_json: Json = False):
    """Show the outcome of a topic's last compaction: NOT_RUN, RUNNING, SUCCESS or ERROR."""
    found = admin(root).compaction_status(topic)
    print_found(found, as_json, " ".join(filter(None, found.values())))


def add_commands(app: typer.Typer, argument: ArgumentInfo, full: Callable[[str], str]) -> None:
    """Add the three threshold commands to *app*. The scope is their *argument*, which *full* completes."""

    @app.command("set-compaction-threshold")
    @shows_work(AWAITS_BROKER)
    def set_compaction_threshold(
        scope: Annotated[str, argument],
        root: Root,
        threshold: Threshold,
        timeout: TimeoutSeconds = 30,
        as_json: Json = False,
    ):
        """Set the uncompacted size above which a broker compacts a topic automatically."""
        size = bytes_of("--threshold", threshold)
        admin(root, timeout).set_compaction_threshold(full(scope), size)
        print_done(as_json, "set compaction-threshold", scope=scope, policy="compaction-threshold", value=size)

    add_get_and_remove(app, argument, full, "compaction-threshold", lambda found: f"{found} bytes", "never")
