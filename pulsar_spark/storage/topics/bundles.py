"""Which bundles a root has, and the folder of each, from its file ``bundles.json``; without it there is one bundle.

The file only says where to look: a bundle's latest round decides what it serves. A split writes the file after its
round; after a crash, the next broker does.
"""

import json
import time
from bisect import bisect_right
from functools import lru_cache
from typing import Any, NamedTuple

from pulsar_spark.errors import CorruptState, InvalidConfiguration, ServiceUnitNotReady
from pulsar_spark.protocol.topics.bundles import WHOLE, BundleRange, check_cover, parse_range, topic_hash
from pulsar_spark.protocol.topics.topic_name import TopicName
from pulsar_spark.storage.delta.table_lock import append_lock
from pulsar_spark.storage.layout import BUNDLES, DEFAULT_BUNDLE, Layout
from pulsar_spark.storage.store.durability import FSYNC, read_durability, sync_file, sync_folder
from pulsar_spark.storage.store.small_file import parse_object, read_small, text_of
from pulsar_spark.storage.store.store import AnyPath

LOOK_SECONDS = 60.0
"""How long a file in an object store counts as known, unless :func:`look_again` is called."""
_REMEDY = "restore it from a backup, or write it by hand: for each range of hashes the folder of its bundle"


class Bundles(NamedTuple):
    """The slices of a root, in order, and the folder of each."""

    ranges: tuple[BundleRange, ...]
    folders: tuple[str, ...]

    def folder_of(self, topic: str) -> str:
        """The folder of the bundle of a topic, given by its full name without a partition."""
        if len(self.folders) == 1:
            return self.folders[0]
        return self.folders[bisect_right([each.lower for each in self.ranges], topic_hash(topic)) - 1]

    def range_of(self, folder: str) -> BundleRange:
        """The range of the bundle in a folder; :class:`CorruptState` without one."""
        if folder not in self.folders:
            raise CorruptState(f"bundle {folder} is not one of {', '.join(self.folders)}: {_REMEDY}")
        return self.ranges[self.folders.index(folder)]


_ONE = Bundles((WHOLE,), (DEFAULT_BUNDLE,))
_known: dict[str, tuple[Any, Bundles]] = {}
"""The bundles of each root, with the file's stamp or, in an object store, until when they need no other look."""


def bundles_of(layout: Layout) -> Bundles:
    """The current bundles of a root; :class:`CorruptState` if the file is invalid."""
    path = _name(layout)
    known = _known.get(path)
    if layout.store.is_local:
        try:
            stamp = layout.store.stamp(path)
        except (FileNotFoundError, NotADirectoryError):
            return _ONE
        if known is None or known[0] != stamp:
            known = _known[path] = stamp, _read(_path(layout))
    elif known is None or time.monotonic() >= known[0]:
        known = _known[path] = time.monotonic() + LOOK_SECONDS, _read(_path(layout))
    return known[1]


LOOK_AGAIN_SECONDS = 0.1
"""How long after a refusal a topic's bundle is looked up again."""


def look_again(layout: Layout) -> None:
    """Read the file at the next look, after a broker refused a topic."""
    _known.pop(_name(layout), None)


def layout_of(layout: Layout, topic: TopicName | str) -> Layout:
    """The bundle that serves a topic or one of its partitions."""
    found = bundles_of(layout)
    folder = found.folder_of(str(topic))
    return layout if folder == layout.bundle else _layout(layout.root, folder)


def layouts_of(layout: Layout) -> list[Layout]:
    found = bundles_of(layout)
    return [layout if folder == layout.bundle else _layout(layout.root, folder) for folder in found.folders]


def add_bundle(layout: Layout, served: BundleRange) -> BundleRange | None:
    """Write that the bundle of *layout* serves only *served*, and a new one the rest; that rest, or None."""
    if bundles_of(layout).range_of(layout.bundle) == served:
        return None
    rests: list[BundleRange] = []

    def changed(content: bytes | None) -> str | None:
        rests.clear()
        found = _ONE if content is None else _parsed(_path(layout), content)
        before = found.range_of(layout.bundle)
        if before == served:
            return None
        if (before.lower, before.upper >= served.upper) != (served.lower, True):
            raise CorruptState(
                f"{str(_path(layout))!r} gives bundle {layout.bundle} the range {before}, its "
                f"latest round {served}: {_REMEDY}"
            )
        rest = BundleRange(served.upper, before.upper)
        at = found.folders.index(layout.bundle)
        ranges = (*found.ranges[:at], served, rest, *found.ranges[at + 1 :])
        folders = (*found.folders[: at + 1], str(rest), *found.folders[at + 1 :])
        rests.append(rest)
        rows = [{"range": str(each), "folder": folder} for each, folder in zip(ranges, folders, strict=True)]
        return json.dumps({"bundles": rows}, indent=1)

    layout.store.change(
        _path(layout), changed, lambda: append_lock(_path(layout)), lambda _, text: _write(layout, text)
    )
    look_again(layout)
    return rests[0] if rests else None


def check_served(served: BundleRange, topic: str) -> None:
    """:class:`ServiceUnitNotReady` for a topic outside the slice."""
    if not served.holds(topic):
        raise ServiceUnitNotReady(f"topic {topic!r} is not in bundle {served}: look up its bundle again")


def _name(layout: Layout) -> str:
    return f"{layout.root}/{BUNDLES}/bundles.json"


def _path(layout: Layout) -> AnyPath:
    return layout.root / BUNDLES / "bundles.json"


def _write(layout: Layout, text: str) -> None:
    path = _path(layout)
    if read_durability(layout.root) == FSYNC:
        layout.store.replace(path, text, sync_file)
        sync_folder(path.parent)
    else:
        layout.store.replace(path, text)


def _read(path: AnyPath) -> Bundles:
    try:
        content = read_small(path)
    except FileNotFoundError:
        return _ONE
    return _parsed(path, content)


def _parsed(path: AnyPath, content: bytes) -> Bundles:
    try:
        listed = parse_object(content).get("bundles")
        if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
            raise ValueError(f"'bundles' is {listed!r:.60}, not a list of objects")
        ranges = tuple(parse_range(text_of(each, "range")) for each in listed)
        folders = tuple(str(parse_range(text_of(each, "folder"))) for each in listed)
        check_cover(ranges)
        if len(set(folders)) < len(folders):
            raise CorruptState("a folder stands there twice")
    except (ValueError, InvalidConfiguration, CorruptState) as broken:
        raise CorruptState(f"{str(path)!r} cannot be read ({broken}): {_REMEDY}") from broken
    return Bundles(ranges, folders)


@lru_cache(maxsize=1000)
def _layout(root: AnyPath, folder: str) -> Layout:
    return Layout(root, folder)
