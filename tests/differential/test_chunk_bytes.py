"""Random arrivals of chunks, dropped, repeated, in any order and with counts that lie: every message that is complete
by the reference broker's rules is there once, with the right bytes, and no other. Asked of a reader, of read_messages
and of chunks that are a frame already.

``PULSAR_SPARK_HISTORIES=n`` draws n topics of each, ``PULSAR_SPARK_SEED=s`` others than usual.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

import pulsar_spark as pulsar
from pulsar_spark.frames import read_messages
from pulsar_spark.transforms.chunks import whole_messages
from tests.differential.chunk_strategies import entries as arrivals
from tests.differential.drawing import drawn
from tests.spec.history import publish
from tests.spec.table import entries
from tests.support import chunk_rows
from tests.support.model_chunks import Chunks
from tests.support.spark_engine import new_engine

TOPIC = "persistent://public/default/t"


class Arrived:
    """Commits of entries, in a topic at *root*, and the messages that the model makes of them."""

    def __init__(self, root: Path, commits: list[str]):
        self.messages, chunks, engine = [], Chunks(), new_engine(None, root)
        self.root = engine.layout.root
        engine.create_topic(TOPIC)
        for commit in map(entries, commits):
            publish(engine, TOPIC, -1, commit, 1_000)
            chunks.entries += [entry.chunk for entry in commit]
            self.messages += [b"x"] * len(commit)
        self.sizes = [entry.messages for commit in map(entries, commits) for entry in commit]
        chunks.see()
        for last, positions in chunks.messages.items():
            self.messages[last] = b"".join(chunk_rows.payload_of(chunks.entries[position]) for position in positions)
        self.path = engine.layout.topic(engine.rounds.bundle.topic(TOPIC).topic.name)
        self.expected = [
            (position, payload)
            for position, payload in enumerate(self.messages)
            if position not in chunks.parts
            for _ in range(self.sizes[position])
        ]

    def read(self) -> list[bytes]:
        """What a reader gets."""
        client = pulsar.Client(f"delta:{self.root}", operation_timeout_seconds=1)
        reader, found = client.create_reader(TOPIC, pulsar.MessageId.earliest), []
        while reader.has_message_available():
            found.append(reader.read_next(0).data())
        client.shutdown()
        return found

    def chunks_as_frame(self, spark: SparkSession) -> DataFrame:
        """The rows of the table, with their positions."""
        rows = spark.read.format("delta").load(str(self.path))
        in_order = F.dense_rank().over(Window.orderBy("publish_id", "entry_id")) - 1
        return rows.withColumn("position", in_order.cast("bigint"))


def ask(check: Callable[[Arrived], None], examples: int) -> None:
    @drawn(examples)
    @given(st.lists(arrivals(), min_size=1, max_size=12))
    def draw(commits):
        with tempfile.TemporaryDirectory(prefix="pulsar_spark_arrivals_") as root:
            check(Arrived(Path(root), commits))

    draw()


def test_a_reader_gets_each_complete_message_once():
    def check(arrived: Arrived) -> None:
        assert arrived.read() == [payload for _, payload in arrived.expected]

    ask(check, 25)


@pytest.mark.parametrize("way", ["read_messages", "whole_messages"])
def test_spark_gets_each_complete_message_once(spark, way):
    def check(arrived: Arrived) -> None:
        if way == "read_messages":
            found = read_messages(spark, arrived.root, TOPIC)
        else:
            found = whole_messages(arrived.chunks_as_frame(spark))
        rows = found.select("position", "payload").toArrow().sort_by("position").to_pylist()
        assert [(row["position"], row["payload"]) for row in rows] == arrived.expected

    ask(check, 4)
