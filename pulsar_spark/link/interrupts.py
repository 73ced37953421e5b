"""Makes Ctrl-C raise :class:`Interrupted` in calls that wait, on any thread.

Rule: ``waitForAsyncValue`` of the ``pulsar`` package. Python runs signal handlers on the main thread only, so a handler
counts and waiting threads check the count. It replaces only Python's own; with another one, a KeyboardInterrupt in the
main thread counts.
"""

import signal
import sys
import threading
import time
from collections.abc import Callable

from pulsar_spark.errors import Interrupted
from pulsar_spark.storage.processes import forks

SLICE_SECONDS = 0.1
_WORDS = "Ctrl-C was pressed while the call waited"
_NEVER = threading.Event()
_clients = 0
_count = 0
_lock = forks.module_lock()
_is_over = False


class _Here(threading.local):
    """Per thread: the count seen last, and whether it is the package's own, which ignores Ctrl-C."""

    def __init__(self):
        self.seen, self.is_ours = _count, False


_here = _Here()


def _on_interrupt(number, frame) -> None:
    global _count
    _count += 1
    signal.default_int_handler(number, frame)


def listen() -> None:
    """Register a client: count Ctrl-C, if Python's own handler is in place."""
    global _clients
    with _lock:
        _clients += 1
    if (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):
        signal.signal(signal.SIGINT, _on_interrupt)


def stop_listening() -> None:
    """Unregister a client; the last one restores Python's own handler."""
    global _clients
    with _lock:
        _clients -= 1
        is_last = not _clients
    if (
        is_last
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is _on_interrupt
    ):
        signal.signal(signal.SIGINT, signal.default_int_handler)


def end_program() -> None:
    """Note that the program is ending and closes its clients itself."""
    global _is_over
    _is_over = True


def stay_to_the_end() -> None:
    """Keep a daemon thread in its call while the program ends; an error would only print a traceback."""
    while _is_over and threading.current_thread().daemon:
        time.sleep(1.0)


def ignore_here() -> None:
    """Mark this thread as the package's own, which ignores Ctrl-C."""
    _here.is_ours = True


def count() -> int:
    """How often Ctrl-C was pressed; a call that begins to wait passes it to :func:`pause`."""
    return _count


def seen() -> int:
    """The count for a call that waits for messages: Ctrl-C since the thread's last call counts too."""
    return _here.seen


def pause(attempt: Callable[[float | None], bool], seconds: float | None, since: int) -> bool:
    """Call *attempt*, a wait, for a slice of *seconds* and return its result. :class:`Interrupted` if Ctrl-C was
    pressed after *since*."""
    if _here.is_ours:
        return attempt(seconds)
    slice_seconds = SLICE_SECONDS if seconds is None else min(seconds, SLICE_SECONDS)
    if threading.current_thread() is threading.main_thread():
        try:
            return attempt(slice_seconds)
        except KeyboardInterrupt:
            raise Interrupted(_WORDS) from None
    if _count != since or _ended_by_interrupt():
        _here.seen = _count
        raise Interrupted(_WORDS)
    return attempt(slice_seconds)


def until(attempt: Callable[[float | None], bool], seconds: float | None, since: int | None = None) -> bool:
    """Call *attempt* until it returns true or *seconds* have passed; return whether it did."""
    since, deadline = _count if since is None else since, None if seconds is None else time.monotonic() + seconds
    left = seconds
    while not pause(attempt, left, since):
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return False
    return True


def join(thread: threading.Thread, seconds: float) -> None:
    def attempt(left: float | None) -> bool:
        thread.join(left)
        return not thread.is_alive()

    until(attempt, seconds)


def sleeper() -> Callable[[float], None]:
    """A ``time.sleep`` that Ctrl-C interrupts, from now on."""
    since = _count

    def sleep(seconds: float) -> None:
        until(_NEVER.wait, seconds, since)

    return sleep


def _ended_by_interrupt() -> bool:
    last = getattr(sys, "last_type", None)
    return not threading.main_thread().is_alive() and last is not None and issubclass(last, KeyboardInterrupt)
