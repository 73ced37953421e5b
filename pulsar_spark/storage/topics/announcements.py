"""Announcements: an empty file in the bundle's folder for each topic that was published to.

A publisher makes the file after its commit. The broker removes the files and only then reads these topics' logs. A
missing announcement does no harm: the broker also reads all logs in turn.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterable, Sequence
from functools import lru_cache

from pulsar_spark.errors import CorruptState
from pulsar_spark.protocol.topics.topic_name import TopicName
from pulsar_spark.storage.layout import BUNDLES, MAX_FILE_NAME, Layout, decode_name
from pulsar_spark.storage.store.store import AnyPath, StrPath, path_of
from pulsar_spark.storage.topics.bundles import bundles_of

_NAME = "announced"


def announcements_folder(layout: Layout) -> AnyPath:
    return layout.bundle_folder() / _NAME


def announcement_of(table: StrPath) -> str:
    """The name of a topic's file, from its table's last three folders; their digest if that is too long.

    >>> announcement_of("/data/pulsar/public/default/flights")
    'public,default,flights'
    """
    name = ",".join(path_of(table).parts[-3:])
    return name if len(os.fsencode(name)) <= MAX_FILE_NAME else hashlib.sha256(os.fsencode(name)).hexdigest()


def announce(table: StrPath) -> None:
    """Announce a new commit in the log of *table*, if it is a topic's; never raises."""
    with contextlib.suppress(OSError, CorruptState):  # the broker finds the commit when it reads all logs in turn
        place = _place_of(str(table))
        if place is not None:
            layout, topic, name = place
            layout.store.touch(f"{layout.root}/{BUNDLES}/{bundles_of(layout).folder_of(topic)}/{_NAME}/{name}")


@lru_cache(maxsize=10_000)
def _place_of(table: str) -> tuple[Layout, str, str] | None:
    folder = path_of(table).absolute()
    if folder.parents[1].name == BUNDLES:
        return None
    topic = _topic_named(folder.parts[-3:])
    return None if topic is None else (Layout(folder.parents[2]), topic, announcement_of(folder))


def take_announced(layout: Layout) -> list[str]:
    """Remove the bundle's announcements and return their names."""
    return layout.store.take_names(f"{layout.bundle_folder()}/{_NAME}")


def pass_on(layout: Layout, names: Iterable[str]) -> None:
    """Move announcements of topics that a split gave to another bundle; digests are dropped."""
    with contextlib.suppress(OSError, CorruptState):
        for name in names:
            topic = _topic_named(name.split(","))
            folder = layout.bundle if topic is None else bundles_of(layout).folder_of(topic)
            if folder != layout.bundle:
                layout.store.touch(f"{layout.root}/{BUNDLES}/{folder}/{_NAME}/{name}")


def _topic_named(folders: Sequence[str]) -> str | None:
    try:
        return str(TopicName(*map(decode_name, folders)))
    except (TypeError, ValueError):
        return None
