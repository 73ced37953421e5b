"""Incomplete chunked messages: their present and missing chunks. Pulsar has no such verb."""

from collections.abc import Iterator

from pulsar_spark.storage.chunks.chunk_runs import chunk_runs_of
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.bundles import layout_of
from pulsar_spark.storage.topics.topics import resolve_topic
from pulsar_spark.views.chunks import count_incomplete, read_incomplete

_SHOWN = {
    "producerName": "producer_name",
    "uuid": "uuid",
    "numChunksFromMsg": "num_chunks_from_msg",
    "totalChunkMsgSize": "total_chunk_msg_size",
    "chunks": "chunks",
    "missing": "missing",
    "firstPosition": "first",
    "lastPosition": "last",
    "isOpen": "is_open",
    "reason": "reason",
}


class IncompleteChunks:
    """Part of ``Admin`` for incomplete chunked messages. *topic* may be a partition."""

    layout: Layout

    def incomplete_chunks(self, topic: str) -> Iterator[dict]:
        """The incomplete chunked messages, by partition in the order in which they began.

        ``missing`` has ranges of chunk ids, both ends inclusive. The missing chunks of a message that ``isOpen`` may
        still come.
        """
        found, partitions = resolve_topic(self.layout, topic)
        for partition in partitions:
            for rows in read_incomplete(
                found, partition, chunk_runs_of(layout_of(self.layout, found.name), found.topic_id, partition)
            ):
                for row in rows:
                    shown = {name: row[column] for name, column in _SHOWN.items()}
                    since = None if row["since"] is None else row["since"].isoformat()
                    yield {
                        "topic": str(found.name.partition(partition)) if partition >= 0 else str(found.name),
                        **shown,
                    } | {"since": since}

    def count_incomplete_chunks(self, topic: str) -> dict:
        """Count the incomplete chunked messages, the open ones, and their chunks, with the time of the oldest."""
        found, partitions = resolve_topic(self.layout, topic)
        counted = [
            count_incomplete(found, each, chunk_runs_of(layout_of(self.layout, found.name), found.topic_id, each))
            for each in partitions
        ]
        since = min((each.since for each in counted if each.since is not None), default=None)
        return {
            "messages": sum(each.messages for each in counted),
            "open": sum(each.still_open for each in counted),
            "chunks": sum(each.chunks for each in counted),
            "since": since and since.isoformat(),
        }
