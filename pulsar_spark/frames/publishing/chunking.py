"""Publish payloads of any size: Spark splits a message above the maximum into chunks (semantics 1.1-1.5).

The uuid consists of producer name and sequence id, generated if missing. Rows are routed before, so all chunks lie in
one partition, in sequence in one file."""

from collections.abc import Collection
from typing import Literal, NamedTuple

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pulsar_spark.client.arguments import check_count
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.frames.publishing.message_columns import refusal
from pulsar_spark.protocol.chunks.chunking import NUMBERS_BYTES, TEXT_BYTES
from pulsar_spark.storage.delta.staged_files import StagedFile
from pulsar_spark.storage.store.store import store_of
from pulsar_spark.table_specs import CHUNK_COLUMNS, MESSAGE_KEYS
from pulsar_spark.transforms.chunks import split_messages

_TEXTS = ("producer_name", *MESSAGE_KEYS)
_LONGEST_NUMBER = len("-") + len(str(2**63))
BY_POLICY: Literal["policy"] = "policy"
"""Stands for the maximum message size of the topic's policy."""


def check_chunking(chunking: bool, max_message_size: int | str | None, chunk_max_message_size: int | None) -> None:
    """Raise :class:`InvalidConfiguration` for invalid chunking arguments of ``publish``."""
    if max_message_size is not None and max_message_size != BY_POLICY:
        check_count("max_message_size", max_message_size)
    if chunk_max_message_size is not None:
        check_count("chunk_max_message_size", chunk_max_message_size)
        if not chunking:
            raise InvalidConfiguration(f"chunk_max_message_size {chunk_max_message_size!r} needs chunking=True")


class Chunking(NamedTuple):
    """How payloads are split: the maximum sizes of a message with its metadata, and of a chunk's payload (0: none)."""

    max_message_size: int
    chunk_max_message_size: int

    @property
    def most_bytes(self) -> int:
        sizes = (self.max_message_size, self.chunk_max_message_size)
        return min(size for size in sizes if size > 0)

    def split(self, messages: DataFrame, given: set[str], publish_id: str) -> tuple[DataFrame, set[str]]:
        unnamed = F.lit(f"publish-{publish_id}")
        producer_name = F.coalesce("producer_name", unnamed) if "producer_name" in given else unnamed
        number = F.monotonically_increasing_id()
        sequence_id = F.coalesce("sequence_id", number) if "sequence_id" in given else number
        texts = [producer_name, *(F.col(name) for name in _TEXTS[1:] if name in given)]
        rows = split_messages(messages, self._chunk_bytes(texts, "properties" in given), producer_name, sequence_id)
        return rows, {*given, "producer_name", "sequence_id", *CHUNK_COLUMNS}

    def _chunk_bytes(self, texts: list[Column], has_properties: bool) -> Column:
        """``protocol.chunks.chunking.chunk_payload_bytes`` as a Column, which fails the job where that raises."""
        name, *keys = texts
        metadata = F.lit(NUMBERS_BYTES + 2 * TEXT_BYTES + _LONGEST_NUMBER) + F.octet_length(name) * 2
        for key in keys:
            metadata += F.coalesce(F.octet_length(key) + TEXT_BYTES, F.lit(0))
        if has_properties:
            metadata += F.coalesce(
                F.aggregate(
                    F.map_entries("properties"),
                    F.lit(0),
                    lambda total, each: (
                        total
                        + 2 * TEXT_BYTES
                        + F.octet_length(each.getField("key"))
                        + F.coalesce(F.octet_length(each.getField("value")), F.lit(0))
                    ),
                ),
                F.lit(0),
            )
        room = F.lit(self.max_message_size) - metadata
        too_much = refusal(
            "InvalidMessage",
            f"the metadata alone takes %s of the {self.max_message_size} bytes that a message may have: give fewer or "
            "shorter properties and keys",
            metadata,
        )
        limited = F.least(room, F.lit(self.chunk_max_message_size)) if self.chunk_max_message_size > 0 else room
        return F.when(room > 0, limited).otherwise(too_much.cast("int"))


def count_messages(files: Collection[StagedFile]) -> int:
    """The number of messages in *files*; the chunks of a message are one."""
    return sum(file.rows - _chunks_but_last(file) for file in files)


def _chunks_but_last(file: StagedFile) -> int:
    if file.statistics["nullCount"].get("uuid", file.rows) == file.rows:
        return 0
    ids = pq.ParquetFile(store_of(file.source).parquet(file.source)).read(columns=["chunk_id", "num_chunks_from_msg"])
    return pc.sum(pc.less(ids["chunk_id"], pc.subtract(ids["num_chunks_from_msg"], 1))).as_py() or 0
