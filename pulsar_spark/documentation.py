"""Parts of pages made from the code: the map of packages, rules, the states of an entry, tables and views.

``python -m pulsar_spark.documentation ARCHITECTURE.md`` writes each part between its markers.
"""

import argparse
import ast
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa

from pulsar_spark.protocol.acknowledgement.entry_states import EVENTS, STATES, TRANSITIONS
from pulsar_spark.table_specs import TABLES, TIME, TableSpec
from pulsar_spark.views.view_specs import ALL_VIEWS, ViewSpec

LAYERS = (
    "errors",
    "described",
    "protocol",
    "payloads",
    "table_specs",
    "columns",
    "transforms",
    "storage",
    "broker",
    "link",
    "views",
    "metrics",
    "documentation",
    "plots",
    "exceptions",
    "schema",
    "client",
    "functions",
    "tableview",
    "asyncio",
    "frames",
    "__init__",
    "admin",
    "testing",
    "demo",
    "cli",
    "jobs",
)
"""From the ground up."""

_PLAIN_TYPES = {
    pa.string(): "string",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.binary(): "binary",
    TIME: "timestamp",
}


def sql_type(kind: pa.DataType) -> str:
    """The SQL name of an Arrow type; KeyError for one that no table has.

    >>> sql_type(pa.map_(pa.string(), pa.string())), sql_type(pa.list_(pa.int64()))
    ('map<string, string>', 'array<bigint>')
    """
    if pa.types.is_map(kind):
        return f"map<{sql_type(kind.key_type)}, {sql_type(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{sql_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{field.name}: {sql_type(field.type)}' for field in kind)}>"
    return _PLAIN_TYPES[kind]


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown.

    >>> print(table(["state", "meaning"], [["`pending`", "delivered"]]))
    | state | meaning |
    |---|---|
    | `pending` | delivered |
    """
    names = list(header)
    lines = [" | ".join(cell.replace("|", "\\|") for cell in cells) for cells in (names, *rows)]
    return "\n".join([f"| {lines[0]} |", "|" + "---|" * len(names), *(f"| {line} |" for line in lines[1:])])


def layers() -> str:
    """What belongs in each top-level package and module."""
    return table(["package", "what belongs in it"], ((f"`{_shown(name)}`", _first_paragraph(name)) for name in LAYERS))


def decisions() -> str:
    return _as_markdown(_docstring("broker").partition("\n\n")[2].strip())


def writes() -> str:
    """The writes of a round, and what a crash between them leaves."""
    lines = _docstring("broker/round/pipeline").splitlines()
    return _as_markdown("\n".join(line for line in lines if line.startswith("|")))


def states() -> str:
    return table(["state", "meaning"], ((f"`{name}`", meaning) for name, meaning in STATES.items()))


def transitions() -> str:
    events = table(["event", "meaning"], EVENTS.items())
    made = table(
        ["state", "event", "where", "next state", "rule"],
        ((f"`{one.state}`", one.event, one.guard, f"`{one.next_state}`", one.rule) for one in TRANSITIONS),
    )
    return f"{events}\n\n{made}"


def tables() -> str:
    return "\n\n".join(map(_columns, TABLES))


def views() -> str:
    return "\n\n".join(map(_columns, ALL_VIEWS))


PARTS: dict[str, Callable[[], str]] = {
    "layers": layers,
    "decisions": decisions,
    "writes": writes,
    "states": states,
    "transitions": transitions,
    "tables": tables,
    "views": views,
}


def refreshed(page: str) -> str:
    """*page* with every part between its markers printed anew; ValueError for an unknown part."""

    def part(found: re.Match) -> str:
        if found[1] not in PARTS:
            raise ValueError(f"marker {found[1]!r} names no part: use one of {', '.join(PARTS)}")
        return f"<!-- printed: {found[1]} -->\n\n{PARTS[found[1]]()}\n\n<!-- end -->"

    return re.sub(r"<!-- printed: (\w+) -->.*?<!-- end -->", part, page, flags=re.DOTALL)


def _columns(spec: TableSpec | ViewSpec) -> str:
    rows = ((f"`{column.name}`", sql_type(column.type), column.meaning) for column in spec.columns)
    return f"### {spec.name}\n\nOne row is {spec.row}.\n\n" + table(["column", "type", "meaning"], rows)


def _shown(layer: str) -> str:
    return "pulsar_spark" if layer == "__init__" else layer


def _docstring(layer: str) -> str:
    package = Path(__file__).parent
    source = package / layer / "__init__.py" if (package / layer).is_dir() else package / f"{layer}.py"
    return ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""


def _first_paragraph(layer: str) -> str:
    return _as_markdown(" ".join(_docstring(layer).partition("\n\n")[0].split()))


def _as_markdown(docstring: str) -> str:
    """A docstring's text with names in Markdown's quotes.

    >>> _as_markdown("one :class:`TableSpec` a table, as ``pulsar`` does")
    'one `TableSpec` a table, as `pulsar` does'
    """
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", docstring.replace("``", "`"))


def main() -> None:
    """Print all parts, or write them into a page."""
    parser = argparse.ArgumentParser(prog="python -m pulsar_spark.documentation", description=__doc__)
    parser.add_argument("page", nargs="?", type=Path, help="the file whose parts are to be written")
    page = parser.parse_args().page
    if page is None:
        print("\n\n".join(part() for part in PARTS.values()))
    else:
        page.write_text(refreshed(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
