"""A lock in an object store, for short decisions that depend on other objects.

One that stays unchanged for too long, by the waiter's clock, is taken over.
"""

import contextlib
import errno
import time
import uuid
from collections.abc import Callable, Iterator

from pulsar_spark.storage.store.object_path import ObjectPath

FREE = b"free-"
"""Prefix of the content of a lock that nobody has; the rest makes it unique."""
GONE_SECONDS = 30.0
LOOK_SECONDS = 0.1


@contextlib.contextmanager
def store_lock(
    path: ObjectPath, clock: Callable[[], float] = time.monotonic, pause: Callable[[float], None] = time.sleep
) -> Iterator[Callable[[], None]]:
    """Hold the lock at *path*. A long holder calls the yielded function now and then; OSError if it lost the lock."""
    mine, seen, since = uuid.uuid4().hex.encode(), None, clock()
    known = None
    while not path.store.put_over(path, mine, known):
        known = None
        try:
            content, stamped = path.store.get_stamped(path)
        except FileNotFoundError:
            continue
        if content != seen:
            seen, since = content, clock()
        if content.startswith(FREE) or clock() - since >= GONE_SECONDS:
            known = stamped
        else:
            pause(LOOK_SECONDS)

    def renew() -> None:
        nonlocal mine
        content, stamped = path.store.get_stamped(path)
        renewed = uuid.uuid4().hex.encode()
        if content != mine or not path.store.put_over(path, renewed, stamped):
            raise OSError(errno.EAGAIN, "the lock was taken by another meanwhile", str(path))
        mine = renewed

    try:
        yield renew
    finally:
        with contextlib.suppress(OSError):  # waiters take it over in time
            content, stamped = path.store.get_stamped(path)
            if content == mine:
                path.store.put_over(path, FREE + uuid.uuid4().hex.encode(), stamped)
