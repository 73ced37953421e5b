"""The topics in a Spark task's rows."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from pulsar_spark.errors import TopicNotFound
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import Topic, read_topic


def topics_there(layout: Layout, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Topic, dict]]:
    """Each row with ``topic`` and ``topic_id``, and its topic; rows of deleted or recreated topics are left out."""
    for row in (row for batch in batches for row in batch.to_pylist()):
        try:
            topic = read_topic(layout, row["topic"])
        except TopicNotFound:
            continue
        if topic.topic_id == row["topic_id"]:
            yield topic, row
