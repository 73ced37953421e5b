"""Judge many small cases in one test, and list every one that fails."""

from collections.abc import Callable, Iterable
from typing import TypeVar

Case = TypeVar("Case")


def failures(check: Callable[[Case], object], cases: Iterable[Case], name: Callable[[Case], str] = str) -> dict:
    """What *check* says of each case it fails for: one entry a case, its *name* and the text of the error.

    A static check of a thousand names is one test of pytest's, which fails with the whole list.

    >>> def check(number):
    ...     assert number < 2, "too large"
    >>> failures(check, [1, 2])
    {'2': 'too large'}
    """
    failed = {}
    for case in cases:
        try:
            check(case)
        except (AssertionError, AttributeError) as error:
            failed[name(case)] = str(error)
    return failed
