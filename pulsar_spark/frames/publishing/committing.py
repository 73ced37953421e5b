"""Commit the files of a publish; to a topic with deduplication without rows whose sequence id is already stored, or
comes twice.

Only the written files are checked (see storage.topics.new_rows). So the frame does not run again if another publish
commits first."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark.errors import PySparkException

from pulsar_spark.errors import InvalidConfiguration, TopicNotFound, named
from pulsar_spark.frames.publishing.chunking import count_messages
from pulsar_spark.frames.publishing.message_columns import REFUSED
from pulsar_spark.link.quota import BacklogQuota
from pulsar_spark.protocol.policies.deduplication import prefix_since
from pulsar_spark.storage.delta.staged_files import StagedFile
from pulsar_spark.storage.delta.tables import AppendTable, is_committed
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.new_rows import new_rows
from pulsar_spark.storage.topics.sequence_ids import SequenceIds
from pulsar_spark.storage.topics.topics import Topic, read_topic


def append_files(
    topic: Topic, files: Sequence[StagedFile], transaction: tuple[str, int] | None, quota: BacklogQuota | None
) -> tuple[int | None, int]:
    """Commit *files*, as *transaction* (application id, version) at most once; return the version and the number of
    messages, or None and 0 if nothing was committed. With the *quota* of a topic its policy of deduplication counts."""
    since = None if quota is None else quota.deduplication_since()
    if quota is not None and since is not None:
        return append_new(topic, files, since, quota.inactivity_ms(), transaction)
    table, count = AppendTable(topic.path), count_messages(files)
    version = (table.append_once(files, *transaction) if transaction else table.append(files)) if files else None
    return version, 0 if version is None else count


def append_new(
    topic: Topic,
    files: Sequence[StagedFile],
    since: int,
    inactivity_ms: int,
    transaction: tuple[str, int] | None = None,
) -> tuple[int | None, int]:
    """Commit the new rows of *files*; return the version and the number of messages, or None and 0 if there are none or
    *transaction* (application id, version) is committed."""
    table, begins = AppendTable(topic.path), prefix_since(since)
    stored = SequenceIds(topic.path, lambda name: name.startswith(begins), inactivity_ms)
    while True:
        stored.catch_up()
        with new_rows(topic.path, files, stored.highest, since) as new:
            if not new.files or (transaction is not None and is_committed(topic.path, *transaction)):
                return None, 0
            messages = count_messages(new.files)
            transactions = new.transactions | dict([transaction] if transaction else [])
            version = table.append_after(stored.version, new.files, transactions)
            if version is not None:
                return version, messages


@contextmanager
def naming_errors(layout: Layout, topic: Topic) -> Iterator[None]:
    """Raise the error that a task raised on purpose, and say what is gone if a file is missing."""
    try:
        yield
    except PySparkException as failed:
        found = re.search(re.escape(REFUSED) + r"(\w+): ([^\n]*?)(?: SQLSTATE: \w+)?(?:\n|$)", str(failed))
        if found is None:
            raise
        raise named(found[1])(found[2]) from failed
    except FileNotFoundError as gone:
        try:
            is_there = read_topic(layout, topic.name).topic_id == topic.topic_id
        except TopicNotFound:
            is_there = False
        if not is_there:
            raise TopicNotFound(f"topic {str(topic.name)!r} was deleted meanwhile: nothing was published") from gone
        raise InvalidConfiguration(
            f"topic {str(topic.name)!r}: the driver cannot see a file that a task wrote ({gone}); nothing was "
            "published: use a root that all machines see under the same path"
        ) from gone
