"""A measured figure, what it is compared with, and the budget it has to keep (design 4.3)."""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

SECONDS = "s"
PER_SECOND = "/s"
BYTES = "B"
COUNT = ""
"""Of things that are counted: what they are is said in the figure's words."""


class Budget(NamedTuple):
    """A limit for a figure or, with *is_ratio*, for its ratio to what it is compared with: at most or at least."""

    limit: float
    is_most: bool = True
    is_ratio: bool = False


class Figure(NamedTuple):
    """One line of the table. *runs* are what was measured; *other_runs* belong to them pair by pair, of the thing named
    by *other*.

    *parts* says where the time of a run goes: medians in seconds by name; they need not add up to the median of the
    whole.
    """

    family: str
    what: str
    unit: str
    runs: Sequence[float]
    other: str | None = None
    other_runs: Sequence[float] = ()
    budget: Budget | None = None
    parts: dict[str, float] = {}
    share: float = 0.5

    @property
    def value(self) -> float:
        """The quantile *share* of the runs: their median unless said otherwise."""
        return quantile(self.runs, self.share)

    @property
    def ratio(self) -> float | None:
        """This one's by the other's, the median over the pairs; None for a figure without comparison."""
        return (
            median(ours / theirs for ours, theirs in zip(self.runs, self.other_runs, strict=True))
            if self.other_runs
            else None
        )

    @property
    def missed_by(self) -> float | None:
        """By what part of its limit the budget is missed; 0 when it is met, None without one."""
        if self.budget is None:
            return None
        measured = self.ratio if self.budget.is_ratio else self.value
        over = measured / self.budget.limit - 1
        return max(over if self.budget.is_most else -over, 0.0)


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which *share* of the values lie; the median is that of an even count too.

    >>> quantile([3, 1, 2], 0.5), quantile([4, 1, 2, 3], 0.5), quantile(range(100), 0.99)
    (2, 2.5, 98)
    """
    if share == 0.5:
        return median(values)
    ascending = sorted(values)
    return ascending[max(round(share * len(ascending)) - 1, 0)]
