"""Code that the README and the pages show runs as it stands: a page's blocks one after the other, in one world."""

import subprocess
from contextlib import nullcontext

import pytest

from tests.docs.pages import PAGES, Block, blocks_of, name_of, world_of
from tests.docs.recipes import RESULTS
from tests.support.sessions import unchanged

SECONDS = 300
QUICK = {"README.md", "docs/start/python.md", "docs/start/spark.md", "docs/start/from-pulsar.md"}
"""Pages of the default suite whatever they take: what a reader tries first."""
MANY_COMMANDS = {"docs/how-to/operate.md", "docs/how-to/delay.md"}
"""Pages that start more than five processes."""


def _cases():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if blocks_of(text):
            world = (world_of(text) or "an empty folder").replace(" ", "_")
            is_spark = "spark" in world
            is_long = name_of(page) not in QUICK and (is_spark or name_of(page) in MANY_COMMANDS)
            marks = [*[pytest.mark.spark] * is_spark, *[pytest.mark.long] * is_long]
            yield pytest.param(page, world, id=name_of(page), marks=marks)


@pytest.mark.parametrize("page, world", [*_cases()])
def test_the_code_of_a_page_runs(page, world, request):
    given = request.getfixturevalue(world)
    names = {"__name__": "__main__", **(given if isinstance(given, dict) else {})}
    with unchanged(names["spark"]) if "spark" in names else nullcontext():
        for block in blocks_of(page.read_text(encoding="utf-8")):
            _run(block, names, name_of(page))
        if name_of(page) in RESULTS:
            RESULTS[name_of(page)](names)


def _run(block: Block, names: dict, page: str) -> None:
    if block.language == "python":
        source = "\n" * block.line + block.text  # a traceback names the line of the page
        exec(compile(source, page, "exec"), names)
    elif block.language == "sql":
        for statement in filter(str.strip, block.text.split(";")):
            names["spark"].sql(statement).collect()
    else:
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.text], capture_output=True, text=True, timeout=SECONDS
        )
        assert ran.returncode == 0, f"{page}:{block.line}\n{block.text}\n{ran.stdout}\n{ran.stderr}"
