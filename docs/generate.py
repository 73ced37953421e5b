"""Writes the reference pages from the code: ``python docs/generate.py``; a test holds that they are fresh.

Each page comes from one place: commands from the command line's own help, policies from ``protocol.policies``, tables
and views from their specs, errors and functions from their docstrings.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import typer

REPOSITORY = Path(__file__).parents[1]
sys.path.insert(0, str(REPOSITORY))
PAGES = REPOSITORY / "docs" / "reference"
FRESH = "<!-- Made by docs/generate.py from the code: change it there. -->"
PUBLIC = {
    "pulsar_spark": "The client, with the names of the `pulsar` package.",
    "pulsar_spark.asyncio": "The client for programs on `asyncio`.",
    "pulsar_spark.schema": "Schemas, with the names of `pulsar.schema`.",
    "pulsar_spark.frames": "DataFrames: publish, consume, read, dead letters.",
    "pulsar_spark.views": "Views over the state of a root.",
    "pulsar_spark.plots": "Pictures of a root's state, for notebooks.",
    "pulsar_spark.admin": "Administration of a root, without a JVM.",
    "pulsar_spark.broker.runner": "A broker in your own program or notebook.",
    "pulsar_spark.broker.service.process": "A broker for all bundles, until a signal.",
    "pulsar_spark.storage.session": "Spark sessions.",
    "pulsar_spark.views.catalog": "Names in a catalog.",
}
"""Modules whose public names the Python page has, and a sentence for each."""
NAMES = {
    "pulsar_spark.broker.runner": ["Broker"],
    "pulsar_spark.broker.service.process": ["run_broker"],
    "pulsar_spark.storage.session": ["spark_session"],
    "pulsar_spark.views.catalog": ["register"],
}
"""What is for users of a module that has more."""


def markdown(said: str | None) -> str:
    """A docstring in Markdown: roles of Sphinx and double quotes become code."""
    text = inspect.cleandoc(said or "")
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text.replace("``", "`"))


def first_sentence(said: str | None) -> str:
    """The first sentence of a docstring, in one line."""
    paragraph = " ".join(markdown(said).partition("\n\n")[0].split())
    return re.split(r"(?<=[.!?])\s+(?=[A-Z`])", paragraph)[0]


def cell(said: str) -> str:
    """Text that stands in a cell of a table."""
    return " ".join(said.replace("|", "\\|").split())


def commands(group: object, names: tuple[str, ...] = ()) -> Iterator[tuple[str, object]]:
    """Every command below a group, with its full name."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*names, name))
        else:
            yield " ".join((*names, name)), command


def command_line() -> str:
    """Every command, its arguments and options."""
    from pulsar_spark.cli import app

    root = typer.main.get_command(app)
    parts = [
        "# Command line",
        FRESH,
        "Commands with an option `--root` also accept the environment variable `PULSAR_SPARK_ROOT` instead. `pulsar-spark COMMAND --help` says the same as this page.",
    ]
    for name, command in commands(root):
        arguments = [each for each in command.params if each.param_type_name == "argument"]
        options = [
            each
            for each in command.params
            if each.param_type_name == "option" and not each.hidden and each.name != "help"
        ]
        words = " ".join(each.name.upper() if each.required else f"[{each.name.upper()}]" for each in arguments)
        parts.append(f"## {name}")
        parts.append(f"`pulsar-spark {name}{' ' + words if words else ''}`")
        parts.append(markdown(command.help))
        if options:
            rows = [
                f"| `{'`, `'.join(each.opts + each.secondary_opts)}` | {cell(each.help or '')} |" for each in options
            ]
            parts.append("\n".join(["| option | what it does |", "|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def tables() -> str:
    """Tables and views with their columns."""
    from pulsar_spark import documentation

    return "\n\n".join(
        [
            "# Tables and views",
            FRESH,
            "Every table is a Delta table below the root. The broker's tables lie in the folder of their bundle, below `_bundles`. [Design](../explanation/design.md#2-words) explains letter, code and other words of the columns. If rows of several kinds share a table, a meaning begins with the kinds of rows that it is about.",
            "## Tables",
            documentation.tables(),
            "## Views",
            "`create_views(spark, root)` of `pulsar_spark.views` makes them in a session.",
            documentation.views(),
            "",
        ]
    )


POLICY_GROUPS = {
    "Limits of consumers and messages": ("max_", "active_consumer"),
    "Time to live, quotas, retention": ("message_ttl", "ttl_", "backlog_", "retention_", "subscription_expiration"),
    "Delayed delivery": ("delayed_",),
    "Key_Shared": ("subscription_key_shared", "key_shared"),
    "Deduplication and compaction": ("deduplication", "compaction", "topic_compaction"),
    "Housekeeping and history": ("housekeeping", "history", "time_travel"),
    "Schemas": ("schema", "is_allow"),
}
"""Headings of the page of policies, and how the names below each begin."""

POLICY_EFFECTS = {
    "max_unacked_messages_per_consumer": "A Shared or Key_Shared consumer with this many unacknowledged messages gets no more until half of them are acknowledged. 0: no limit.",
    "max_unacked_messages_per_subscription": "The same limit for all consumers of a Shared or Key_Shared subscription together. 0: no limit.",
    "max_consumers_per_subscription": "A further consumer is refused with ConsumerBusy. 0: no limit.",
    "active_consumer_failover_delay_ms": "How long the next consumer of a Failover subscription waits before it takes over.",
    "message_ttl_seconds": "Time to live: older messages expire, which acknowledges them on every subscription. 0: never.",
    "ttl_check_seconds": "How often the broker checks time to live, quotas and idle subscriptions.",
    "backlog_quota_bytes": "The largest backlog of a topic. 0: no limit.",
    "backlog_quota_seconds": "The greatest age of a message in the backlog. 0: no limit.",
    "backlog_quota_policy": "What a full backlog does: hold or refuse producers, or acknowledge the oldest messages.",
    "retention_seconds": "How long trimming keeps acknowledged messages. -1: forever.",
    "retention_bytes": "How many bytes of acknowledged messages trimming keeps. -1: all.",
    "subscription_expiration_minutes": "A subscription that had no consumers for so long is deleted. 0: never.",
    "max_message_size": "A larger message is refused, or sent in chunks. It also limits a chunk.",
    "delayed_delivery_active": "Whether Shared and Key_Shared subscriptions wait for deliver times.",
    "delayed_delivery_tick_ms": "The least time between two rounds that are run only for due messages.",
    "delayed_delivery_max_delay_ms": "A message with a longer delay is refused with NotAllowedError. 0: no limit.",
    "subscription_key_shared_use_consistent_hashing": "1: a ring of hashes decides which consumer owns a key. 0: ranges that are split in halves.",
    "subscription_key_shared_consistent_hashing_replica_points": "Points of each consumer on the ring.",
    "subscription_key_shared_one_owner_per_point": "1: each point of the ring has one owner, as in Pulsar 4.0. 0: several consumers may share a point, as in 3.2.",
    "subscription_key_shared_use_classic_persistent_implementation": "1: as in Pulsar 3.2, a new consumer gets no later message until all that were delivered before it joined are acknowledged. 0: only keys that move wait, each for its former consumer.",
    "key_shared_look_ahead_msg_in_replay_threshold_per_consumer": "A round looks past messages whose keys must wait, to find others: past this many for each consumer.",
    "key_shared_look_ahead_msg_in_replay_threshold_per_subscription": "The most messages that a round looks past for all consumers of a subscription together.",
    "deduplication_enabled": "Whether a message is dropped if its producer name has stored its sequence id or a higher one before.",
    "deduplication_producer_inactivity_timeout_minutes": "The sequence ids of a producer name that stored nothing for so long are forgotten. 0: never.",
    "compaction_threshold": "A broker compacts a topic once this many bytes are not compacted yet. 0: never.",
    "topic_compaction_retain_null_key": "Whether messages without a key stay in the compacted view.",
    "housekeeping": "Whether brokers join small files and remove old ones in the tables of these topics.",
    "history_retention_seconds": "How long the views history and rounds reach back.",
    "time_travel_retention_seconds": "How long older versions of a table can be read. For the broker's own tables the default is an hour, or the last 400 versions if they are younger.",
    "schema_compatibility_strategy": "Which new schemas fit those that the topic has.",
    "is_allow_auto_update_schema": "Whether producers may bring a new version of the schema.",
    "schema_validation_enforced": "Whether producers without a schema are refused.",
}
"""What each policy does."""


def policies() -> str:
    """Every policy: name, default, unit, values, effect, and from when on it holds."""
    from pulsar_spark.protocol.policies import policy_descriptions
    from pulsar_spark.protocol.policies.policies import CHECKED, POLICIES, values_of

    def holds_from(name: str) -> str:
        if name in CHECKED:
            return "the next check"
        if name.startswith("retention_"):
            return "the next trim"
        return "the next first consumer" if name.startswith("subscription_key_shared") else "the next round"

    def row(name: str) -> str:
        unit = policy_descriptions.description(name).unit
        default = " ".join(filter(None, (str(POLICIES[name]), unit if unit != "on/off" else "")))
        since = holds_from(name)
        effect = POLICY_EFFECTS[name] + (f" Holds from {since} on." if since != "the next round" else "")
        return (
            f"| `{name}` | {default} | {cell(effect)} | {cell(values_of(name)).removeprefix('a whole number from ')} |"
        )

    tables = []
    for title, beginnings in POLICY_GROUPS.items():
        names = [name for name in POLICIES if name.startswith(beginnings)]
        tables += [f"## {title}", "", "| policy | default | what it does | values |", "|---|---|---|---|"]
        tables += [*map(row, names), ""]
    return "\n".join(
        [
            "# Policies\n",
            FRESH + "\n",
            "Every policy can be set for a topic, a namespace, or the root (named `broker`). The topic's own setting counts first, then that of its namespace, then that of the root, then the default.\n",
            "A change holds from the next round on, unless the table says otherwise. A *check* of the broker runs every `ttl_check_seconds`. A *trim* is a run of `pulsar-spark maintain trim`. A *first consumer* is one that connects while its subscription has no other.\n",
            *tables,
            "## Set and remove",
            "",
            "```text",
            "pulsar-spark policies set public/default message_ttl_seconds 86400",
            "pulsar-spark policies remove public/default message_ttl_seconds",
            "```",
            "",
        ]
    )


def decisions() -> str:
    """Which rule decides what, and where."""
    from pulsar_spark import documentation

    return f"# Who decides what\n\n{FRESH}\n\n{documentation.decisions()}\n"


def states() -> str:
    """The states of an entry, and every transition."""
    from pulsar_spark import documentation

    return (
        f"# States of an entry\n\n{FRESH}\n\n"
        "Requests, permits and limits decide to which entries an event happens. The tables below say in which state it "
        "leaves them. Tests compare them with the plain model of a broker, in the cases of the specification and in "
        "random histories.\n\n"
        "![The states of an entry, and the events that lead from one to another](../pictures/states.svg)\n\n"
        f"{documentation.states()}\n\n## Transitions\n\n{documentation.transitions()}\n\n"
        "In every state, the entry of a batch also records which of its messages are unacknowledged (`ack_set`).\n"
    )


def errors() -> str:
    """Every error, by branch."""
    from pulsar_spark import errors as module

    classes = [
        each
        for _, each in inspect.getmembers(module, inspect.isclass)
        if issubclass(each, module.PulsarSparkError) and each.__module__ == module.__name__
    ]
    parts = [
        "# Errors",
        FRESH,
        "All derive from `PulsarSparkError`. `InvalidRequest` is the caller's fault: nothing was changed. `CorruptState` means that stored rows break a rule: nothing was written after it was seen. The few others are neither: another broker took over, or data is not ready or no longer there. The text of each error says what happened, names the value and says what to do.",
        "`pulsar_spark.exceptions` has the same names, as scripts written for `pulsar` expect them.",
        "| error | is a | when, and what to do |",
        "|---|---|---|",
    ]
    rows = [
        f"| `{each.__name__}` | {', '.join(f'`{base.__name__}`' for base in each.__bases__)} | {cell(markdown(each.__doc__))} |"
        for each in sorted(classes, key=lambda each: each.__name__)
    ]
    return "\n\n".join(parts[:-2]) + "\n\n" + "\n".join(parts[-2:] + rows) + "\n"


def signature(function: Callable) -> str:
    """A function's arguments without their types, which its docstring says in words."""
    parameters = [
        each.replace(annotation=inspect.Parameter.empty) for each in inspect.signature(function).parameters.values()
    ]
    shown = inspect.Signature([each for each in parameters if each.name not in ("self", "cls")])
    enumerated = re.sub(r"<(\w+\.\w+): [^>]+>", r"\1", re.sub(r"<function [\w.]*<lambda>[^>]*>", "...", str(shown)))
    return re.sub(r"<(?:function |class ')?(?:[\w.]+\.)?(\w+)[^>]*>", r"\1", enumerated)  # no addresses


def methods_of(owner: type, shown: set[type]) -> list[tuple[str, Callable]]:
    """The public methods of a class, its own first, then documented ones of its bases, but for bases that are *shown*
    themselves."""
    found: dict[str, Callable] = {}
    for each in owner.__mro__:
        if each is owner or (each.__module__.startswith("pulsar_spark") and each not in shown):
            for method, function in vars(each).items():
                if inspect.isfunction(function) and not method.startswith("_") and (each is owner or function.__doc__):
                    found.setdefault(method, function)
    return list(found.items())


def python() -> str:
    """Public names with their arguments and docstrings."""
    parts = ["# Python API", FRESH, "`help()` shows the same, with the types of arguments."]
    for name, sentence in PUBLIC.items():
        module = importlib.import_module(name)
        parts += [f"## {name}", sentence]
        names = sorted(each for each in NAMES.get(name) or module.__all__ if not each.startswith("_"))
        shown = {value for value in (getattr(module, public) for public in names) if inspect.isclass(value)}
        for public in names:
            value = getattr(module, public)
            if inspect.isclass(value) and not issubclass(value, Exception):
                parts.append(f"### {public}")
                parts.append(markdown(value.__doc__))
                rows = [
                    f"| `{method}{cell(signature(function))}` | {cell(first_sentence(function.__doc__))} |"
                    for method, function in methods_of(value, shown)
                ]
                if rows:
                    parts.append("\n".join(["| method | what it does |", "|---|---|", *rows]))
            elif inspect.isfunction(value):
                parts.append(f"### {public}")
                parts.append(f"`{public}{signature(value)}`")
                parts.append(markdown(value.__doc__))
    return "\n\n".join(parts) + "\n"


WRITTEN: dict[str, Callable[[], str]] = {
    "command-line.md": command_line,
    "policies.md": policies,
    "tables.md": tables,
    "errors.md": errors,
    "decisions.md": decisions,
    "states.md": states,
    "python.md": python,
}


def main() -> None:
    PAGES.mkdir(exist_ok=True)
    for name, page in WRITTEN.items():
        (PAGES / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
