"""Publishes chunks made by hand, to try missing, repeated, misordered or wrong ones. No broker is needed."""

import secrets
import time

from pulsar_spark.client.arguments import check_type
from pulsar_spark.client.sending.publish_rows import Entry, Outgoing, publish_rows
from pulsar_spark.errors import NotAllowedError
from pulsar_spark.protocol.policies.policies import MOST_INT32
from pulsar_spark.protocol.topics.message_id import MAX_LONG, MessageId
from pulsar_spark.protocol.topics.numbering import publish_id
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import resolve_topic

_NUMBERS = {"chunk_id": MOST_INT32, "num_chunks": MOST_INT32, "total_size": MAX_LONG}


class RawChunks:
    """Part of ``Admin`` that publishes raw chunks."""

    layout: Layout

    def publish_raw_chunk(
        self,
        topic: str,
        uuid: str | None,
        chunk_id: int,
        num_chunks: int,
        total_size: int,
        payload: bytes,
        producer_name: str = "raw-chunks",
    ) -> MessageId:
        """Publish one entry with this *payload* that claims to be chunk *chunk_id* of the *num_chunks* of message
        *uuid* of *producer_name*, with *total_size* bytes in all.

        The claims are not checked. Without *uuid* it is a message in one piece. A missing topic is created. Name one
        partition of a partitioned topic.
        """
        check_type(str | None, uuid, "uuid")
        check_type(bytes, payload, "payload")
        check_type(str, producer_name, "producer_name")
        numbers = {"chunk_id": chunk_id, "num_chunks": num_chunks, "total_size": total_size}
        for name, value in numbers.items():
            check_type(int, value, name)
            if abs(value) > _NUMBERS[name]:
                raise ValueError(f"argument {name}: {value} is beyond {_NUMBERS[name]}, which a table can hold")
        found, partitions = resolve_topic(self.layout, topic, create=True)
        if len(partitions) > 1:
            raise NotAllowedError(
                f"topic {topic!r} is partitioned: publish to one partition, such as {topic}-partition-0"
            )
        now_ms = time.time_ns() // 1_000_000
        columns = None
        if uuid is not None:
            named = zip(("chunk_id", "num_chunks_from_msg", "total_chunk_msg_size"), numbers.values())
            columns = {"uuid": uuid, **dict(named)}
        message = Outgoing(payload, None, None, None, None, None, now_ms, 0, 0.0, None, columns)
        identity = publish_id(now_ms, secrets.randbits(74))
        rows, _ = publish_rows([Entry(partitions[0], [message])], identity, producer_name)
        version = AppendTable(found.path).append(rows) or 0  # a number: nothing tells it not to write
        return MessageId(partitions[0], version, 0).of_topic(str(found.name.partition(partitions[0])))
