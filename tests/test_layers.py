"""The map of the package: imports point up it only.

The rows of :data:`MAY_IMPORT` are the layers from the ground up: what a module of the layer may import of the package.
``errors`` and ``described`` are free to all.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.judging import failures

PACKAGE = Path(__file__).parents[1] / "pulsar_spark"

GROUND = {"protocol", "table_specs"}
BROKER = {"protocol", "table_specs", "columns", "transforms", "storage", "broker"}
MAY_IMPORT = {
    "errors": set(),
    "described": set(),
    "protocol": {"protocol"},
    "payloads": {"payloads"},
    "table_specs": {"table_specs"},
    "columns": GROUND,
    "storage": GROUND | {"storage"},
    "transforms": GROUND | {"columns", "transforms"},
    "broker": BROKER,
    "link": GROUND | {"storage", "link"},
    "views": GROUND | {"storage", "views"},
    "metrics": GROUND | {"storage", "views", "metrics"},
    "documentation": GROUND | {"views"},
    "plots": GROUND | {"storage", "views", "plots"},
    "exceptions": set(),
    "functions": {"client", "functions"},
    "schema": GROUND | {"schema"},
    "client": GROUND | {"payloads", "storage", "schema", "link", "client"},
    "frames": GROUND | {"payloads", "storage", "schema", "link", "client", "views", "columns", "transforms", "frames"},
    "asyncio": GROUND | {"payloads", "schema", "link", "client", "asyncio"},
    "tableview": {"client"},
    "__init__": GROUND | {"payloads", "client", "exceptions", "functions", "schema", "tableview"},
    "admin": BROKER | {"payloads", "schema", "link", "client", "views", "admin"},
    "testing": BROKER | {"schema", "link", "client", "testing"},
    "cli": BROKER | {"payloads", "link", "client", "frames", "views", "metrics", "admin", "cli", "demo", "__init__"},
    "jobs": BROKER | {"payloads", "client", "frames", "views", "metrics", "admin", "cli", "jobs"},
    "demo": BROKER | {"link", "client", "frames", "views", "admin", "demo", "__init__"},
    "__main__": {"cli"},
}
ONLY_STANDARD_LIBRARY_AND = {"protocol": {"mmh3", "numpy"}, "errors": set(), "described": set()}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def layer(module: str) -> str:
    """The layer of a module written as a path below the package, without ``.py``."""
    return module.split("/")[0]


def name(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").as_posix()


def imports(path: Path) -> Iterator[str]:
    """Full names of everything the file imports, at module level or inside functions."""
    package = ["pulsar_spark", *path.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) - node.level + 1]] if node.level else []
            source = ".".join(base + ([node.module] if node.module else []))
            # ``from pulsar_spark import admin`` imports the module admin, ``from pulsar_spark.errors import Timeout``
            # the module errors.
            yield from ({f"{source}.{alias.name}" for alias in node.names} if source == "pulsar_spark" else {source})


def imported_layers(path: Path) -> set[str]:
    """The layers of the package a file imports; a name taken from the package itself counts as ``__init__``."""
    found = set()
    for full_name in imports(path):
        parts = full_name.split(".")
        if parts[0] != "pulsar_spark":
            continue
        inner = parts[1] if len(parts) > 1 else "__init__"
        is_module = (PACKAGE / inner).is_dir() or (PACKAGE / f"{inner}.py").is_file()
        found.add(layer("/".join(parts[1:])) if is_module and len(parts) > 1 else "__init__")
    return found


def test_arrows_point_up():
    assert failures(_points_up, modules(), name) == {}


def _points_up(path: Path) -> None:
    where = layer(name(path))
    assert where in MAY_IMPORT, f"{where} is no layer of the map: add it to MAY_IMPORT"
    down = imported_layers(path) - MAY_IMPORT[where] - {"errors", "described"}
    assert not down, f"{name(path)} imports {sorted(down)}: {where} may import {sorted(MAY_IMPORT[where])}"


def test_the_ground_needs_nothing():
    ground = [path for path in modules() if layer(name(path)) in ONLY_STANDARD_LIBRARY_AND]
    assert failures(_needs_nothing, ground, name) == {}


def _needs_nothing(path: Path) -> None:
    tops = {full_name.split(".")[0] for full_name in imports(path)}
    foreign = tops - sys.stdlib_module_names - {"pulsar_spark"} - ONLY_STANDARD_LIBRARY_AND[layer(name(path))]
    assert not foreign, f"{name(path)} imports {sorted(foreign)}"


def test_an_arrow_that_points_down_is_seen(tmp_path, monkeypatch):
    """The test above can fail: a storage module that imports a transform in any of the four ways is found out."""
    monkeypatch.setattr(f"{__name__}.PACKAGE", tmp_path)
    for folder in ("storage", "transforms"):
        (tmp_path / folder).mkdir()
    (tmp_path / "transforms" / "__init__.py").touch()
    ways = (
        "import pulsar_spark.transforms.round",
        "from pulsar_spark.transforms import round",
        "from pulsar_spark import transforms",
        "def f():\n    from ..transforms.round import plan_round",
    )
    for number, way in enumerate(ways):
        path = tmp_path / "storage" / f"way{number}.py"
        path.write_text(way)
        assert imported_layers(path) == {"transforms"}
