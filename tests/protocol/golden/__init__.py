"""Golden vectors: what Apache Pulsar's own classes answered (``source`` in each file), as data.

``cases`` of ``input`` and ``expected``; the tests beside this folder say which rule each file holds.
"""

import json
from pathlib import Path


def cases(name: str) -> list[dict]:
    """The cases of golden file *name*, in the file's order."""
    return json.loads((Path(__file__).parent / f"{name}.json").read_text(encoding="utf-8"))["cases"]


def named(case: dict) -> str:
    """The case's own description, for test ids."""
    return case["input"]["desc"]
