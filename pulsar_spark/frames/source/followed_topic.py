"""The topics of a read, with the runs of their partitions, as far as their logs go."""

import re
from collections.abc import Iterator

from pulsar_spark.errors import InvalidConfiguration, TopicNotFound
from pulsar_spark.frames.source.options import SourceOptions
from pulsar_spark.protocol.topics.topic_name import TopicName, parse_topic_name
from pulsar_spark.protocol.topics.topic_pattern import TopicPattern
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import check_opens
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledgers import FollowedLedgers
from pulsar_spark.storage.ledgers.partition_ledgers import PartitionLedgers
from pulsar_spark.storage.topics.topics import read_topic, resolve_topic

_NOTHING = PartitionLedgers()


class FollowedTopic:
    """A topic, or one partition of it, whose runs are known up to its table's latest version at :meth:`look`."""

    def __init__(self, layout: Layout, name: TopicName | str):
        self._layout = layout
        self.name = full_name(name)
        """The full name that was given: of the topic, or of one partition."""
        self.topic, partitions = resolve_topic(layout, name)
        self._only = partitions if partitions != list(self.topic.partition_indexes) else None
        self._log, self._ledgers = TableLog(self.topic.path), FollowedLedgers(layout, self.topic)
        self._life = self._log.life()
        check_opens(self.topic.path)
        self.look()

    def look(self) -> None:
        """Follow the log to its end; :class:`TopicNotFound` if the topic was deleted."""
        try:
            life = self._log.life()
        except FileNotFoundError:
            life = ()
        if life != self._life and None not in (life, self._life):
            self._check_there()
        self._life = life
        self._ledgers.follow(self._log.latest(self._ledgers.version))

    def _check_there(self) -> None:
        """Raise :class:`TopicNotFound` unless the topic is still the one that was found first."""
        try:
            found, again = read_topic(self._layout, self.topic.name).topic_id, " and created again"
        except TopicNotFound:
            found, again = "", ""
        if found != self.topic.topic_id:
            raise TopicNotFound(
                f"topic {self.name!r} was deleted{again} while it was read: begin again, a stream with a new checkpoint"
            )

    @property
    def partitions(self) -> list[int]:
        """The partitions that are read: with a whole topic also those that have been added."""
        if self._only is not None:
            return self._only
        added = (each for each in self._ledgers.partitions if each >= self.topic.partitions > 0)
        return sorted({*self.topic.partition_indexes, *added})

    def ledgers(self, partition: int) -> PartitionLedgers:
        return self._ledgers.partitions.get(partition, _NOTHING)

    def first_position(self, partition: int) -> int:
        """The first position that was not trimmed."""
        return self._ledgers.first_position(partition)


def full_name(name: TopicName | str) -> str:
    return str(name if isinstance(name, TopicName) else parse_topic_name(name))


def topic_names(options: SourceOptions, layout: Layout) -> Iterator[TopicName | str]:
    """The names of the topics that *options* choose; those of a pattern that exist now."""
    if options.topics_pattern is None:
        yield from dict.fromkeys(options.topics or [options.topic or ""])
        return
    try:
        pattern = TopicPattern(re.compile(options.topics_pattern))
    except re.error as wrong:
        raise InvalidConfiguration(
            f"option 'topicsPattern' is {options.topics_pattern!r}: {wrong}; give a regular expression"
        ) from None
    yield from pattern.fitting(layout.topics(*pattern.namespace))
