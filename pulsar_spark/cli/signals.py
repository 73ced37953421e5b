"""What commands and jobs do when they are told to end: they finish what they are at, and leave no traceback.

SIGTERM goes to every process of a service at once, Ctrl-C to every process of a terminal, so Spark's may be gone before
ours.
"""

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator

ENDING = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def told_to_end(stop: Callable[[], object]) -> Iterator[list[int]]:
    """Call *stop* on SIGTERM and Ctrl-C, which must not block; gives the numbers of the signals that came, so far."""
    came: list[int] = []

    def take(number: int, _frame: object) -> None:
        came.append(number)
        stop()

    previous = {number: signal.signal(number, take) for number in ENDING}
    try:
        yield came
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def exit_code(number: int) -> int:
    """The exit code of a process that a signal ended before its work was done, as a shell says it."""
    return 128 + number


def clean_up_on_sigterm() -> None:
    """Let SIGTERM unwind what the main thread is at, as Ctrl-C does, instead of ending the process where it stands."""
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(exit_code(number)))
