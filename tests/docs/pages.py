"""Pages of the documentation as data: their blocks of code, the worlds these run in, their links and anchors."""

import re
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).parents[2]
SITE = REPOSITORY / "docs"
PAGES = (REPOSITORY / "README.md", *sorted(SITE.rglob("*.md")))
RUN = ("python", "bash", "sql")
"""Languages of blocks that run. Others (``text``, ``console``, ``yaml``...) are shown only."""
WORLD = "<!-- runs in: (.+) -->"
"""The line, once a page, that names the fixture in which its blocks run, one after the other."""
NOT_RUN = re.compile(r"<!-- not run: (.+) -->")
"""The line before a block that cannot run in a test, and why."""
COMMAND = re.compile(r"<!-- command: (\w+) -->")
"""The line before a block that ``.ci/run`` runs."""


class Block(NamedTuple):
    """A fenced block of code: its language, its text and the line of the page it begins at."""

    language: str
    text: str
    line: int


def name_of(page: Path) -> str:
    """A page's path from the root of the repository."""
    return page.relative_to(REPOSITORY).as_posix()


def blocks_of(text: str) -> list[Block]:
    """The blocks of a page that run, in order.

    >>> blocks_of("```python\\nx = 1\\n```\\n<!-- not run: needs an account -->\\n```bash\\nls\\n```\\n")
    [Block(language='python', text='x = 1\\n', line=1)]
    """
    found, before = [], ""
    lines = text.splitlines(keepends=True)
    number = 0
    while number < len(lines):
        fence = re.match(r"( *)```(\w*)\s*$", lines[number])
        if not fence:
            before, number = lines[number].strip() or before, number + 1
            continue
        first = number + 1
        number = next(each for each in range(first, len(lines)) if lines[each].strip() == "```")
        body = "".join(line.removeprefix(fence[1]) for line in lines[first:number])
        skipped = NOT_RUN.match(before) or COMMAND.match(before)
        if fence[2] in RUN and not skipped:
            found.append(Block(fence[2], body, first))
        before, number = "", number + 1
    return found


def world_of(text: str) -> str | None:
    """The name of the fixture in which a page's blocks run, None where none is named."""
    named = re.search(WORLD, text)
    return named and named[1]


def anchors_of(text: str) -> set[str]:
    """The anchors of a page's headings, as code hosts and the site make them.

    >>> sorted(anchors_of("# What it is\\n## Time to live (TTL)\\n"))
    ['time-to-live-ttl', 'what-it-is']
    """
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def links_of(text: str) -> list[str]:
    """Targets of a page's links and pictures, but for those on the web.

    >>> links_of("[a](b.md#c) ![d](e.svg) [f](https://g) `[h](i)`")
    ['b.md#c', 'e.svg']
    """
    text = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]
