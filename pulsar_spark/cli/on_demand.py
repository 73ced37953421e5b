"""Commands that are imported on use, so that ``--help`` and each command start quickly."""

import importlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup

from pulsar_spark.cli.logs import let_all_log, logs


class Entry(NamedTuple):
    """A command or group: its place as ``module:attribute``, and a sentence for lists."""

    place: str
    summary: str

    def load(self, name: str) -> Any:
        module, _, attribute = self.place.partition(":")
        found = getattr(importlib.import_module(f"pulsar_spark.cli.{module}"), attribute)
        parent = typer.Typer(rich_markup_mode=None)
        parent.callback()(lambda: None)
        if isinstance(found, typer.Typer):
            let_all_log(found)
            has_own_help = found.info.invoke_without_command is True
            parent.add_typer(found, name=name, help=found.info.help if has_own_help else self.summary)
        else:
            parent.command(name)(logs(found))
        return typer.main.get_group(parent).commands[name]


class Commands(Mapping[str, Any]):
    def __init__(self, table: Mapping[str, Entry]):
        self.table = table
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = self.table[name].load(name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.table)

    def __len__(self) -> int:
        return len(self.table)


def group_of(table: Mapping[str, Entry]) -> type[TyperGroup]:
    """A group class with the commands of *table*, listed without importing them."""

    class OnDemand(TyperGroup):
        def __init__(self, **settings: Any):
            super().__init__(**{**settings, "commands": Commands(table)})

        def list_commands(self, ctx: Any) -> list[str]:
            return [*table]

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            with formatter.section("Commands"):
                formatter.write_dl([(name, entry.summary) for name, entry in table.items()])

    return OnDemand
