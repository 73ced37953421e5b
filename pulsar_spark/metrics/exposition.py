"""The text format of Prometheus, version 0.0.4."""

from collections.abc import Iterable
from typing import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
GAUGE, COUNTER = "gauge", "counter"
_OF_LABELS = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_OF_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})


class Metric(NamedTuple):
    """A name, its type, and its HELP."""

    name: str
    type: str
    help: str


Sample = tuple[str, float]
"""Labels as :func:`labels` writes them, and a value."""


def labels(**values: str) -> str:
    """Labels between braces.

    >>> labels(topic="a", subscription='say "hi"'), labels()
    ('{topic="a",subscription="say \\\\"hi\\\\""}', '')
    """
    found = ",".join(f'{name}="{value.translate(_OF_LABELS)}"' for name, value in values.items())
    return f"{{{found}}}" if found else ""


def exposed(metric: Metric, samples: Iterable[Sample]) -> str:
    """The lines of *metric*; without samples, only what it is.

    >>> print(exposed(Metric("up", GAUGE, "Is it up?"), [(labels(), True), (labels(of="b"), 0.25)]), end="")
    # HELP up Is it up?
    # TYPE up gauge
    up 1
    up{of="b"} 0.25
    """
    name = metric.name
    head = f"# HELP {name} {metric.help.translate(_OF_HELP)}\n# TYPE {name} {metric.type}\n"
    return head + "".join(f"{name}{of} {value:.15g}\n" for of, value in samples)
