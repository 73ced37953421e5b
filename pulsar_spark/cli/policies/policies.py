"""``pulsar-spark policies``, and helpers for policies with their own commands."""

from collections.abc import Callable
from typing import Annotated, Any

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
    print_listed,
    shows_work,
)
from pulsar_spark.protocol.policies.policies import CHECK_SECONDS, POLICIES, values_of
from pulsar_spark.protocol.policies.policy_descriptions import description, policy_line, takes_effect

app = typer.Typer(no_args_is_help=True)
_NEGATIVE_NUMBERS = {"ignore_unknown_options": True}
"""-1 is a value, not an option."""
Scope = Annotated[
    str,
    typer.Argument(
        help="'tenant/namespace', 'topic' or 'persistent://tenant/namespace/topic', or 'broker' for the whole root."
    ),
]
Enable = Annotated[
    bool | None,
    typer.Option("--enable/--disable", "-e/-d", help="Whether repeated messages of a producer are dropped."),
]
Name = Annotated[str, typer.Argument(help="Such as max_unacked_messages_per_consumer; 'policies list' shows all.")]


@app.command("list")
def list_(as_json: Json = False):
    """List all policies, one per line: name, default, unit and effect; with --json also the allowed values. 0 means off
    or no limit, unless stated otherwise."""
    found = [
        {"policy": name, "default": default, "values": values_of(name), **description(name)._asdict()}
        for name, default in POLICIES.items()
    ]
    print_found(found, as_json, "\n".join(map(policy_line, POLICIES)))


@app.command()
def get(scope: Scope, root: Root, as_json: Json = False):
    """Show the policies that were set."""
    found = admin(root).get_policies(scope)
    print_listed(found, as_json, ["policy", "value"], list(found.items()))


@app.command("set", context_settings=_NEGATIVE_NUMBERS)
@shows_work(AWAITS_BROKER)
def set_(scope: Scope, name: Name, value: str, root: Root, timeout: TimeoutSeconds = 30, as_json: Json = False):
    """Set a policy of an existing namespace or topic, or of the whole root. If it does not take effect at once, the
    output says when."""
    root_admin = admin(root, timeout)
    root_admin.set_policy(scope, name, value)
    when = takes_effect(name, int(root_admin.effective_policy(scope, CHECK_SECONDS)))
    print_done(as_json, f"set {name}{when}", scope=scope, policy=name, value=value)


@app.command()
@shows_work(AWAITS_BROKER)
def remove(scope: Scope, name: Name, root: Root, timeout: TimeoutSeconds = 30, as_json: Json = False):
    """Remove a policy that is set here. A wider setting then applies, or the default."""
    admin(root, timeout).remove_policy(scope, name)
    print_done(as_json, f"removed {name}", scope=scope, policy=name, value=None)


def add_get_and_remove(
    app: typer.Typer,
    argument: ArgumentInfo,
    full: Callable[[str], str],
    policy: str,
    shown: Callable[[Any], str],
    default: str,
) -> None:
    """Add ``get-`` and ``remove-`` of a *policy* to *app*. The scope is their *argument*, which *full* completes;
    *shown* formats a setting; *default* is for none."""
    method, words = policy.replace("-", "_"), policy.replace("-", " ")

    @app.command(f"get-{policy}", help=f"Show the policy of {words} that is set here, or 'not set'.")
    def get_policy(scope: Annotated[str, argument], root: Root, as_json: Json = False):
        found = getattr(admin(root), f"get_{method}")(full(scope))
        print_found(found, as_json, "not set" if found is None else shown(found))

    @app.command(
        f"remove-{policy}",
        help=f"Remove the setting of {words}. A wider setting then applies, or the default ({default}).",
    )
    @shows_work(AWAITS_BROKER)
    def remove_policy(scope: Annotated[str, argument], root: Root, timeout: TimeoutSeconds = 30, as_json: Json = False):
        getattr(admin(root, timeout), f"remove_{method}")(full(scope))
        print_done(as_json, f"removed {policy}", scope=scope, policy=policy, value=None)


def add_deduplication(app: typer.Typer, argument: ArgumentInfo, full: Callable[[str], str]) -> None:
    """Add ``set-``, ``get-`` and ``remove-deduplication`` to *app*. The scope is their *argument*, which *full*
    completes."""

    @app.command("set-deduplication")
    @shows_work(AWAITS_BROKER)
    def set_deduplication(
        scope: Annotated[str, argument],
        root: Root,
        enable: Enable = None,
        timeout: TimeoutSeconds = 30,
        as_json: Json = False,
    ):
        """Set whether messages are deduplicated by producer name and sequence id."""
        is_on = chosen(enable)
        admin(root, timeout).set_deduplication(full(scope), is_on)
        print_done(as_json, "set deduplication", scope=scope, policy="deduplication", value=is_on)

    add_get_and_remove(app, argument, full, "deduplication", lambda found: "on" if found else "off", "off")
