"""The number of a topic's partitions, in its table's first commit, which is replaced to raise it."""

import json
from functools import partial

from pulsar_spark.errors import InvalidConfiguration, NotAllowedError, NotARoot, TopicNotFound
from pulsar_spark.protocol.topics.topic_name import TopicName
from pulsar_spark.storage.delta.commits import replace_commit
from pulsar_spark.storage.delta.definitions import read_definition
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.table_lock import append_lock
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.store.store import AnyPath, StrPath
from pulsar_spark.storage.topics.topics import MAX_PARTITIONS, Topic, check_not_hidden, read_topic


def partitions_now(table: StrPath) -> int:
    """The present number of partitions; 0 without any, or without the table."""
    try:
        found = read_definition(table).properties.get("partitions")
    except (FileNotFoundError, NotARoot):
        return 0
    return found if isinstance(found, int) else 0


def raise_partitions(layout: Layout, name: TopicName | str, partitions: int) -> Topic:
    """Raise a topic's number of partitions.

    :class:`NotAllowedError` if it has none or more, or another topic has a new partition's name.
    """
    if isinstance(partitions, bool) or not isinstance(partitions, int) or not 0 < partitions <= MAX_PARTITIONS:
        raise InvalidConfiguration(f"partitions {partitions!r}: give a number from 1 to {MAX_PARTITIONS}")
    topic = read_topic(layout, name)
    path = topic.path
    if _is_raised(topic, partitions):
        check_not_hidden(layout, topic.name, partitions, first=topic.partitions)

    def raised(first: bytes | None) -> str | None:
        text = _text(path, partitions) if _is_raised(read_topic(layout, name), partitions) else None
        return None if first is None else text  # just moved out of the log, it is tried again beside it

    while _is_raised(read_topic(layout, name), partitions):
        layout.store.change(
            TableLog(path).first_commit(),
            raised,
            partial(append_lock, path),
            lambda _first, text: replace_commit(path, 0, text, keep_as=None),
        )
    return read_topic(layout, name)


def _is_raised(topic: Topic, partitions: int) -> bool:
    """Does it have fewer? :class:`NotAllowedError` for an impossible number."""
    if not topic.partitions:
        raise NotAllowedError(f"topic {str(topic.name)!r} has no partitions and cannot get any: create another topic")
    if partitions < topic.partitions:
        raise NotAllowedError(
            f"topic {str(topic.name)!r} has {topic.partitions} partitions, a number that cannot "
            f"be lowered to {partitions}"
        )
    return partitions > topic.partitions


def _text(path: AnyPath, partitions: int) -> str:
    actions = TableLog(path).first_actions()
    if actions is None:
        raise TopicNotFound(
            f"{str(path)!r}: the table's first commit is missing from its log: the number of "
            "partitions can no longer be raised"
        )
    for action in actions:
        if "metaData" in action:
            definition = json.loads(action["metaData"]["description"])
            action["metaData"]["description"] = json.dumps(definition | {"partitions": partitions}, sort_keys=True)
    return "\n".join(map(json.dumps, actions)) + "\n"


class PartitionWatch:
    """Watches for partitions added since *topic* was read."""

    def __init__(self, topic: Topic):
        self._topic, self._log = topic, TableLog(topic.path)
        self._life: object = self  # equals no life, so that the first look compares

    def added(self) -> Topic | None:
        """The present topic, once, if it has more partitions than at the last call."""
        try:
            life = self._log.life()
        except FileNotFoundError:
            return None
        if life == self._life:
            return None
        try:
            definition = read_definition(self._topic.path)
        except FileNotFoundError:
            return None
        self._life, now = life, definition.properties.get("partitions") or 0
        if definition.table_id != self._topic.topic_id or now <= self._topic.partitions:
            return None
        self._topic = self._topic._replace(partitions=now)
        return self._topic
