"""Figures as JSON and as Markdown."""

import json
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.figures import BYTES, COUNT, PER_SECOND, Budget, Figure, quantile

HEADER = ("what", "figure", "runs", "compared with", "ratio", "budget", "")


def write(folder: Path, machine: dict[str, str], figures: Sequence[Figure]) -> None:
    """``benchmarks.json`` and ``benchmarks.md`` in *folder*, which is made if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "benchmarks.json").write_text(
        json.dumps({"machine": machine, "figures": [as_json(figure) for figure in figures]}, indent=1) + "\n"
    )
    (folder / "benchmarks.md").write_text(as_markdown(machine, figures))


def as_json(figure: Figure) -> dict:
    """Everything about a figure as plain values."""
    return {
        "family": figure.family,
        "what": figure.what,
        "value": figure.value,
        "unit": figure.unit,
        "share": figure.share,
        "runs": list(figure.runs),
        "other": figure.other,
        "other_value": quantile(figure.other_runs, figure.share) if figure.other_runs else None,
        "other_runs": list(figure.other_runs),
        "ratio": figure.ratio,
        "budget": figure.budget and figure.budget._asdict(),
        "missed_by": figure.missed_by,
        "parts": figure.parts,
    }


def as_markdown(machine: dict[str, str], figures: Sequence[Figure]) -> str:
    """The machine, a table of all figures, and a table of where the time goes for those that know."""
    lines = [f"- {name}: {value}" for name, value in machine.items()]
    lines += ["", *_table(HEADER, [_row(figure) for figure in figures])]
    parts = [
        (figure.what, ", ".join(f"{name} {shown(seconds)}" for name, seconds in figure.parts.items()))
        for figure in figures
        if figure.parts
    ]
    if parts:
        lines += ["", *_table(("what", "where the time goes (medians)"), parts)]
    return "\n".join(lines) + "\n"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]


def _row(figure: Figure) -> tuple[str, ...]:
    lowest, highest = (shown(value, figure.unit) for value in (min(figure.runs), max(figure.runs)))
    other = (
        f"{figure.other}: {shown(quantile(figure.other_runs, figure.share), figure.unit)}" if figure.other_runs else ""
    )
    ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
    return (
        figure.what,
        shown(figure.value, figure.unit),
        f"{len(figure.runs)}: {lowest} to {highest}",
        other,
        ratio,
        "" if figure.budget is None else _budget(figure.budget, figure.unit),
        _verdict(figure.missed_by),
    )


def _budget(budget: Budget, unit: str) -> str:
    limit = f"ratio {budget.limit:g}" if budget.is_ratio else shown(budget.limit, unit)
    return f"{'at most' if budget.is_most else 'at least'} {limit}"


def _verdict(missed_by: float | None) -> str:
    if missed_by is None:
        return ""
    return f"missed by {missed_by:.0%}" if missed_by else "met"


def shown(value: float, unit: str = "s") -> str:
    """A duration, a rate, a size or a count with three digits that count.

    >>> shown(0.0123456), shown(0.9876), shown(12.3456), shown(1234567, "/s"), shown(5.678, "B")
    ('12.3 ms', '988 ms', '12.3 s', '1,230,000 /s', '5.68 B')
    >>> shown(1, ""), shown(1057.5, "")
    ('1', '1,060')
    """
    if unit == PER_SECOND:
        return f"{float(f'{value:.3g}'):,.0f} /s"
    if unit == BYTES:
        return f"{value:.3g} B"
    if unit == COUNT:
        return f"{float(f'{value:.3g}'):,g}"
    return f"{value:.3g} s" if value >= 1 else f"{value * 1000:.3g} ms"
