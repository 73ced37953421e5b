"""The pages beside the code are true: printed parts are fresh, modules named exist, the map is the layers' own."""

import re
from pathlib import Path

import pytest

from pulsar_spark import documentation
from pulsar_spark.documentation import LAYERS, refreshed
from pulsar_spark.table_specs import TABLES
from pulsar_spark.views.view_specs import HISTORY, VIEWS
from tests.test_layers import MAY_IMPORT

REPOSITORY = Path(__file__).parents[1]
PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md", "tests/benchmarks/README.md")
PLACES = (REPOSITORY, REPOSITORY / "pulsar_spark")
WRITTEN = {"benchmarks/", "benchmarks.md"}
"""What a command that a page names writes, and git ignores."""


def test_the_printed_parts_of_the_page_are_fresh():
    page = (REPOSITORY / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert re.findall(r"<!-- printed: (\w+) -->", page) == ["layers", "writes"]
    assert page == refreshed(page), "run: python -m pulsar_spark.documentation ARCHITECTURE.md"


def test_a_stale_part_is_seen_and_the_rest_of_the_page_kept():
    page = "before\n<!-- printed: states -->\nstale\n<!-- end -->\nafter"
    assert "stale" not in refreshed(page) and refreshed(refreshed(page)) == refreshed(page)
    assert refreshed(page).startswith("before\n<!-- printed: states -->") and refreshed(page).endswith("end -->\nafter")
    with pytest.raises(ValueError, match="marker 'tabels' names no part"):
        refreshed("<!-- printed: tabels --><!-- end -->")


def test_the_map_has_every_layer_above_those_it_may_not_import():
    assert set(LAYERS) == set(MAY_IMPORT) - {"__main__"}
    for place, layer in enumerate(LAYERS):
        assert MAY_IMPORT[layer] <= set(LAYERS[: place + 1])


def test_everything_printed_is_said_in_words():
    assert all(f"| `{name}` | " in documentation.layers() for name in LAYERS if name != "__init__")
    assert "|  |\n" not in documentation.layers() + "\n"
    for spec in (*TABLES, *VIEWS, HISTORY):
        assert spec.row and all(column.meaning for column in spec.columns), spec.name


@pytest.mark.parametrize("name", PAGES)
def test_files_and_modules_that_a_page_names_exist(name):
    page = (REPOSITORY / name).read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w./]+/[\w./]*|\w+\.(?:py|md|cfg|toml))`", page))
    modules = {each.replace(".", "/") for each in re.findall(r"\bpulsar_spark(?:\.[a-z_]+)+", page)}
    local = {path for path in named if not path.startswith("/")} - WRITTEN
    missing = {path for path in local if not any((place / path).exists() for place in PLACES)}
    assert local and not missing
    gone = {path for path in modules if not _is_module_or_name(path)}
    assert not gone


def test_the_numbers_that_lengthen_tests_are_the_ones_that_are_said():
    page = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    said = set(re.findall(r"^\| `(PULSAR_SPARK_\w+)` ", page, flags=re.MULTILINE))
    sources = "".join(path.read_text(encoding="utf-8") for path in (REPOSITORY / "tests").rglob("test_*.py"))
    assert said == set(re.findall(r'environ\.get\("(PULSAR_SPARK_\w+)"', sources))


def _is_module_or_name(path: str) -> bool:
    """A package, a module, or a name in one of them."""
    return any(
        (REPOSITORY / each).is_dir() or (REPOSITORY / f"{each}.py").is_file()
        for each in (path, path.rpartition("/")[0])
        if each.count("/")
    )
