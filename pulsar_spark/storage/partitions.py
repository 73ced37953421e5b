"""How many partitions a topic has, and raising that number.

The number is said by the first commit of the topic's table, which is replaced in one step when it is raised, as a
migration does: a crash leaves either. It never falls. Whoever has the topic open finds out when a commit has files of a
partition it does not know (:func:`partitions_now`), or by looking now and then: a stat says whether the first commit is
another. Until then it goes on with the partitions it knows, whose entries stay where they are.
"""

import json
import os
from functools import partial

from pulsar_spark.errors import InvalidConfiguration, NotAllowedError, NotARoot, TopicNotFound
from pulsar_spark.protocol.topic_name import TopicName
from pulsar_spark.storage.commits import replace_commit
from pulsar_spark.storage.definitions import read_definition
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.store import AnyPath
from pulsar_spark.storage.table_lock import append_lock
from pulsar_spark.storage.topics import MAX_PARTITIONS, Topic, check_not_hidden, read_topic


def partitions_now(table: str | os.PathLike) -> int:
    """The number that a topic's table says; 0 for a topic without partitions, and where there is none any more."""
    try:
        found = read_definition(table).properties.get("partitions")
    except (FileNotFoundError, NotARoot):
        return 0
    return found if isinstance(found, int) else 0


def raise_partitions(layout: Layout, name: TopicName | str, partitions: int) -> Topic:
    """Give a partitioned topic *partitions*; the topic as it is then. :class:`NotAllowedError` for a topic without
    partitions, where it has more, and where a topic has the name of a new one; nothing where it has so many."""
    if isinstance(partitions, bool) or not isinstance(partitions, int) or not 0 < partitions <= MAX_PARTITIONS:
        raise InvalidConfiguration(f"partitions {partitions!r}: give a number from 1 to {MAX_PARTITIONS}")
    topic = read_topic(layout, name)
    path = topic.path
    if _is_raised(topic, partitions):
        check_not_hidden(layout, topic.name, partitions, first=topic.partitions)

    def raised(first: bytes | None) -> str | None:
        text = _text(path, partitions) if _is_raised(read_topic(layout, name), partitions) else None
        return None if first is None else text  # it left the log just now, and lies beside it

    while _is_raised(read_topic(layout, name), partitions):
        layout.store.change(
            TableLog(path).first_commit(),
            raised,
            partial(append_lock, path),
            lambda _first, text: replace_commit(path, 0, text, keep_as=None),
        )
    return read_topic(layout, name)


def _is_raised(topic: Topic, partitions: int) -> bool:
    """Are these more than it has? Refuses what cannot be."""
    if not topic.partitions:
        raise NotAllowedError(f"topic {str(topic.name)!r} has no partitions and cannot get any: create another topic")
    if partitions < topic.partitions:
        raise NotAllowedError(
            f"topic {str(topic.name)!r} has {topic.partitions} partitions, a number that cannot "
            f"be lowered to {partitions}"
        )
    return partitions > topic.partitions


def _text(path: AnyPath, partitions: int) -> str:
    """The first commit of a topic that has so many."""
    actions = TableLog(path).first_actions()
    if actions is None:
        raise TopicNotFound(
            f"{str(path)!r}: the table's first commit is missing from its log: the number of "
            "partitions can no longer be raised"
        )
    for action in actions:
        if "metaData" in action:
            said = json.loads(action["metaData"]["description"])
            action["metaData"]["description"] = json.dumps(said | {"partitions": partitions}, sort_keys=True)
    return "\n".join(map(json.dumps, actions)) + "\n"


class PartitionWatch:
    """Tells one who has a topic open of partitions that were added since *topic* was read, however long ago: a producer
    may have waited for it in between."""

    def __init__(self, topic: Topic):
        self._topic, self._log = topic, TableLog(topic.path)
        self._life: object = self  # no life there is: the first look compares

    def added(self) -> Topic | None:
        """The topic as it is now, once, where it has more partitions than the last time; for the price of a stat where
        it has not."""
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
        self._life = life
        now = definition.properties.get("partitions") or 0
        if definition.table_id != self._topic.topic_id or now <= self._topic.partitions:
            return None
        self._topic = self._topic._replace(partitions=now)
        return self._topic
