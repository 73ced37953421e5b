"""Chunks as frames: which of them make up messages, by groupBy as by the pure rule; joining and splitting payloads."""

import numpy as np
import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.sql import functions as F

from pulsar_spark.protocol.chunks import chunking
from pulsar_spark.protocol.chunks.chunking import Verdict, judged, none_open
from pulsar_spark.transforms import chunks as transform
from pulsar_spark.transforms.chunks import (
    TOO_LARGE,
    WRONG,
    group_chunks,
    reassemble_chunks,
    split_messages,
    whole_messages,
    wrong_size,
)

CHUNKS = (
    "partition int, position long, producer_name string, uuid string, chunk_id int, num_chunks_from_msg int, "
    "payload binary, partition_key string"
)


def chunk(position, uuid, chunk_id, of, payload=b"", producer="p", partition=-1):
    return (partition, position, producer, uuid, chunk_id, of, payload, f"key of {position}")


def test_a_message_is_the_bytes_of_its_chunks_in_order_and_the_rest_of_the_last_one(spark):
    """Interleaved, with a resend (1.10), a repeated chunk (1.12), two producers of one uuid, a message of one chunk,
    one that is incomplete, and a stray."""
    chunks = spark.createDataFrame(
        [
            chunk(0, "a", 0, 2, b"old"),
            chunk(1, "b", 0, 2, b"b0"),
            chunk(2, "a", 0, 2, b"a0"),
            chunk(3, "a", 1, 2, b"x1", producer="q"),
            chunk(4, "a", 0, 2, b"q0", producer="q"),
            chunk(5, "a", 0, 2, b"a0"),
            chunk(6, "b", 0, 2, b"b0 again", partition=1),
            chunk(7, "a", 1, 2, b"a1"),
            chunk(8, "one", 0, 1, b"whole"),
            chunk(9, "b", 1, 2, b""),
            chunk(10, "a", 1, 2, b"a1"),
            chunk(11, "open", 0, 3, b"o0"),
            chunk(12, "a", 1, 2, b"q1", producer="q"),
            chunk(13, "open", 2, 3, b"o2"),
        ],
        CHUNKS,
    )
    expected = spark.createDataFrame(
        [
            chunk(7, "a", 1, 2, b"a0a1"),
            chunk(8, "one", 0, 1, b"whole"),
            chunk(9, "b", 1, 2, b"b0"),
            chunk(12, "a", 1, 2, b"q0q1", producer="q"),
        ],
        CHUNKS,
    )
    assert_df_equality(reassemble_chunks(chunks), expected, ignore_row_order=True, ignore_nullable=True)


def test_a_size_that_any_chunk_lies_about_is_told(spark):
    """Null says nothing, and a chunk without a payload has none."""
    sizes = {"right": (3, 3), "first": (9, 3), "last": (3, 9), "none": (None, None), "one": (None, 3), "small": (1, 1)}
    rows = [
        (*chunk(2 * number + at, uuid, at, 2, payload), said[at])
        for number, (uuid, said) in enumerate(sizes.items())
        for at, payload in enumerate((b"abc", None))
    ]
    chunks = spark.createDataFrame(rows, f"{CHUNKS}, total_chunk_msg_size long")
    joined = reassemble_chunks(chunks).withColumn("batch_index", F.lit(None).cast("int"))
    found = {row.uuid: row.wrong for row in joined.withColumn("wrong", wrong_size()).collect()}
    assert found == {uuid: chunking.wrong_size(3, said) for uuid, said in sizes.items()}
    assert [uuid for uuid, wrong in found.items() if wrong] == ["first", "last", "small"]


def test_what_is_larger_than_a_row_is_never_put_together(spark, monkeypatch):
    """Whether it says so or not; what is as large as a row stays."""
    monkeypatch.setattr(transform, "MOST_BYTES", 10)
    messages = {"fits": (2, 10), "says": (3, 15), "lies": (5, 3)}
    rows = [
        (*chunk(10 * number + at, uuid, at, count, b"12345"), size, None)
        for number, (uuid, (count, size)) in enumerate(messages.items())
        for at in range(count)
    ]
    rows.append((*chunk(99, None, None, None, b"plain, and long"), None, None))
    frame = spark.createDataFrame(rows, f"{CHUNKS}, total_chunk_msg_size long, batch_index int")
    found = {row.uuid: (bytes(row.payload or b""), row[WRONG]) for row in whole_messages(frame).collect()}
    assert found["fits"] == (b"12345" * 2, None) and found[None] == (b"plain, and long", None)
    assert found["says"] == (b"", TOO_LARGE % 15)
    payload, wrong = found["lies"]
    assert len(payload) == 15 < 5 * 5 and "one of them gives the message 3" in wrong


@pytest.mark.parametrize("seed", range(3))
def test_groups_take_the_chunks_that_the_rule_takes(spark, seed):
    """Random arrivals, with counts and ids that lie and nulls among them."""
    random = np.random.default_rng(seed)
    groups, size = 40, 3000
    group = random.integers(0, groups, size)
    chunk_ids, of = random.integers(-1, 4, size), random.choice([-1, 1, 2, 3, 3, 3, 3, 4], size)
    walk = random.random(size) < 0.7  # most are what would come next, so that messages become complete
    seen = np.zeros(groups, int)
    for at in np.flatnonzero(walk):
        chunk_ids[at], of[at], seen[group[at]] = seen[group[at]] % 3, 3, seen[group[at]] + 1
    found = judged(group, chunk_ids, of, none_open(groups))
    lasts = {int(found.openers[at]): at for at in np.flatnonzero(found.verdicts == Verdict.COMPLETES)}
    taken = np.flatnonzero(found.verdicts <= Verdict.COMPLETES)
    parts = {
        (at, int(found.openers[at]), int(lasts[found.openers[at]]))
        for at in taken.tolist()
        if found.openers[at] in lasts
    }
    rows = pa.table(
        {
            "partition": pa.array(np.zeros(size), pa.int32()),
            "position": np.arange(size),
            "producer_name": pa.array([None if each % 7 == 0 else f"p{each % 2}" for each in group.tolist()]),
            "uuid": pa.array([f"u{each}" for each in group.tolist()]),
            "chunk_id": pa.array(chunk_ids, pa.int32(), mask=chunk_ids < 0),
            "num_chunks_from_msg": pa.array(of, pa.int32(), mask=of < 0),
        }
    )
    frame = spark.createDataFrame(rows)
    messages = group_chunks(frame.repartition(3, "position")).collect()
    grouped = [(at, row["first"], row["last"]) for row in messages for at in row["parts"]]
    assert set(grouped) == parts and len(grouped) == len(parts) and len(messages) == len(lasts) > 0
    assert all(list(row["parts"]) == sorted(row["parts"]) for row in messages)
    assert group_chunks(frame.limit(0)).count() == 0


def test_a_payload_above_the_size_is_split_and_any_other_is_not(spark):
    messages = spark.createDataFrame(
        [(0, b"0123456789"), (1, b"0123456789a"), (2, b""), (3, None), (4, b"0123456789" * 2 + b"b")],
        "number int, payload binary",
    ).coalesce(1)
    rows = split_messages(messages, F.lit(10), F.lit("p"), F.col("number") + 7)
    found = [tuple(row) for row in rows.drop("number").collect()]
    small = (None,) * 6
    assert rows.drop("number").columns == [
        "payload",
        "producer_name",
        "sequence_id",
        "uuid",
        "chunk_id",
        "num_chunks_from_msg",
        "total_chunk_msg_size",
    ]
    assert [(bytes(row[0]) if row[0] is not None else None, *row[1:]) for row in found] == [
        (b"0123456789", *small),
        (b"0123456789", "p", 8, "p-8", 0, 2, 11),
        (b"a", "p", 8, "p-8", 1, 2, 11),
        (b"", *small),
        (None, *small),
        (b"0123456789", "p", 11, "p-11", 0, 3, 21),
        (b"0123456789", "p", 11, "p-11", 1, 3, 21),
        (b"b", "p", 11, "p-11", 2, 3, 21),
    ]
