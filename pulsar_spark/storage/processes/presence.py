"""Signs of life of a client's process: a file, ``<bundle>/clients/<client id>``, that the process holds and touches.

On the client's machine it shows at once that the process is gone; elsewhere, a broker that sees a new time renews the
client's lease.
"""

import contextlib
import os
import re
import time

from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes.held_file import has_holder_ended, hold, is_of_another_process_here, opened
from pulsar_spark.storage.store.object_path import AnyPath, ObjectPath

FOREIGN_SECONDS = 24 * 60 * 60
"""How long the file of a client of another machine or boot is kept: longer than any lease."""

_CLIENT_ID = re.compile("[0-9A-Za-z-]{1,100}")


def presence_folder(layout: Layout) -> AnyPath:
    return layout.bundle_folder() / "clients"


class Presence:
    """A client's file; if it cannot or must not be held, only the lease counts."""

    def __init__(self, layout: Layout, client_id: str, *, is_held: bool = True):
        self.path = presence_folder(layout) / client_id
        self._held = hold(self.path) if is_held else None

    def touch(self) -> bool:
        """Give a sign of life; False without a file."""
        return self._held is not None and self._held.touch()

    def end(self) -> None:
        if self._held is not None:
            self._held.end()


def all_signs(layout: Layout) -> dict[str, str]:
    """:func:`last_sign` of all clients in an object store."""
    folder = presence_folder(layout)
    return folder.store.stamps(folder) if isinstance(folder, ObjectPath) else {}


def last_sign(layout: Layout, client_id: str) -> int | str | None:
    """A value that changes with each sign of life; None without a file. A network's cache does not delay it."""
    if not layout.store.is_local:
        return all_signs(layout).get(client_id)
    with opened(_path_of(layout, client_id)) as file:
        return None if file is None else os.fstat(file).st_mtime_ns


def is_gone(layout: Layout, client_id: str) -> bool:
    """Has the client's process surely ended? The file stays until :func:`remove_gone`, for a broker's successor."""
    return has_holder_ended(_path_of(layout, client_id))


def remove_gone(layout: Layout, client_id: str) -> None:
    """Remove a gone client's file, after the tables record that."""
    has_holder_ended(_path_of(layout, client_id), lambda path: path.unlink(missing_ok=True))


def is_watched(layout: Layout, client_id: str) -> bool:
    """Can :func:`is_gone` ever become true for the client?"""
    path = _path_of(layout, client_id)
    try:
        return layout.store.is_local and path is not None and is_of_another_process_here(path.read_bytes())
    except OSError:
        return False


def remove_old(layout: Layout, client_id: str) -> None:
    """Remove an old file that no process here can judge."""
    path = _path_of(layout, client_id)
    with contextlib.suppress(OSError):
        if (
            path
            and path.stat().st_mtime + FOREIGN_SECONDS < time.time()
            and not (layout.store.is_local and is_of_another_process_here(path.read_bytes()))
        ):
            path.unlink()


def present_clients(layout: Layout) -> list[str]:
    try:
        return sorted(layout.store.names(presence_folder(layout)))
    except FileNotFoundError:
        return []


def _path_of(layout: Layout, client_id: str) -> AnyPath | None:
    return (
        presence_folder(layout) / client_id if isinstance(client_id, str) and _CLIENT_ID.fullmatch(client_id) else None
    )
