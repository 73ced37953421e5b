"""Detect local roots that disappeared while they were open, so that nothing is created in their place."""

import os
import weakref
from functools import lru_cache

from pulsar_spark.errors import RootAway
from pulsar_spark.storage.layout import BUNDLES, DEFAULT_BUNDLE, Layout
from pulsar_spark.storage.processes import forks
from pulsar_spark.storage.store.store import StrPath, path_of, store_of
from pulsar_spark.table_specs import CURSOR_LEDGER

_seen: dict[str, weakref.WeakSet[Layout]] = {}
_lock = forks.module_lock()


def saw_root(layout: Layout) -> None:
    """Note that the owner of *layout* has the root open, until :func:`left_root`."""
    if layout.store.is_local:
        with _lock:
            _seen.setdefault(str(layout.root), weakref.WeakSet()).add(layout)


def left_root(layout: Layout) -> None:
    with _lock:
        users = _seen.get(str(layout.root))
        if users is not None:
            users.discard(layout)
            if not users:
                del _seen[str(layout.root)]


def is_away(place: StrPath) -> bool:
    """Whether *place* is, or lies in, an open root that has disappeared."""
    root = _root_of(place)
    return root is not None and not os.path.isdir(f"{root}/{BUNDLES}/{DEFAULT_BUNDLE}/{CURSOR_LEDGER.name}/_delta_log")


def root_away(place: StrPath) -> RootAway:
    return RootAway(
        f"root {str(_root_of(place) or place)!r} has disappeared: mount it again, then its users continue by "
        "themselves; no new root is created in its place"
    )


def check_there(place: StrPath) -> None:
    """:class:`RootAway` if :func:`is_away` is true."""
    if is_away(place):
        raise root_away(place)


def _root_of(place: StrPath) -> str | None:
    return next((root for root in _folders_of(str(place)) if _seen.get(root)), None) if _seen else None


@lru_cache(maxsize=1000)
def _folders_of(place: str) -> tuple[str, ...]:
    """*place* and the folders above it; none in an object store."""
    path = path_of(place)
    return tuple(map(str, (path, *path.parents))) if store_of(path).is_local else ()
