"""``set-``, ``get-`` and ``remove-delayed-delivery`` of namespaces and topics, as in ``pulsar-admin``."""

import re
from collections.abc import Callable
from typing import Annotated

import typer
from typer.models import ArgumentInfo

from pulsar_spark.cli.common import AWAITS_BROKER, Json, Root, TimeoutSeconds, admin, chosen, print_done, shows_work
from pulsar_spark.cli.policies.policies import add_get_and_remove
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.protocol.topics.topic_name import parse_topic_name

Enable = Annotated[
    bool | None, typer.Option("--enable/--disable", "-e/-d", help="Whether deliver times are respected.")
]
Tick = Annotated[
    str,
    typer.Option(
        "--time", "-t", help="How late a due message may be when many are due, such as 1s or 500ms; none is early."
    ),
]
MaxDelay = Annotated[str, typer.Option("--max-delay", help="Longest delay of a message; 0 = no limit.")]
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def milliseconds(option: str, text: str) -> int:
    """Parse a duration as ``pulsar-admin`` writes it, by default in seconds.

    >>> [milliseconds("--time", text) for text in ("1s", "2m", "500ms", "3")]
    [1000, 120000, 500, 3000]
    """
    found = re.fullmatch(r"(\d+)(ms|[smhdw])?", text.strip())
    if not found:
        raise InvalidConfiguration(f"{option} {text!r}: give a duration such as 1s, 500ms or 2m")
    return int(found[1]) * _UNITS[found[2] or "s"]


def _shown(found: dict) -> str:
    limit = f", at most {found['maxDeliveryDelayInMillis']} ms" if found["maxDeliveryDelayInMillis"] else ""
    return f"{'on' if found['active'] else 'off'}, tick {found['tickTime']} ms{limit}"


def add_commands(app: typer.Typer, argument: ArgumentInfo, full: Callable[[str], str]) -> None:
    """Add the three commands to *app*. The scope is their *argument*, which *full* completes."""

    @app.command("set-delayed-delivery")
    @shows_work(AWAITS_BROKER)
    def set_delayed_delivery(
        scope: Annotated[str, argument],
        root: Root,
        enable: Enable = None,
        tick: Tick = "1s",
        max_delay: MaxDelay = "0",
        timeout: TimeoutSeconds = 30,
        as_json: Json = False,
    ):
        """Set whether Shared and Key_Shared subscriptions respect deliver times."""
        is_active = chosen(enable)
        limits = milliseconds("--time", tick), milliseconds("--max-delay", max_delay)
        admin(root, timeout).set_delayed_delivery(full(scope), is_active, *limits)
        values = dict(zip(("active", "tickTime", "maxDeliveryDelayInMillis"), (is_active, *limits)))
        print_done(as_json, "set delayed-delivery", scope=scope, policy="delayed-delivery", value=values)

    add_get_and_remove(app, argument, full, "delayed-delivery", _shown, "on")


def full_name(topic: str) -> str:
    return str(parse_topic_name(topic))
