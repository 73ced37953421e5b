"""Which topics were published to, as their publishers say: an empty file named after the topic, in one folder of the
bundle.

Whoever commits to a topic makes its file, behind the commit; a broker that looks lists the folder, removes what it
finds and only then asks the logs of these topics. So a publish is either seen by that look, or its file is made behind
the removal and seen by the next. There is never more than a file a topic, however much is published and whether a
broker runs or not, and a look costs one list and a removal for each topic that moved, however many topics there are.

An announcement is a hint and never waited for: nothing is synced, and where it cannot be made nobody is told. A topic
that moved without one, because its publisher died in between or is somebody else's (a writer of Delta tables, an older
release), is found when its log has its turn (see broker.topic_news).
"""

import contextlib
import hashlib
import os
from collections.abc import Iterable, Sequence
from functools import lru_cache

from pulsar_spark.errors import CorruptState
from pulsar_spark.protocol.topic_name import TopicName
from pulsar_spark.storage.bundles import bundles_of
from pulsar_spark.storage.layout import BUNDLES, MAX_FILE_NAME, Layout, decode_name
from pulsar_spark.storage.store import AnyPath, path_of, store_of

_NAME = "announced"


def announcements_folder(layout: Layout) -> AnyPath:
    """Where the files of a bundle lie; a broker's root has the folder, one of an older release may not."""
    return layout.bundle_folder() / _NAME


def announcement_of(table: str | os.PathLike) -> str:
    """The name of a topic's file, by the path of its table: tenant, namespace and topic as folders are named, or a
    digest of that where it is too long.

    >>> announcement_of("/data/pulsar/public/default/flights")
    'public,default,flights'
    """
    name = ",".join(path_of(table).parts[-3:])
    return name if len(os.fsencode(name)) <= MAX_FILE_NAME else hashlib.sha256(os.fsencode(name)).hexdigest()


def announce(table: str | os.PathLike) -> None:
    """Say that there is a new commit in the log of *table*; of a table that is no topic's nothing is said. No error
    comes of it: the commit is there."""
    with contextlib.suppress(OSError, CorruptState):  # then it is found in its turn
        file = _file_of(str(table))
        if file is not None:
            store_of(file).touch(file)


def _file_of(table: str) -> str | None:
    place = _place_of(table)
    if place is None:
        return None
    layout, topic, name = place
    return f"{layout.root}/{BUNDLES}/{bundles_of(layout).folder_of(topic)}/{_NAME}/{name}"


@lru_cache(maxsize=10_000)
def _place_of(table: str) -> tuple[Layout, str, str] | None:
    """The root of a topic's table, the topic, and the name of its file."""
    folder = path_of(table).absolute()
    if folder.parents[1].name == BUNDLES:
        return None
    topic = _topic_named(folder.parts[-3:])
    return None if topic is None else (Layout(folder.parents[2]), topic, announcement_of(folder))


def take_announced(layout: Layout) -> list[str]:
    """The files there are, removed: logs that are asked from now on have what they are about."""
    return layout.store.take_names(f"{layout.bundle_folder()}/{_NAME}")


def pass_on(layout: Layout, names: Iterable[str]) -> None:
    """Make these files, which were taken, anew in the bundles that their topics are in, where that is another one: who
    made them here looked for the bundle before a split, and may do so for a while. One with a digest for a name is left
    to its topic's turn."""
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
