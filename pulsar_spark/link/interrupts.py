"""Ctrl-C in a call that waits: it raises :class:`Interrupted`, whichever thread waits.

Rule: ``waitForAsyncValue`` of the ``pulsar`` package, which looks for signals while it waits and turns what their
handlers raise into Interrupted. Python runs handlers on the main thread alone, so the package's other threads wait on;
here they are told too: the handler of SIGINT counts, and threads that wait look at the count ten times a second. It
takes the place of Python's own handler only, does what that does besides, and goes with the last client. Where the
application has a handler of its own nothing is counted; a KeyboardInterrupt that it raises while the main thread waits
is an Interrupted too, and a main thread that ended with one (its client may be of another thread) counts as Ctrl-C.
"""

import signal
import sys
import threading
import time
from collections.abc import Callable

from pulsar_spark.errors import Interrupted
from pulsar_spark.storage import forks

SLICE_SECONDS = 0.1
_WORDS = "Ctrl-C was pressed while the call waited"
_NEVER = threading.Event()
_clients = 0
_count = 0
_lock = forks.module_lock()
_is_over = False


class _Here(threading.local):
    """What a thread knows: the count it was told last, and whether it is one of the package's own, which no Ctrl-C is
    for."""

    def __init__(self):
        self.seen, self.is_ours = _count, False


_here = _Here()


def _on_interrupt(number, frame) -> None:
    global _count
    _count += 1
    signal.default_int_handler(number, frame)


def listen() -> None:
    """A client was made: hear of Ctrl-C, where Python's own handler would have."""
    global _clients
    with _lock:
        _clients += 1
    if (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):
        signal.signal(signal.SIGINT, _on_interrupt)


def stop_listening() -> None:
    """A client was closed; after the last one Python's own handler is back."""
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
    """Note that the program ends, and that this closes its clients."""
    global _is_over
    _is_over = True


def stay_to_the_end() -> None:
    """Keep a daemon thread in its call while the program ends; otherwise return at once. Nothing that the thread did
    closed its client, so an error would only be a traceback at the end of the program."""
    while _is_over and threading.current_thread().daemon:
        time.sleep(1.0)


def ignore_here() -> None:
    """This thread is one of the package's own: no Ctrl-C is for it."""
    _here.is_ours = True


def count() -> int:
    """How often Ctrl-C was pressed: what a call that begins to wait hands to :func:`pause`."""
    return _count


def seen() -> int:
    """Likewise for a call that waits for messages: one that came while the thread did something else counts too."""
    return _here.seen


def pause(attempt: Callable[[float | None], object], seconds: float | None, since: int) -> bool:
    """Call *attempt*, a wait on a condition or event, with a slice of *seconds*: what it gives.

    :class:`Interrupted` when Ctrl-C was pressed after *since*. On the main thread the signal's handler ends the
    attempt; where another thread was sent the signal, as by ``signal.raise_signal``, when the slice is over.
    """
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


def until(attempt: Callable[[float | None], object], seconds: float | None, since: int | None = None) -> bool:
    """Call *attempt*, which gives whether it succeeded, until it does or *seconds* have passed; whether it did."""
    since, deadline = _count if since is None else since, None if seconds is None else time.monotonic() + seconds
    left = seconds
    while not pause(attempt, left, since):
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return False
    return True


def join(thread: threading.Thread, seconds: float) -> None:
    """Wait for the end of a thread, *seconds* at most."""

    def attempt(left: float | None) -> bool:
        thread.join(left)
        return not thread.is_alive()

    until(attempt, seconds)


def sleeper() -> Callable[[float], None]:
    """``time.sleep`` for the looks at something that is waited for from now on."""
    since = _count

    def sleep(seconds: float) -> None:
        until(_NEVER.wait, seconds, since)

    return sleep


def _ended_by_interrupt() -> bool:
    """Did the main thread end with a KeyboardInterrupt, so that the process only waits for the others?"""
    last = getattr(sys, "last_type", None)
    return not threading.main_thread().is_alive() and last is not None and issubclass(last, KeyboardInterrupt)
