"""Topics of a root: create, look up, list, delete; and the broker's tables of a bundle.

A topic is one table, partitioned like the topic; without partitions its column ``partition`` is -1.
"""

import contextlib
import os
from typing import NamedTuple

from pulsar_spark.errors import (
    DOCTOR,
    CorruptState,
    InvalidConfiguration,
    InvalidRequest,
    InvalidTopicName,
    NotAllowedError,
    NotARoot,
    TopicNotFound,
)
from pulsar_spark.protocol.topics.topic_name import TopicName, parse_namespace, parse_topic_name
from pulsar_spark.storage.delta.definitions import create_table, read_definition
from pulsar_spark.storage.delta.dropped import drop_table
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.staged_files import remove_staged
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes import forks
from pulsar_spark.storage.store.away import check_there, saw_root
from pulsar_spark.storage.store.durability import DEFAULT, ENVIRONMENT, settings_path, write_durability
from pulsar_spark.storage.store.local_store import has_no_links
from pulsar_spark.storage.store.store import AnyPath
from pulsar_spark.storage.topics.announcements import announcements_folder
from pulsar_spark.storage.topics.namespaces import topic_hint
from pulsar_spark.table_specs import BROKER_TABLES, CURSOR_LEDGER, MESSAGES

MAX_PARTITIONS = 10_000
_checked: dict[str, tuple | None] = {}
"""Tables whose layout is this release's, by path, each with the life in which it was read."""
COUNTED_COLUMNS = ("publish_id", "entry_id", "batch_size", "publish_time", "deliver_at_time", "uuid")
"""Columns whose statistics numbering reads; more would slow down publishes by Spark."""

HOW_TO_PUBLISH = (
    'write.format("pulsar_spark"), pulsar_spark.frames.publish(frame, root, topic), publish_stream or a producer of '
    "pulsar_spark.Client; INSERT and plain appends are refused"
)
SET_BY = 'Set by write.format("pulsar_spark"), pulsar_spark.frames.publish and producers'
"""What DESCRIBE shows to somebody whose append was refused: in the table's comment, and in those of columns."""
NEVER_NULL = ("publish_id", "entry_id", "batch_size", "partition", "publish_time")
"""Columns that are NOT NULL in the table, so that Delta refuses rows that are no publish."""


class Topic(NamedTuple):
    """A topic that exists. ``partitions`` is 0 for a topic without partitions."""

    name: TopicName
    path: AnyPath
    topic_id: str
    partitions: int

    @property
    def partition_indexes(self) -> range:
        return range(self.partitions) if self.partitions else range(-1, 0)


def prepare_root(layout: Layout) -> None:
    """Create the root and its bundle's tables unless they exist; :class:`NotARoot` for an unusable folder."""
    forks.check_usable()
    check_there(layout.root)
    try:
        _prepare_root(layout)
        saw_root(layout)
    except OSError as error:
        if layout.store.is_local and has_no_links(error):
            raise NotARoot(
                f"root {str(layout.root)!r} lies on a file system without hard links ({error.strerror}), "
                "which make every commit atomic: give a folder of a local disk or of NFS, or one in a "
                "bucket, s3://<bucket>/<folder>, or in a volume of Databricks', "
                "dbfs:/Volumes/<catalog>/<schema>/<volume>/<folder>"
            ) from None  # this fault of the disk does not pass
        raise NotARoot(
            f"root {str(layout.root)!r} cannot be created or written: {error}; give a writable folder"
        ) from error


def _prepare_root(layout: Layout) -> None:
    root = layout.root
    layout.store.check(root, layout.bundle_folder())
    if layout.store.is_local and root.exists() and not root.is_dir():
        raise NotARoot(f"root {str(root)!r} is a file: give a folder")
    if root.exists() and not layout.bundle_folder().exists() and any(root.iterdir()):
        raise NotARoot(
            f"root {str(root)!r} holds files of another program: give an empty folder, a new "
            "one, or a root of pulsar_spark"
        )
    for spec in BROKER_TABLES:
        path = layout.broker_table(spec.name)
        if not create_table(path, spec):
            read_definition(path)
    with contextlib.suppress(OSError):  # a root may be read-only, and does not need it
        announcements_folder(layout).mkdir(exist_ok=True)
    if layout.store.is_local and not settings_path(layout.root).exists():
        write_durability(layout.root, os.environ.get(ENVIRONMENT, DEFAULT))


def is_root(layout: Layout) -> bool:
    return layout.broker_table(CURSOR_LEDGER.name).exists()


def check_layout(layout: Layout) -> None:
    """:class:`OlderLayout` or :class:`NewerLayout` for a root of another layout; nothing without a root."""
    path = layout.broker_table(CURSOR_LEDGER.name)
    with contextlib.suppress(FileNotFoundError):
        life = TableLog(path).life()
        if life is None or _checked.get(str(path)) != life:
            read_definition(path)
            _checked[str(path)] = life


def create_namespace(layout: Layout, namespace: str) -> None:
    """Create ``tenant/namespace``; :class:`NotAllowedError` if it exists."""
    tenant, name = parse_namespace(namespace)
    prepare_root(layout)
    if layout.has_namespace(tenant, name):
        raise NotAllowedError(f"namespace {namespace!r} exists already: create topics in it")
    layout.make_namespace(tenant, name)


def create_topic(layout: Layout, name: TopicName | str, partitions: int = 0) -> Topic:
    """Create the topic; :class:`NotAllowedError` if it exists, :class:`InvalidConfiguration` for *partitions*."""
    topic = find_or_create_topic(layout, name, partitions)
    if topic is None:
        raise NotAllowedError(f"topic {str(name)!r} exists already: delete it first or choose another name")
    return topic


def find_or_create_topic(layout: Layout, name: TopicName | str, partitions: int = 0) -> Topic | None:
    """Create the topic; None if it exists. :class:`NotAllowedError` if a partitioned topic hides it, or the reverse."""
    name = name if isinstance(name, TopicName) else parse_topic_name(name)
    if isinstance(partitions, bool) or not isinstance(partitions, int) or not 0 <= partitions <= MAX_PARTITIONS:
        raise InvalidConfiguration(
            f"partitions {partitions!r}: give a number from 0 (no partitions) to {MAX_PARTITIONS}"
        )
    path = layout.topic(name)
    if not path.exists():
        layout.check_new_topic(name)
    if TableLog(path).latest() < 0:
        check_not_hidden(layout, name, partitions)
    prepare_root(layout)
    definition = {"topic": str(name), "partitions": partitions, "how_to_publish": HOW_TO_PUBLISH}
    columns = {"statistics_of": COUNTED_COLUMNS, "not_null": NEVER_NULL}
    by = ("partition",) if partitions else ()
    if not create_table(path, MESSAGES, definition, by, comment=SET_BY, **columns):
        return None
    try:
        check_not_hidden(layout, name, partitions)  # another program may have made the other topic meanwhile
    except NotAllowedError:
        if TableLog(path).latest() == 0:
            drop_table(path)
        raise
    return read_topic(layout, name)


def check_not_hidden(layout: Layout, name: TopicName, partitions: int = 0, first: int = 0) -> None:
    """:class:`NotAllowedError` if *name* is another topic's partition, or one of its *partitions* another topic."""
    parent = partitioned_parent(layout, name)
    if parent is not None:
        raise NotAllowedError(
            f"topic {str(name)!r} cannot be created: the name means a partition of {str(parent.name)!r}, "
            f"which has {parent.partitions}, 0 to {parent.partitions - 1}: choose another name"
        )
    if partitions:
        hidden = _topics_named_as_partitions(layout, name, first)
        if hidden:
            raise NotAllowedError(
                f"topic {str(name)!r} cannot have {partitions} partitions: the name of the existing topic "
                f"{str(hidden[0])!r} would mean a partition: choose another name, or delete that topic first"
            )


def partitioned_parent(layout: Layout, name: TopicName) -> Topic | None:
    """The partitioned topic of which *name* means a partition, existing or not; else None."""
    parent = name.partitioned_topic
    if parent == name or not layout.topic(parent).exists():
        return None
    try:
        found = read_topic(layout, parent)
    except TopicNotFound:
        return None
    return found if found.partitions else None


def _topics_named_as_partitions(layout: Layout, name: TopicName, first: int) -> list[TopicName]:
    names = (TopicName(*name[:2], each) for each in layout.folder_names(*name[:2]))
    found = [each for each in names if each.partitioned_topic == name != each and each.partition_index >= first]
    return sorted(each for each in found if _is_topic(layout, each))


def _is_topic(layout: Layout, name: TopicName) -> bool:
    try:
        read_topic(layout, name)
    except TopicNotFound:
        return False
    except CorruptState:  # a broken topic must not be hidden either
        return True
    return True


def read_topic(layout: Layout, name: TopicName | str) -> Topic:
    """The topic; :class:`TopicNotFound` if it does not exist; errors of :func:`check_layout`."""
    name = name if isinstance(name, TopicName) else parse_topic_name(name)
    found = _find_topic(layout, name)
    if found is None:
        raise TopicNotFound(f"topic {str(name)!r} does not exist: {_what_to_do(layout, name)}")
    return found


def _find_topic(layout: Layout, name: TopicName) -> Topic | None:
    path = layout.topic(name)
    check_layout(layout)
    try:
        definition = read_definition(path)
    except FileNotFoundError:
        check_there(layout.root)
        return None
    if definition.table != MESSAGES.name or definition.properties.get("topic") != str(name):
        raise CorruptState(f"{str(path)!r} is not the table of topic {str(name)!r}: {DOCTOR}")
    partitions = definition.properties.get("partitions")
    if isinstance(partitions, bool) or not isinstance(partitions, int) or not 0 <= partitions <= MAX_PARTITIONS:
        raise CorruptState(
            f"{str(path)!r}: the topic's definition has {partitions!r} partitions: restore the table's first "
            "commit, or delete the folder"
        )
    return Topic(name, path, definition.table_id, partitions)


def _what_to_do(layout: Layout, name: TopicName) -> str:
    if is_root(layout):
        return f"create it, or publish to it first{topic_hint(layout, name)}"
    return f"{str(layout.root)!r} is not a root of pulsar_spark; give another root, or start a broker there"


def resolve_topic(layout: Layout, name: TopicName | str, create: bool = False) -> tuple[Topic, list[int]]:
    """The topic of *name* and its partitions: all, or the one of a ``-partition-N`` name.

    *create* makes a missing topic, without partitions. :class:`TopicNotFound` otherwise, and for a missing partition.
    """
    name = name if isinstance(name, TopicName) else parse_topic_name(name)
    index, parent = name.partition_index, partitioned_parent(layout, name)
    if parent is not None:
        if index >= parent.partitions:
            raise TopicNotFound(
                f"topic {str(name)!r}: {str(parent.name)!r} has {parent.partitions} partitions, 0 to "
                f"{parent.partitions - 1}"
            )
        return parent, [index]
    topic = _find_topic(layout, name)
    if topic is None:
        topic = (create and find_or_create_topic(layout, name)) or read_topic(layout, name)
    return topic, list(topic.partition_indexes)


def existing_topic(layout: Layout, name: TopicName | str, remedy: str) -> tuple[Topic, list[int]]:
    """:func:`resolve_topic`; its error names the *remedy* that creates the topic."""
    try:
        return resolve_topic(layout, name)
    except TopicNotFound as missing:
        raise TopicNotFound(f"{missing}. With {remedy} it is created" if is_root(layout) else str(missing)) from None


def check_letter_topic(layout: Layout, name: str, *, what: str, subscription: str, remedy: str) -> None:
    """Check the *name* of a subscription's letter topic; errors say *what* it is and the *remedy*.

    :class:`InvalidTopicName` if it cannot be made, :class:`NotAllowedError` if it means a missing partition.
    """
    try:
        parsed = parse_topic_name(name)
        parent = partitioned_parent(layout, parsed)
        if parent is not None and parsed.partition_index >= parent.partitions:
            raise NotAllowedError(
                f"{what} {name!r} of subscription {subscription!r} cannot exist: topic {str(parent.name)!r} has "
                f"{parent.partitions} partitions, 0 to {parent.partitions - 1}. {remedy}"
            )
        if not (layout.topic(parsed.partitioned_topic).exists() or layout.topic(parsed).exists()):
            layout.check_new_topic(parsed)
    except InvalidTopicName as impossible:
        raise InvalidTopicName(
            f"{what} {name!r} of subscription {subscription!r} cannot exist: {impossible}. {remedy}"
        ) from impossible


def resolve_partition(layout: Layout, name: TopicName | str, verb: str) -> tuple[Topic, int]:
    """The topic of *name* and its only or named partition; else :class:`NotAllowedError`: "*verb* one partition"."""
    topic, partitions = resolve_topic(layout, name)
    if len(partitions) > 1:
        raise NotAllowedError(
            f"topic {str(topic.name)!r} is partitioned: {verb} one partition, such as {str(topic.name.partition(0))!r}"
        )
    return topic, partitions[0]


def list_topics(layout: Layout, tenant: str, namespace: str) -> list[Topic]:
    """A namespace's topics by name; errors of :func:`check_layout`."""
    check_layout(layout)
    topics = []
    for name in layout.topics(tenant, namespace):
        try:
            topics.append(read_topic(layout, name))
        except (InvalidRequest, CorruptState):
            continue
    return topics


def delete_topic(layout: Layout, name: TopicName | str) -> None:
    """Delete the topic's table at once; :class:`TopicNotFound` if it does not exist."""
    topic = read_topic(layout, name)
    drop_table(topic.path)
    if layout.store.is_local:
        remove_staged(topic.path)
