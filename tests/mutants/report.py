"""What became of mutants: as lines, as rows of a table, and as the part of CONTRIBUTING.md between two marks."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from tests.mutants.mutant import Mutant

BEGIN, END = "<!-- mutants -->", "<!-- end of mutants -->"
HEAD = "| what is broken | the test that sees it | suite |\n|---|---|---|"


class Judged(NamedTuple):
    """A mutant, the test that *killed* it, or None, the *problem* of finding out, and how long that took."""

    mutant: Mutant
    killed: str | None
    problem: str | None
    seconds: float
    is_default: bool = False
    """Is that test one of the default suite?"""

    @property
    def is_killed(self) -> bool:
        return self.killed is not None

    def without(self, unsound: Collection[str]) -> "Judged":
        """The same where these tests say nothing."""
        if self.killed not in unsound:
            return self
        return self._replace(killed=None, problem=f"{self.killed} fails where nothing is broken")

    def line(self) -> str:
        """What to say of it as it is found out."""
        became = self.problem or (f"killed by {self.killed}" if self.is_killed else "SURVIVES")
        return f"{self.mutant.name}: {became} ({self.seconds:.1f} s)"

    def as_dict(self) -> dict:
        return {
            "name": self.mutant.name,
            "broken": self.mutant.broken,
            "file": self.mutant.file,
            "killed_by": self.killed,
            "is_default": self.is_default,
            "problem": self.problem,
            "seconds": round(self.seconds, 1),
        }


def row(judged: Judged) -> str:
    """Its row in the table: of the test, its file and function."""
    test = (judged.killed or "none").partition("[")[0].removeprefix("tests/")
    return f"| {judged.mutant.broken} | `{test}` | {'default' if judged.is_default else 'everything'} |"


def written(page: str, judged: Sequence[Judged]) -> str:
    """The *page* with a new table between its marks; ValueError where it has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, behind = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} and {END} to put the table between")
    return "\n".join([before + BEGIN, HEAD, *map(row, judged), END]) + behind
