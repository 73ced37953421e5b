"""Processes that were forked: which of them may use what.

The library behind ``deltalake`` starts threads of its own with its first call. A fork copies memory and no threads, so
that library panics in the copy of a process that used it (tokio issue 4301), and locks and lines of a client may be
held there by threads that do not exist. So whatever was opened before a fork is of no use after it, and where the
library was used before, nothing can be opened after it.
"""

import os
import threading

from pulsar_spark.errors import OperationNotSupported

ADVICE = (
    "open the first client after the fork, as in a server's post_fork hook, or start the process with the method "
    "'spawn' (multiprocessing.get_context('spawn'), or set_start_method('spawn')) and open a client in it"
)
generation = 0
"""Counts the forks this process comes from, since the package was imported: what was opened under another number was
opened by another process."""

_used_by: int | None = None


def _forked() -> None:
    global generation
    generation += 1


os.register_at_fork(after_in_child=_forked)


def module_lock() -> threading.Lock:
    """A lock for a module, which is free in a forked child even where a thread of the parent held it."""
    lock = threading.Lock()
    os.register_at_fork(after_in_child=lock._at_fork_reinit)  # as the standard library does with its own
    return lock


def check_usable() -> None:
    """:class:`OperationNotSupported` in a process that was forked from one that had used the tables."""
    if _used_by is not None and _used_by != generation:
        raise OperationNotSupported(
            f"process {os.getpid()} was forked from a process that had already written or read tables, so "
            f"clients and Admin do not work in it: {ADVICE}"
        )


def use() -> None:
    """``deltalake`` is about to be called; likewise."""
    global _used_by
    check_usable()
    _used_by = generation


def check_opened_here(opened_under: int, what: str) -> None:
    """Likewise for something that was opened under another generation."""
    if opened_under != generation:
        raise OperationNotSupported(
            f"the {what} was opened in the parent process, before process {os.getpid()} was forked: {ADVICE}"
        )
