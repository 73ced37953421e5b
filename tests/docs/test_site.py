"""The pages lead somewhere: links and anchors exist, every page is in the menu, the site is built without a warning."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, REPOSITORY, SITE, anchors_of, links_of, name_of
from tests.support.judging import failures

VERSIONS = {"0.0", "1.0", "4.99"}
"""Numbers in brackets that are no rules."""


def test_links_lead_to_files_and_headings():
    assert failures(_links_are_good, PAGES, name_of) == {}


def _links_are_good(page: Path) -> None:
    lost = []
    for link in links_of(page.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            lost.append(link)
        elif anchor and anchor not in anchors_of(target.read_text(encoding="utf-8")):
            lost.append(link)
        elif SITE in page.parents and SITE not in target.parents:
            lost.append(f"{link} leads out of the site")
    assert not lost, lost


def test_the_site_is_built_without_a_warning(tmp_path):
    pytest.importorskip("material", reason="pip install '.[docs]'")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", "conf/mkdocs.yml", "-d", str(tmp_path)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "index.html").exists()
    assert failures(_works_offline, sorted(tmp_path.rglob("*.html")), str) == {}


def _works_offline(page: Path) -> None:
    """A page loads nothing from elsewhere; the theme's script would load Mermaid for a block of that class."""
    text = page.read_text(encoding="utf-8")
    loaded = re.findall(r"<(?:script|img|iframe)\b[^>]*\bsrc=[\"']?((?:https?:)?//[^\"' >]+)", text)
    loaded += re.findall(r"<link\b(?![^>]*rel=[\"']?canonical)[^>]*\bhref=[\"']?((?:https?:)?//[^\"' >]+)", text)
    assert not loaded and 'class="mermaid"' not in text, loaded


def test_the_reference_is_fresh():
    generate = runpy.run_path(str(SITE / "generate.py"))
    stale = {
        name
        for name, page in generate["WRITTEN"].items()
        if (SITE / "reference" / name).read_text(encoding="utf-8") != page()
    }
    assert stale == set(), "run: python docs/generate.py"


def test_the_pictures_are_fresh():
    draw = runpy.run_path(str(SITE / "pictures" / "draw.py"))
    stale = {
        name
        for name, picture in draw["PICTURES"].items()
        if (SITE / "pictures" / f"{name}.svg").read_text(encoding="utf-8") != picture().svg()
    }
    assert stale == set(), "run: python docs/pictures/draw.py"


def test_the_examples_of_plots_are_fresh():
    """Each function of ``pulsar_spark.plots`` has its example; another release of matplotlib may draw it otherwise."""
    matplotlib = pytest.importorskip("matplotlib", reason="pip install '.[plots]'")
    matplotlib.use("Agg")
    draw = runpy.run_path(str(SITE / "pictures" / "draw_plots.py"))
    page = (SITE / "how-to" / "plots.md").read_text(encoding="utf-8")
    stale = set()
    for name, example in draw["EXAMPLES"].items():
        assert f"plots.{name}(" in page and f"(../pictures/plots/{name}.svg)" in page
        drawn, there = draw["svg"](example), (draw["FOLDER"] / f"{name}.svg").read_text(encoding="utf-8")
        is_of_this_release = f"Matplotlib v{matplotlib.__version__}," in there
        if drawn != there and is_of_this_release:
            stale.add(name)
    assert stale == set(), "run: python docs/pictures/draw_plots.py"


def test_every_number_of_a_rule_that_the_code_cites_is_on_the_page():
    page = (SITE / "explanation" / "semantics.md").read_text(encoding="utf-8")
    known = set(re.findall(r"^- \*\*(\d\.\d+)\*\*", page, flags=re.MULTILINE))
    cited = {
        number: path.name
        for path in (REPOSITORY / "pulsar_spark").rglob("*.py")
        for said in re.findall(
            r"(?:semantics|rules?|\()\s*((?:\d\.\d{1,2}(?:-\d\.\d{1,2})?(?:, | and )?)+)", path.read_text()
        )
        for number in re.findall(r"\d\.\d{1,2}", said)
    }
    assert {number: path for number, path in cited.items() if number not in known | VERSIONS and number[0] < "6"} == {}
