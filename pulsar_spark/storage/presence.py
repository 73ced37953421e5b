"""Signs that a client's process lives: one file a client, which the process holds and touches now and then.

``<bundle>/clients/<client id>`` (see storage.held_file) tells on the client's machine, at once and whatever the
client's lease says, that its process is gone. On another machine the lease alone tells: a client that asks for nothing
touches its file, which costs no other file and no commit, and a broker that sees another time on it than before has
heard of the client then, by its own clock; what the time says is of no matter. Where the file system has no such locks
there is no file, and a client that asks for nothing says so in a request. The file is made before the client's first
request and goes with the client; what a killed one left is removed by the broker. In an object store a touch is another
object under the same name, the lease alone tells, and a broker lists them all in one call.
"""

import contextlib
import os
import re
import time

from pulsar_spark.storage.held_file import hold, is_let_go, is_of_another_process_here, opened
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.store import AnyPath
from pulsar_spark.storage.topics import layout_version

SIGNS_SINCE = 2
"""The layout of a root from which on its brokers look for signs of life here."""
FOREIGN_SECONDS = 24 * 60 * 60
"""How long the file of a client of another machine, or of an earlier boot, is kept: longer than any lease."""

_CLIENT_ID = re.compile("[0-9A-Za-z-]{1,100}")


def presence_folder(layout: Layout) -> AnyPath:
    """Where a bundle's clients hold their files."""
    return layout.bundle_folder() / "clients"


class Presence:
    """A client's file. Where it cannot be held there is none, and the lease alone tells."""

    def __init__(self, layout: Layout, client_id: str):
        self._layout = layout
        self._held = hold(presence_folder(layout) / client_id)
        self.path = self._held.path

    def touch(self) -> bool:
        """Give a sign of life; False where nobody would see it: there is no file (any more), or brokers of the first
        release serve the root, which do not look."""
        try:
            return layout_version(self._layout) >= SIGNS_SINCE and self._held.touch()
        except OSError:
            return False

    def end(self) -> None:
        """Remove the file. A second call does nothing."""
        self._held.end()

    def let_go(self) -> None:
        """Close the file without a word: what ending the process does."""
        self._held.let_go()


def all_signs(layout: Layout) -> dict[str, str]:
    """What :func:`last_sign` says of all clients, for a root in an object store: by one call for a thousand."""
    return layout.store.stamps(presence_folder(layout))


def last_sign(layout: Layout, client_id: str) -> int | str | None:
    """Something that is another one after each sign of life; None where there is no file. The file is opened for it,
    because a network file system may remember what it said of one that is not."""
    if not layout.store.is_local:
        return all_signs(layout).get(client_id)
    with opened(_path_of(layout, client_id)) as file:
        return None if file is None else os.fstat(file).st_mtime_ns


def is_gone(layout: Layout, client_id: str) -> bool:
    """Is it certain that the client's process is gone? False of a client of another machine and of one without a file.
    The file stays: a broker that dies before it has let the client go leaves it to the next one (see
    :func:`remove_gone`)."""
    return is_let_go(_path_of(layout, client_id))


def remove_gone(layout: Layout, client_id: str) -> None:
    """Remove the file of a client that is gone, once the tables say so too."""
    is_let_go(_path_of(layout, client_id), lambda path: path.unlink(missing_ok=True))


def is_watched(layout: Layout, client_id: str) -> bool:
    """Will :func:`is_gone` ever be true of the client?"""
    path = _path_of(layout, client_id)
    try:
        return layout.store.is_local and path is not None and is_of_another_process_here(path.read_bytes())
    except OSError:
        return False


def remove_old(layout: Layout, client_id: str) -> None:
    """Remove a client's file that nobody here can tell anything of, and that is old."""
    path = _path_of(layout, client_id)
    with contextlib.suppress(OSError):
        if (
            path
            and path.stat().st_mtime + FOREIGN_SECONDS < time.time()
            and not (layout.store.is_local and is_of_another_process_here(path.read_bytes()))
        ):
            path.unlink()


def present_clients(layout: Layout) -> list[str]:
    """The clients that have a file, alive or gone."""
    try:
        return sorted(layout.store.names(presence_folder(layout)))
    except FileNotFoundError:
        return []


def _path_of(layout: Layout, client_id: str) -> AnyPath | None:
    """A client's file; None for an id that is no name of a file, which no client of this package has."""
    return (
        presence_folder(layout) / client_id if isinstance(client_id, str) and _CLIENT_ID.fullmatch(client_id) else None
    )
