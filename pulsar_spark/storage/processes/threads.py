"""Threads that share a call's work, also while the interpreter ends."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class Threads(ThreadPoolExecutor):
    """A pool for one ``with`` block. Once the interpreter is ending, Python starts no more threads of a pool, while
    clients still send what is pending and a broker ends its round: the work is then done at once, by the caller."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **named: Any) -> Future:
        try:
            return super().submit(function, *args, **named)
        except RuntimeError:
            done: Future = Future()
            try:
                done.set_result(function(*args, **named))
            except BaseException as error:
                done.set_exception(error)
            return done
