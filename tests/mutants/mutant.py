"""A way to break the product: a text of one of its modules that is replaced by another."""

from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).parents[2]


class Mutant(NamedTuple):
    """In *file*, below ``pulsar_spark``, the text *old*, which stands there once, becomes *new*, and then *broken* is
    true. *tests* are those that ought to see it, as pytest is given them."""

    name: str
    broken: str
    file: str
    old: str
    new: str
    tests: str

    def path(self, checkout: Path = PROJECT) -> Path:
        """The module, in a *checkout*."""
        return checkout / "pulsar_spark" / self.file

    def mutated(self, source: str) -> str:
        """The module's *source*, broken; ValueError where the text is not there, or more than once."""
        count = source.count(self.old)
        if count != 1:
            raise ValueError(f"{self.name}: the text stands {count} times in {self.file}, not once: {self.old!r}")
        return source.replace(self.old, self.new)
