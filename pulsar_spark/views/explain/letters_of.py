"""The letter that a round ordered for a message, in its letter topic."""

from collections.abc import Iterator
from typing import NamedTuple

from pulsar_spark.errors import CorruptState, InvalidTopicName, TopicNotFound
from pulsar_spark.protocol.redelivery.letters import ORIGIN_MESSAGE_ID, dead_letters_to
from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.storage.delta.actions import Commit
from pulsar_spark.storage.delta.data_files import read_file
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.topics.topics import Topic, read_topic
from pulsar_spark.table_specs import MESSAGES
from pulsar_spark.views.explain.entry import Entry
from pulsar_spark.views.explain.life import Event
from pulsar_spark.views.explain.reasons import Seen

_COLUMNS = ["entry_id", "partition", "properties", "chunk_id", "num_chunks_from_msg"]


class Letter(NamedTuple):
    """A letter's topic, and its id; None if it is not written, or no longer found in the topic's log."""

    topic: str
    message_id: MessageId | None


def letter_of(seen: Seen, entry: Entry, event: Event) -> Letter:
    """The letter of a ``dead_lettered`` or ``retry_lettered`` *event*."""
    properties = dict(event.row["properties"] or ())
    name = properties.get("letter_topic") or dead_letters_to(
        properties, str(entry.topic.name), event.subscription or ""
    )
    try:
        topic = read_topic(seen.layout, name)
    except (TopicNotFound, InvalidTopicName):
        return Letter(name, None)
    return Letter(name, next(_letters(topic, entry, event.round or 0), None))


def _letters(topic: Topic, entry: Entry, number: int) -> Iterator[MessageId]:
    origins = {str(entry.message_id), entry.properties.get(ORIGIN_MESSAGE_ID)}
    for commit in _commits(topic, number):
        for file in commit.added:
            for row in read_file(topic.path, file, MESSAGES.schema, _COLUMNS).to_pylist():
                is_last = row["chunk_id"] is None or row["chunk_id"] == row["num_chunks_from_msg"] - 1
                if is_last and dict(row["properties"] or ()).get(ORIGIN_MESSAGE_ID) in origins:
                    yield MessageId(row["partition"], commit.version, row["entry_id"])


def _commits(topic: Topic, number: int) -> Iterator[Commit]:
    """The commits of the letters that round *number* ordered, also of those that had to wait."""
    try:
        for commit in TableLog(topic.path).commits_from_the_end():
            rounds = {app: each for app, each in commit.transactions.items() if app.startswith("letters/")}
            if any(each == number or (each > number and "/waiting/" in app) for app, each in rounds.items()):
                yield commit
            elif any(each < number for each in rounds.values()):
                return
    except CorruptState:
        return
