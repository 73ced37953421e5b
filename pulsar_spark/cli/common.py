"""Shared options of commands, and printing for people or, with ``--json``, for programs."""

import contextlib
import functools
import json
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from pulsar_spark.cli.signals import exit_code
from pulsar_spark.errors import InvalidConfiguration, NamespaceNotFound, PulsarSparkError

if TYPE_CHECKING:
    from pulsar_spark.admin import Admin

_ROOT = typer.Option(
    "--root", envvar="PULSAR_SPARK_ROOT", show_envvar=True, help="The root: a folder or the URL of a store."
)
Root = Annotated[str, _ROOT]
RootOrNone = Annotated[str | None, _ROOT]
TOPIC_ARGUMENT = typer.Argument(help="'topic', 'tenant/namespace/topic' or 'persistent://tenant/namespace/topic'.")
Topic = Annotated[str, TOPIC_ARGUMENT]
CreateTopic = Annotated[bool, typer.Option("--create", help="Create a missing topic, without partitions.")]
Subscription = Annotated[str, typer.Option("--subscription", "-s", help="Name of the subscription.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="How many to list.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")]
Force = Annotated[bool, typer.Option("--force", help="Delete even while consumers are connected.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
TimeoutSeconds = Annotated[float, typer.Option("--timeout", min=0, help="Seconds to wait for the broker's answer.")]

AWAITS_BROKER = "waiting for the broker's answer"

_MOVES = re.compile(r"[\0-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")

progress_console = Console(stderr=True)
"""On standard error: standard output has only results."""


def chosen(enable: bool | None) -> bool:
    """The value of ``--enable/--disable``; :class:`InvalidConfiguration` without one."""
    if enable is None:
        raise InvalidConfiguration("neither on nor off: give --enable or --disable")
    return enable


def service_url(root: str) -> str:
    return f"delta:{root}"


def admin(root: str, timeout_seconds: float = 30) -> "Admin":
    """Imports Arrow only here, so that ``--help`` is quick."""
    from pulsar_spark.admin import Admin

    return Admin(service_url(root), timeout_seconds=timeout_seconds)


@contextlib.contextmanager
def errors_as_one_line() -> Iterator[None]:
    """Print errors raised on purpose, and the end of Spark's JVM, as one line with exit code 1; exit with 130 on
    Ctrl-C."""
    try:
        yield
    except PulsarSparkError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        sys.exit(exit_code(signal.SIGINT))
    except _errors_of_java() as error:
        from pulsar_spark.broker.round.isolation import is_spark_gone

        if not is_spark_gone(error):
            raise
        sys.exit("Spark's JVM has ended: its output above says why; run the command again")


def _errors_of_java() -> tuple[type[Exception], ...]:
    found = sys.modules.get("py4j.protocol")
    return (found.Py4JError,) if found else ()


def working(what: str) -> contextlib.AbstractContextManager:
    return progress_console.status(what)


def shows_work(what: str) -> Callable[[Callable], Callable]:
    """Decorate a command with :func:`working`."""

    def decorate(command: Callable) -> Callable:
        @functools.wraps(command)
        def run(*args, **kwargs):
            with working(what):
                return command(*args, **kwargs)

        return run

    return decorate


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False))


def note_missing(root: str, namespace: str | None) -> None:
    from pulsar_spark.storage.layout import Layout
    from pulsar_spark.storage.topics.namespaces import check_namespace

    try:
        if namespace is not None:
            check_namespace(Layout(root), namespace)
    except NamespaceNotFound as missing:
        progress_console.print(str(missing), highlight=False, markup=False, soft_wrap=True)


def print_found(found: Any, as_json: bool, text: str) -> None:
    if as_json:
        print_json(found)
    else:
        typer.echo(text)


def print_done(as_json: bool, text: str, **facts: Any) -> None:
    print_found(facts, as_json, text)


def print_listed(
    found: Any, as_json: bool, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, none: str = "none"
) -> None:
    """Print *found* as JSON, or its *rows* as a table."""
    if as_json:
        print_json(found)
    else:
        print_table(columns, [*rows], none=none)


def print_each(
    found: Iterable[dict], as_json: bool, columns: Sequence[str], row: Callable[[dict], Sequence[Any]], *, none: str
) -> None:
    """Print each of *found* as a line of JSON, or the *row* of each in a table."""
    if not as_json:
        print_table(columns, [row(each) for each in found], none=none)
        return
    for each in found:
        print_json(each)


def visible(text: str) -> str:
    """*text* with characters escaped that move the cursor or reverse writing, as names may have them.

    >>> visible("a\\x1b[31m\\u202eb")
    'a\\\\x1b[31m\\\\u202eb'
    """
    return _MOVES.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def on_one_line(text: str) -> str:
    """*text* as :func:`visible` has it, with ends of lines escaped, too."""
    return visible(text).replace("\n", r"\n")


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None, *, none: str = "none"
) -> None:
    """Print a table with numbers right-aligned; on a narrow screen a block per row; *none* without rows."""
    if not rows:
        typer.echo(f"{title}: {none}" if title else none)
        return
    console = Console(markup=False)
    title = title and visible(title)
    cells = [["" if cell is None else visible(str(cell)) for cell in row] for row in rows]
    is_number = [all(type(row[index]) is int for row in rows) for index in range(len(columns))]
    if console.width < _least_width(columns, cells, is_number):
        for number, row in enumerate(cells):
            block = Table(title=None if number else title, title_justify="left", box=None, show_header=False)
            block.add_column(no_wrap=True)
            block.add_column(overflow="fold")
            for column, cell in zip(columns, row, strict=True):
                block.add_row(column, cell)
            console.print(*([""] if number else []), block, sep="\n")
        return
    table = Table(title=title, title_justify="left")
    for column, is_right in zip(columns, is_number, strict=True):
        table.add_column(column, justify="right" if is_right else "left", overflow="fold")
    for row in cells:
        table.add_row(*row)
    console.print(table)


def _least_width(columns: Sequence[str], cells: Sequence[Sequence[str]], is_number: Sequence[bool]) -> int:
    widths = [
        max(map(len, column.split() + [row[index] for row in cells if is_number[index]]), default=0)
        for index, column in enumerate(columns)
    ]
    return sum(widths) + 3 * len(columns) + 1
