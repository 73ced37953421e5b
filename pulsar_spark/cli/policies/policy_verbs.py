"""``set-``, ``get-`` and ``remove-`` of the policies that ``pulsar-admin`` has verbs for, made from :data:`VERBS`."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import typer
from typer.models import ArgumentInfo

from pulsar_spark.cli.common import (
    AWAITS_BROKER,
    Json,
    Root,
    TimeoutSeconds,
    admin,
    chosen,
    print_done,
    print_found,
    shows_work,
)
from pulsar_spark.cli.logs import with_parameters
from pulsar_spark.cli.policies.compaction import bytes_of
from pulsar_spark.cli.policies.delayed_delivery import milliseconds
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.protocol.policies.policies import (
    ALLOW_AUTO_UPDATE_SCHEMA,
    CHECK_SECONDS,
    HOLD,
    SCHEMA_COMPATIBILITY_STRATEGY,
    SCHEMA_VALIDATION_ENFORCED,
    default_text,
    values_of,
)
from pulsar_spark.protocol.policies.policy_descriptions import description, takes_effect

_FOR_EVER = "-1"
_SWITCH = "on/off"


class Part(NamedTuple):
    """A policy that a verb sets, its options on the command line, and its value without one; None: it must be given."""

    policy: str
    options: tuple[str, ...] = ()
    default: str | None = None

    @property
    def unit(self) -> str:
        return description(self.policy).unit

    def parameter(self) -> inspect.Parameter:
        """The parameter of a command that sets it."""
        if self.unit == _SWITCH:
            switch = typer.Option("--enable/--disable", "-e/-d", help="Whether it is on.")
            return _parameter(self.policy, Annotated[bool | None, switch], None)
        words = {"s": "A duration such as 30, 10m, 3h or 7d", "bytes": "A size such as 4096, 100M or 10G"}
        kind = words.get(self.unit) or values_of(self.policy)
        option = typer.Option(*self.options, help=f"{kind[0].upper()}{kind[1:]}: {description(self.policy).text}.")
        return _parameter(self.policy, Annotated[str, option], *([] if self.default is None else [self.default]))

    def value(self, given: Any) -> str:
        """The value to set for what was given."""
        if self.unit == _SWITCH:
            return str(int(chosen(given)))
        if given == _FOR_EVER or self.unit not in ("s", "bytes"):
            return given
        if self.unit == "bytes":
            return str(bytes_of(self.options[0], given))
        seconds, rest = divmod(milliseconds(self.options[0], given), 1000)
        if rest:
            raise InvalidConfiguration(f"{self.options[0]} {given!r} is not whole seconds: give some, such as 1s")
        return str(seconds)

    def shown(self, value: str | None) -> str:
        if value is None:
            return "not set"
        if self.unit == _SWITCH:
            return "off" if value == "0" else "on"
        return f"{value} {self.unit}".rstrip()


VERBS: dict[str, tuple[Part, ...]] = {
    "message-ttl": (Part("message_ttl_seconds", ("--messageTTL", "-ttl")),),
    "retention": (Part("retention_seconds", ("--time", "-t")), Part("retention_bytes", ("--size", "-s"))),
    "backlog-quota": (
        Part("backlog_quota_bytes", ("--limit", "-l"), "0"),
        Part("backlog_quota_seconds", ("--limitTime", "-lt"), "0"),
        Part("backlog_quota_policy", ("--policy", "-p"), HOLD),
    ),
    "subscription-expiration-time": (Part("subscription_expiration_minutes", ("--time", "-t")),),
    "max-unacked-messages-per-consumer": (Part("max_unacked_messages_per_consumer", ("--maxNum", "-c")),),
    "max-unacked-messages-per-subscription": (Part("max_unacked_messages_per_subscription", ("--maxNum", "-c")),),
    "max-consumers-per-subscription": (
        Part("max_consumers_per_subscription", ("--max-consumers-per-subscription", "-c")),
    ),
    "max-message-size": (Part("max_message_size", ("--max-message-size", "-m")),),
    "schema-compatibility-strategy": (Part(SCHEMA_COMPATIBILITY_STRATEGY, ("--compatibility", "-c")),),
    "is-allow-auto-update-schema": (Part(ALLOW_AUTO_UPDATE_SCHEMA),),
    "schema-validation-enforce": (Part(SCHEMA_VALIDATION_ENFORCED),),
}
"""The subjects of verbs, by ``pulsar-admin``'s names."""


def add_policy_verbs(app: typer.Typer, argument: ArgumentInfo, full: Callable[[str], str]) -> None:
    """Add the commands of all :data:`VERBS` to *app*. The scope is their *argument*, which *full* completes."""
    for verb, parts in VERBS.items():
        _add(app, argument, full, verb, parts)


def _add(
    app: typer.Typer, argument: ArgumentInfo, full: Callable[[str], str], verb: str, parts: tuple[Part, ...]
) -> None:
    words = verb.replace("-", " ")
    scope, root = _parameter("scope", Annotated[str, argument]), _parameter("root", Root)
    timeout, as_json_ = _parameter("timeout", TimeoutSeconds, 30), _parameter("as_json", Json, False)
    defaults = ", ".join(part.shown(default_text(part.policy)) for part in parts)

    def set_(scope: str, root: str, timeout: float, as_json: bool, **given: Any) -> None:
        values: dict[str, str | int] = {part.policy: part.value(given[part.policy]) for part in parts}
        root_admin = admin(root, timeout)
        root_admin.set_policies(full(scope), values)
        when = takes_effect(parts[0].policy, int(root_admin.effective_policy(full(scope), CHECK_SECONDS)))
        print_done(as_json, f"set {verb}{when}", scope=scope, policy=verb, value=values)

    def get(scope: str, root: str, as_json: bool) -> None:
        policies = admin(root).get_policies(full(scope))
        found = {part.policy: policies.get(part.policy) for part in parts}
        lines = (f"{part.policy}: {part.shown(found[part.policy])}" for part in parts)
        print_found(found, as_json, parts[0].shown(found[parts[0].policy]) if len(parts) == 1 else "\n".join(lines))

    def remove(scope: str, root: str, timeout: float, as_json: bool) -> None:
        admin(root, timeout).remove_policies(full(scope), *(part.policy for part in parts))
        print_done(as_json, f"removed {verb}", scope=scope, policy=verb, value=None)

    required = [part.parameter() for part in parts if part.unit != _SWITCH and part.default is None]
    optional = [part.parameter() for part in parts if part.unit == _SWITCH or part.default is not None]
    app.command(f"set-{verb}", help=f"Set the policy of {words}.")(
        with_parameters(shows_work(AWAITS_BROKER)(set_), [scope, root, *required, *optional, timeout, as_json_])
    )
    app.command(f"get-{verb}", help=f"Show the policy of {words} that is set here, or 'not set'.")(
        with_parameters(get, [scope, root, as_json_])
    )
    app.command(
        f"remove-{verb}",
        help=f"Remove the setting of {words}. A wider setting then applies, or the default ({defaults}).",
    )(with_parameters(shows_work(AWAITS_BROKER)(remove), [scope, root, timeout, as_json_]))


def _parameter(name: str, annotation: Any, *default: Any) -> inspect.Parameter:
    """A parameter of a command; one without a *default* must be given."""
    given = default[0] if default else inspect.Parameter.empty
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=given, annotation=annotation)
