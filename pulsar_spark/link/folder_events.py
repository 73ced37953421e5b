"""Being told by the system that a file came into a folder, instead of looking again and again: inotify of Linux.

A network file system tells only what this machine does, and a user may have a limited number of these (128 on most
machines), so whoever waits here looks now and then all the same (see bundle_log). Source: inotify(7).
"""

import contextlib
import ctypes
import os
import select

from pulsar_spark.storage.store import AnyPath

_CREATED, _MOVED_TO = 0x100, 0x80
_READ_AT_ONCE = 1 << 16


class FolderEvents:
    """Of one folder, for one thread that waits; OSError where there is no such thing for it."""

    def __init__(self, folder: AnyPath):
        try:
            library = ctypes.CDLL(None, use_errno=True)
            open_events, add_watch, self._wake = library.inotify_init1, library.inotify_add_watch, os.eventfd(0)
        except AttributeError as missing:
            raise OSError("there is no inotify") from missing
        self._events = open_events(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._events < 0 or add_watch(self._events, os.fsencode(folder), _CREATED | _MOVED_TO) < 0:
            code = ctypes.get_errno()
            self.close()
            raise OSError(code, os.strerror(code), str(folder))
        self._poll = select.poll()
        for each in (self._events, self._wake):
            self._poll.register(each, select.POLLIN)

    def wait(self, seconds: float) -> bool:
        """Return when a file came since the last call, at once where one did already, when :meth:`wake` was called, or
        after so many seconds; did a file come?"""
        ready = [each for each, _ in self._poll.poll(max(0, round(1000 * seconds)))]
        for each in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(each, _READ_AT_ONCE)
        return self._events in ready

    def wake(self) -> None:
        """End the wait, from any thread."""
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Nobody waits any more, or will."""
        for each in (self._events, self._wake):
            if each >= 0:
                os.close(each)
