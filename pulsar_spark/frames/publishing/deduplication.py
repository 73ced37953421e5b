"""Commit a publish to a topic with deduplication: leave out rows whose sequence id is already stored, or comes twice.

Only the written files are checked (see storage.topics.new_rows). So the frame does not run again if another publish
commits first."""

from collections.abc import Sequence

from pulsar_spark.frames.publishing.chunking import count_messages
from pulsar_spark.protocol.policies.deduplication import prefix_since
from pulsar_spark.storage.delta.staged_files import StagedFile
from pulsar_spark.storage.delta.tables import AppendTable, is_committed
from pulsar_spark.storage.topics.new_rows import new_rows
from pulsar_spark.storage.topics.sequence_ids import SequenceIds
from pulsar_spark.storage.topics.topics import Topic


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
