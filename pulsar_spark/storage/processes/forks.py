"""Detect use of clients and tables across a fork, after which ``deltalake`` panics in the child (tokio issue 4301)."""

import os
import threading

from pulsar_spark.errors import OperationNotSupported

ADVICE = (
    "open the first client after the fork, as in a server's post_fork hook, or start the process with the method "
    "'spawn' (multiprocessing.get_context('spawn'), or set_start_method('spawn')) and open a client in it"
)
generation = 0
"""The number of forks since the import; anything opened under another number belongs to another process."""

_used_by: int | None = None


def _forked() -> None:
    global generation
    generation += 1


os.register_at_fork(after_in_child=_forked)


def module_lock() -> threading.Lock:
    """A lock for a module that is free in a forked child."""
    lock = threading.Lock()
    os.register_at_fork(after_in_child=lock._at_fork_reinit)  # type: ignore[attr-defined]  # as the standard library does
    return lock


def check_usable() -> None:
    """:class:`OperationNotSupported` if this process was forked from one that used tables."""
    if _used_by is not None and _used_by != generation:
        raise OperationNotSupported(
            f"process {os.getpid()} was forked from a process that had already written or read tables, so "
            f"clients and Admin do not work in it: {ADVICE}"
        )


def use() -> None:
    """Note that ``deltalake`` is about to be used, after :func:`check_usable`."""
    global _used_by
    check_usable()
    _used_by = generation


def check_opened_here(opened_under: int, what: str) -> None:
    """:class:`OperationNotSupported` if *what* was opened in another process."""
    if opened_under != generation:
        raise OperationNotSupported(
            f"the {what} was opened in the parent process, before process {os.getpid()} was forked: {ADVICE}"
        )
