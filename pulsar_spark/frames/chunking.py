"""Publishing payloads of any size: a message above the maximum goes as chunks (semantics 1.1-1.5), without a Python
process seeing a row.

A chunked message has a producer name and a sequence id, of which its uuid is made: those of its row, else the name of
the publish and a number within it. Its row was routed before, so all its chunks lie in one partition, one behind the
other in one file.

**Memory.** A row is split while it is read; what a task needs is the row as the source gives it, the bytes of the
payload beside it, and two row groups (see storage.data_files).
"""

from collections.abc import Collection
from typing import NamedTuple

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pulsar_spark.client.arguments import check_count
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.frames.message_columns import refusal
from pulsar_spark.protocol.chunking import NUMBERS_BYTES, TEXT_BYTES
from pulsar_spark.storage.staged_files import StagedFile
from pulsar_spark.storage.store import store_of
from pulsar_spark.table_specs import CHUNK_COLUMNS, MESSAGE_KEYS
from pulsar_spark.transforms.chunks import split_messages

_TEXTS = ("producer_name", *MESSAGE_KEYS)
_LONGEST_NUMBER = len("-") + len(str(2**63))


BY_POLICY = "policy"
"""In the place of a maximum message size: the topic's policy says it."""


def check_chunking(chunking: bool, max_message_size: int | str | None, chunk_max_message_size: int | None) -> None:
    """:class:`InvalidConfiguration` for what a caller of ``publish`` cannot mean."""
    if max_message_size is not None and max_message_size != BY_POLICY:
        check_count("max_message_size", max_message_size)
    if chunk_max_message_size is not None:
        check_count("chunk_max_message_size", chunk_max_message_size)
        if not chunking:
            raise InvalidConfiguration(f"chunk_max_message_size {chunk_max_message_size!r} needs chunking=True")


class Chunking(NamedTuple):
    """How payloads are split: so that no message, its metadata included, is larger than the first, and no chunk's
    payload larger than the second, if that is above 0."""

    max_message_size: int
    chunk_max_message_size: int

    @property
    def most_bytes(self) -> int:
        """Of payload that a row has at most."""
        sizes = (self.max_message_size, self.chunk_max_message_size)
        return min(size for size in sizes if size > 0)

    def split(self, messages: DataFrame, given: set[str], publish_id: str) -> tuple[DataFrame, set[str]]:
        """*messages*, which have the columns *given*, with those above the maximum as chunks; and the columns then."""
        unnamed = F.lit(f"publish-{publish_id}")
        producer_name = F.coalesce("producer_name", unnamed) if "producer_name" in given else unnamed
        number = F.monotonically_increasing_id()
        sequence_id = F.coalesce("sequence_id", number) if "sequence_id" in given else number
        texts = [producer_name, *(F.col(name) for name in _TEXTS[1:] if name in given)]
        rows = split_messages(messages, self._chunk_bytes(texts, "properties" in given), producer_name, sequence_id)
        return rows, {*given, "producer_name", "sequence_id", *CHUNK_COLUMNS}

    def _chunk_bytes(self, texts: list[Column], has_properties: bool) -> Column:
        """What ``protocol.chunking.chunk_payload_bytes`` says, as a Column that fails the job where that raises; the
        uuid is the producer's name and a number."""
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
            F.concat(
                F.lit("the metadata alone takes "),
                metadata.cast("string"),
                F.lit(
                    f" of the {self.max_message_size} bytes that a message may have: give fewer or shorter properties "
                    "and keys"
                ),
            ),
        )
        limited = F.least(room, F.lit(self.chunk_max_message_size)) if self.chunk_max_message_size > 0 else room
        return F.when(room > 0, limited).otherwise(too_much.cast("int"))


def count_messages(files: Collection[StagedFile]) -> int:
    """The messages in *files*, chunks of one message as one."""
    return sum(file.rows - _chunks_but_last(file) for file in files)


def _chunks_but_last(file: StagedFile) -> int:
    if file.statistics["nullCount"].get("uuid", file.rows) == file.rows:
        return 0
    ids = pq.ParquetFile(store_of(file.source).parquet(file.source)).read(columns=["chunk_id", "num_chunks_from_msg"])
    return pc.sum(pc.less(ids["chunk_id"], pc.subtract(ids["num_chunks_from_msg"], 1))).as_py() or 0
