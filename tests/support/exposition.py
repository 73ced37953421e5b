"""A strict reader of Prometheus's text format."""

import re
from typing import NamedTuple

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\n"])*)"(?:,|$)')
_SUFFIXES = {"summary": ("_sum", "_count"), "gauge": ("",), "counter": ("",)}
_ESCAPED = {r"\\": "\\", r"\n": "\n", r"\"": '"'}


class Family(NamedTuple):
    type: str
    help: str
    samples: dict[tuple[tuple[str, str], ...], float]
    """By sorted labels; those of a summary have the suffix as label ``suffix``."""

    def value(self, **labels: str) -> float:
        """The value of the sample with these labels and perhaps others."""
        (found,) = [value for of, value in self.samples.items() if labels.items() <= dict(of).items()]
        return found


def read_exposition(text: str) -> dict[str, Family]:
    """The families of *text*; AssertionError for what Prometheus would refuse or misread."""
    families: dict[str, Family] = {}
    lines = text.split("\n")
    assert lines.pop() == "", "the last line ends"
    name = ""
    for number, line in enumerate(lines):
        if line.startswith("# HELP "):
            name, _, help_ = line.removeprefix("# HELP ").partition(" ")
            assert help_ and name not in families, f"{name} has one HELP, and its lines stand together"
            assert lines[number + 1].startswith(f"# TYPE {name} "), name
            families[name] = Family("", help_, {})
        elif line.startswith("# TYPE "):
            name, _, type_ = line.removeprefix("# TYPE ").partition(" ")
            assert (type_ == "counter") == name.endswith("_total"), f"{name} is a {type_}"
            families[name] = families[name]._replace(type=type_)
        else:
            found = _SAMPLE.fullmatch(line)
            assert found, f"line {number + 1} is no sample: {line!r}"
            suffix = found[1].removeprefix(name)
            assert found[1].startswith(name) and suffix in _SUFFIXES[families[name].type], line
            pairs = _LABEL.findall(found[2] or "")
            assert "".join(f'{key}="{value}",' for key, value in pairs).rstrip(",") == (found[2] or ""), line
            of = {key: re.sub(r"\\[\\n\"]", lambda each: _ESCAPED[each[0]], value) for key, value in pairs}
            assert len(of) == len(pairs), f"a label twice: {line}"
            key = tuple(sorted((of | ({"suffix": suffix} if suffix else {})).items()))
            assert key not in families[name].samples, f"a sample twice: {line}"
            families[name].samples[key] = float(found[3])
    return families
