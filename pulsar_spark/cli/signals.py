"""How commands and jobs end on signals: they finish their work, without traceback."""

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator

ENDING = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def stopping_on_signals(stop: Callable[[], object]) -> Iterator[list[int]]:
    """Call *stop*, which must not block, on SIGTERM and Ctrl-C; yields the signals received so far."""
    received: list[int] = []

    def take(number: int, _frame: object) -> None:
        received.append(number)
        stop()

    previous = {number: signal.signal(number, take) for number in ENDING}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def exit_code(number: int) -> int:
    """As in shells."""
    return 128 + number


def clean_up_on_sigterm() -> None:
    """Make SIGTERM unwind the main thread, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(exit_code(number)))
