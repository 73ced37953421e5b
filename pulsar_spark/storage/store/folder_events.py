"""Reports of new files in folders, by Linux's inotify (inotify(7)).

Network file systems report only local changes.
"""

import contextlib
import ctypes
import os
import select

from pulsar_spark.storage.store.store import AnyPath

_CREATED, _MOVED_TO = 0x100, 0x80
_READ_AT_ONCE = 1 << 16


class FolderEvents:
    """Watches folders for one waiting thread; OSError where the system has no inotify or refuses."""

    def __init__(self, *folders: AnyPath):
        try:
            library = ctypes.CDLL(None, use_errno=True)
            open_events, add_watch, self._wake = library.inotify_init1, library.inotify_add_watch, os.eventfd(0)
        except AttributeError as missing:
            raise OSError("there is no inotify") from missing
        self._events = open_events(os.O_NONBLOCK | os.O_CLOEXEC)
        for folder in folders:
            if self._events < 0 or add_watch(self._events, os.fsencode(str(folder)), _CREATED | _MOVED_TO) < 0:
                code = ctypes.get_errno()
                self.close()
                raise OSError(code, os.strerror(code), str(folder))
        self._poll = select.poll()
        for each in (self._events, self._wake):
            self._poll.register(each, select.POLLIN)

    def wait(self, seconds: float) -> bool:
        """Wait for a file since the last call, :meth:`wake`, or *seconds*; return whether a file came."""
        ready = [each for each, _ in self._poll.poll(max(0, round(1000 * seconds)))]
        for each in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(each, _READ_AT_ONCE)
        return self._events in ready

    def wake(self) -> None:
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Close the watch; no thread may wait afterwards."""
        for each in (self._events, self._wake):
            if each >= 0:
                os.close(each)
