"""The hash in every row of a frame of messages, and the order of a key (2.22)."""

import base64

import pytest

from pulsar_spark.protocol.keys.sticky_key import NONE_KEY, sticky_key, sticky_key_hash
from pulsar_spark.table_specs import HASH
from pulsar_spark.transforms.sticky_keys import by_key, with_hash

COLUMNS = f"n int, partition_key string, ordering_key binary, partition_key_b64_encoded boolean, {HASH} int"
KEYS = ("partition_key", "ordering_key", "partition_key_b64_encoded")
ROWS = [
    (0, "k", None, False, None),
    (1, "k", b"o", None, None),
    (2, base64.b64encode(b"\x00\xff").decode(), None, True, None),
    (3, base64.b64encode(b"\x00\xff").decode().rstrip("="), None, True, None),
    (4, "no base64!", None, True, None),
    (5, None, None, None, None),
    (6, "k", None, None, 12_345),
    (7, "", None, None, None),
]


def test_the_stored_hash_or_that_of_the_key(spark):
    found = {row["n"]: row[HASH] for row in with_hash(spark.createDataFrame(ROWS, COLUMNS), KEYS).collect()}
    keys = [b"k", b"o", b"\x00\xff", b"\x00\xff", NONE_KEY, NONE_KEY, None, b""]
    assert found == {n: 12_345 if key is None else sticky_key_hash(key) for n, key in enumerate(keys)}


NO_BASE64 = [
    "AQI=\n",
    " AQI=",
    "AQ I=",
    "AQID=",
    "AQ=",
    "A",
    "=",
    "====",
    "AQI=AQI=",
    "\u00e4\u00e4\u00e4\u00e4",
    "AQI-",
]


def test_what_is_no_base64_to_java_is_no_key(spark):
    texts = [*NO_BASE64, "AQ", "AQ==", "AQI", "AQID", ""]
    rows = [(n, text, None, True, None) for n, text in enumerate(texts)]
    found = {row["n"]: row[HASH] for row in with_hash(spark.createDataFrame(rows, COLUMNS), KEYS).collect()}
    expected = {n: sticky_key_hash(sticky_key(text, is_base64=True)) for n, text in enumerate(texts)}
    assert found == expected
    ordered = [(n, "k", text.encode(), True) for n, text in enumerate(texts)]
    columns = f"n int, partition_key string, ordering_key binary, ordering_key_b64_encoded boolean, {HASH} int"
    of_ordering_keys = spark.createDataFrame([(*row, None) for row in ordered], columns)
    keys = ("partition_key", "ordering_key", "ordering_key_b64_encoded")
    assert {row["n"]: row[HASH] for row in with_hash(of_ordering_keys, keys).collect()} == expected


def test_columns_that_a_table_of_an_earlier_layout_lacks_are_null(spark):
    rows = spark.createDataFrame(ROWS[:1], COLUMNS).select("n", "partition_key", HASH)
    assert [row[HASH] for row in with_hash(rows, ("partition_key",)).collect()] == [sticky_key_hash(b"k")]


@pytest.mark.parametrize("tasks", [1, 5])
def test_a_key_is_in_one_task_and_in_order(spark, tasks):
    rows = [(n % 7, n % 2, n // 2, None) for n in range(200)]
    frame = spark.createDataFrame(rows, f"{HASH} int, partition int, position long, batch_index int")
    ordered = by_key(frame.repartition(tasks, "position"))
    of_task = ordered.rdd.mapPartitions(lambda rows: [[(row[0], row[1], row[2]) for row in rows]]).collect()
    assert all(task == sorted(task) for task in of_task)
    homes = [{row[0] for row in task} for task in of_task]
    assert sum(map(len, homes)) == 7 and sum(map(len, of_task)) == 200
