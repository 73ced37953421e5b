"""Where a read begins and ends: parse ``startingPosition`` and ``endingPosition``, and find the position they mean."""

import json
from collections.abc import Iterable
from datetime import datetime

from pulsar_spark.errors import InvalidConfiguration, InvalidMessageId
from pulsar_spark.frames.source.followed_topic import FollowedTopic
from pulsar_spark.frames.source.options import EARLIEST, LATEST, SourceOptions, shown_name
from pulsar_spark.protocol.delays.instants import named_time
from pulsar_spark.protocol.topics.message_id import MessageId, parse_message_id
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.storage.ledgers.partition_ledgers import PartitionLedgers
from pulsar_spark.storage.ledgers.publish_times import first_published_at

_MILLISECONDS = 10**12
"""A number from here on is no position but milliseconds since 1970, as Spark's Kafka source takes them."""
Place = str | int | datetime | MessageId
"""``earliest``, ``latest``, a position, a publish time or a message id."""


class Positions:
    """One option: a place for all topic partitions, or places by topic and partition."""

    def __init__(self, option: str, text: str, default: str):
        self._option, self._text, self._default = shown_name(option), text, default
        self._all: Place | None = None
        self._each: dict[str, dict[int, Place]] = {}
        if text.lstrip().startswith("{"):
            self._each = self._parse_each(text)
        else:
            self._all = self._parse(text)

    @classmethod
    def starting(cls, options: SourceOptions) -> "Positions":
        return cls("starting_position", options.starting_position, EARLIEST)

    @classmethod
    def ending(cls, options: SourceOptions) -> "Positions":
        return cls("ending_position", options.ending_position, LATEST)

    def check(self, topics: Iterable[FollowedTopic]) -> None:
        """:class:`InvalidConfiguration` if a place is of another topic than these, or of a partition that it lacks."""
        read: dict[str, list[int]] = {}
        for each in topics:  # perhaps several partitions of one topic
            read.setdefault(str(each.topic.name), []).extend(each.partitions)
        for name, places in self._each.items():
            if name not in read:
                raise InvalidConfiguration(
                    f"option {self._option!r} names topic {name!r}, which is not read: name a topic of this read"
                )
            if other := sorted(places.keys() - read[name]):
                raise InvalidConfiguration(
                    f"option {self._option!r} names partition {other[0]} of topic {name!r}, which is not read: name "
                    f"one of {read[name]}"
                )

    def find(self, topic: FollowedTopic, partition: int) -> int:
        """The position in *partition*, from the first that is not trimmed to the end; for a time, of the first message
        published then or later."""
        known, first = topic.ledgers(partition), topic.first_position(partition)
        place = self._all
        if place is None:
            place = self._each.get(str(topic.topic.name), {}).get(partition, self._parse(self._default))
        return max(first, min(self._found(place, topic, partition, known, first), known.end_position))

    def _found(self, place: Place, topic: FollowedTopic, partition: int, known: PartitionLedgers, first: int) -> int:
        if isinstance(place, int):
            return place
        if isinstance(place, datetime):
            return first_published_at(topic.topic.path, known, place, first)
        if isinstance(place, str):
            return first if place == EARLIEST else known.end_position
        if place.partition() != partition:
            raise InvalidConfiguration(
                f"option {self._option!r}: message id {place} is of partition {place.partition()}, not of {partition} "
                f"of topic {str(topic.topic.name)!r}: give places by topic and partition"
            )
        index = known.index_of_entry(place.ledger_id(), place.entry_id())
        if index >= 0 and known[index].ledger_id == place.ledger_id():
            return min(place.entry_id(), known[index].last_entry_id + 1) + known[index].to_position
        return known.first_after(place.ledger_id() - 1)

    def _parse(self, value: object) -> Place:
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return self._position(value)
        if not isinstance(value, str):
            raise self._wrong(value)
        text = value.strip()
        if text.lower() in (EARLIEST, LATEST):
            return text.lower()
        if text.isascii() and text.isdigit():
            return self._position(int(text))
        try:
            return parse_message_id(text)
        except InvalidMessageId:
            pass
        try:
            return named_time(text)
        except ValueError:
            raise self._wrong(value) from None

    def _position(self, value: int) -> int:
        if value >= _MILLISECONDS:
            raise InvalidConfiguration(
                f"option {self._option!r} is {value}, more than any position: give milliseconds since 1970 as a time, "
                "such as 2026-01-31T12:00:00Z"
            )
        return value

    def _parse_each(self, text: str) -> dict[str, dict[int, Place]]:
        try:
            found = json.loads(text)
            return {
                str(parse_topic_name(topic)): {
                    int(partition): self._parse(place) for partition, place in places.items()
                }
                for topic, places in found.items()
            }
        except (ValueError, AttributeError):
            raise self._wrong(text) from None

    def _wrong(self, value: object) -> InvalidConfiguration:
        return InvalidConfiguration(
            f"option {self._option!r} is {value!r}: give 'earliest', 'latest', a position (0, 1, 2...), a time such as "
            "2026-01-31T12:00:00Z, a message id such as (5,7,-1,-1), or these by topic and partition, such as "
            '{"orders": {"0": 12, "1": "latest"}}; a topic without partitions has the partition -1'
        )
