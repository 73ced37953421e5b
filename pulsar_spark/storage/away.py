"""Roots that were there and are not now: a mount that dropped leaves an empty folder in a root's place, or none.

Such a root comes back, and as it was. So nothing is made in its place meanwhile, and whoever needs it waits:
:class:`RootAway` is taken for a fault of the disk, which passes. A root counts as there before for as long as somebody
in this process has it open who saw it. Roots in object stores do not go away.
"""

import os
import weakref
from pathlib import Path

from pulsar_spark.errors import RootAway
from pulsar_spark.storage import forks
from pulsar_spark.storage.layout import BUNDLES, DEFAULT_BUNDLE, Layout
from pulsar_spark.storage.store import AnyPath, path_of
from pulsar_spark.table_specs import CURSOR_LEDGER

_seen: dict[str, weakref.WeakSet[Layout]] = {}
_lock = forks.module_lock()


def saw_root(layout: Layout) -> None:
    """The root is there; *layout* is of somebody who has it open."""
    if layout.store.is_local:
        with _lock:
            _seen.setdefault(str(layout.root), weakref.WeakSet()).add(layout)


def left_root(layout: Layout) -> None:
    """Whoever *layout* is of has the root open no more."""
    with _lock:
        users = _seen.get(str(layout.root))
        if users is not None:
            users.discard(layout)
            if not users:
                del _seen[str(layout.root)]


def is_away(place: str | os.PathLike) -> bool:
    """Was the root there before that a *place* is, or lies in, and is it not now?"""
    root = _root_of(place)
    return root is not None and not os.path.isdir(f"{root}/{BUNDLES}/{DEFAULT_BUNDLE}/{CURSOR_LEDGER.name}/_delta_log")


def root_away(place: AnyPath | str) -> RootAway:
    """What is raised where :func:`is_away`."""
    return RootAway(
        f"root {str(_root_of(place) or place)!r} was there and is not now: mount it again, and what uses it goes on by "
        "itself; nothing is made in its place"
    )


def check_there(place: AnyPath | str) -> None:
    """:class:`RootAway` where :func:`is_away`."""
    if is_away(place):
        raise root_away(place)


def _root_of(place: AnyPath | str) -> str | None:
    """The root that *place* is or lies in, of those that somebody has open."""
    path = path_of(place)
    if not _seen or not isinstance(path, Path):
        return None
    return next((str(root) for root in (path, *path.parents) if _seen.get(str(root))), None)
