"""Ack sets as Column expressions against the pure rule, for random batches of one to five words."""

import random

from pyspark.sql import functions as F

from pulsar_spark.columns import unacked_messages
from pulsar_spark.protocol.acknowledgement import ack_set as ack_sets


def random_cases(count: int) -> list[tuple[int, list[int]]]:
    dice, cases = random.Random(7), []
    for _ in range(count):
        size = dice.choice([1, 2, 63, 64, 65, 127, 128, 129, dice.randint(1, 300)])
        kept = {index for index in range(size) if dice.random() < dice.choice([0.05, 0.5, 0.95])}
        cases.append((size, list(ack_sets.of_indexes(kept))))
    return cases


def test_ack_set_columns_do_what_the_rule_says(spark):
    cases = random_cases(200)
    frame = spark.createDataFrame(
        list(enumerate(cases)), "number int, input struct<size:int,kept:array<bigint>>"
    ).select("number", "input.*")
    found = frame.select(
        "number",
        unacked_messages(F.col("kept"), F.col("size")),
        unacked_messages(F.lit(None).cast("array<bigint>"), F.col("size")),
    )
    expected = [(number, ack_sets.count(kept), size) for number, (size, kept) in enumerate(cases)]
    assert [tuple(row) for row in found.orderBy("number").collect()] == expected
