"""Rows of ``cursor_ledger`` are built in one place, and each kind the table knows has its function there."""

import ast
from pathlib import Path

import pulsar_spark
from pulsar_spark.storage.cursor_ledger.cursor_ledger import KEYS, OF_ONE_ROUND

PACKAGE = Path(pulsar_spark.__file__).parent
HOME = PACKAGE / "broker" / "committing" / "facts.py"
RANGES = PACKAGE / "broker" / "committing" / "round_rows.py"
KINDS = {*KEYS, *OF_ONE_ROUND, "range"}
OTHER_TABLES = {
    "storage/cursor_ledger/reprocessing.py": "rows of reprocessing",
    "storage/repair/examination.py": "findings",
    "views/views.py": "rows of a view",
}
"""Modules that build rows of something else, with kinds of the same names."""


def kinds_built(path: Path) -> set[str]:
    """The kinds of rows a module builds: ``dict(kind="...")`` and ``{"kind": "..."}``; not rows of the plan."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Dict):
            pairs = [(key.value, value) for key, value in zip(node.keys, node.values) if isinstance(key, ast.Constant)]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
            pairs = [(keyword.arg, keyword.value) for keyword in node.keywords]
        else:
            continue
        is_of_the_plan = "cursor" in {name for name, _ in pairs}  # its rows name their cursor by number
        if not is_of_the_plan:
            found |= {value.value for name, value in pairs if name == "kind" and isinstance(value, ast.Constant)}
    return found


def test_no_other_module_builds_rows_of_a_round():
    builders = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if path not in (HOME, RANGES) and name not in OTHER_TABLES and (kinds := kinds_built(path) & KINDS):
            builders[name] = kinds
    assert not {name: kinds for name, kinds in builders.items() if not name.startswith("admin/")}, (
        "use broker/committing/facts.py"
    )
    assert builders in ({}, {"admin/policies.py": {"policy"}}), "requests have a kind of that name, and only there"


def test_a_row_that_is_built_elsewhere_is_seen(tmp_path):
    """The test above can fail."""
    path = tmp_path / "elsewhere.py"
    path.write_text(
        'a = dict(kind="cursor", x=1)\nb = {"kind": "topic"}\nc = f(kind="range")\nd = dict(cursor=1, kind="range")\n'
    )
    assert kinds_built(path) == {"cursor", "topic"}


def test_every_kind_has_its_function():
    sources = [ast.parse(path.read_text(encoding="utf-8")) for path in (HOME, RANGES)]
    said = {
        node.value
        for source in sources
        for node in ast.walk(source)
        if isinstance(node, ast.Constant) and node.value in KINDS
    }
    assert said == KINDS
