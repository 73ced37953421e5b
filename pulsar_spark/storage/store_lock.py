"""A lock in an object store, for the moments in which one of several decides by what the others have put there.

What lies there says who holds it, or that nobody does: a store removes whatever there is, but replaces only what it is
told, so it is let go by the latter, and no holder lets go of another's. One that is not let go, because its holder is
gone, is taken from it when it was the same for so long, as seen on the clock of who waits: longer than anybody holds
it.
"""

import contextlib
import errno
import time
import uuid
from collections.abc import Callable, Iterator

from pulsar_spark.storage.object_path import ObjectPath

FREE = b"free-"
"""What it begins with that nobody holds; like nobody else's all the same."""
GONE_SECONDS = 30.0
LOOK_SECONDS = 0.1


@contextlib.contextmanager
def store_lock(
    path: ObjectPath, clock: Callable[[], float] = time.monotonic, pause: Callable[[float], None] = time.sleep
) -> Iterator[Callable[[], None]]:
    """Hold the lock that lies at *path*, after waiting for it. Who holds it for long calls what this gives now and
    then; OSError where somebody else has taken it, because that came too late."""
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
        with contextlib.suppress(OSError):  # who waits takes it when it was the same for long enough
            content, stamped = path.store.get_stamped(path)
            if content == mine:
                path.store.put_over(path, FREE + uuid.uuid4().hex.encode(), stamped)
