"""The pages lead somewhere: links and anchors exist, every page is in the menu, the site is built without a warning."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, REPOSITORY, SITE, anchors_of, links_of, name_of
from tests.support.judging import failures


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
