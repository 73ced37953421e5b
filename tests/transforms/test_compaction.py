"""Which places stay, their rows, and the files they go to."""

import pytest

from pulsar_spark.transforms.compaction import FILE, in_files, places_that_stay, rows_at

COLUMNS = (
    "partition int, position long, batch_index int, partition_key string, payload binary, uncompressed_size long, "
    "encryption_keys map<string, binary>"
)
ROWS = [
    (0, 0, None, "a", b"1", None, None),
    (0, 1, 0, "b", b"1", None, None),
    (0, 1, 1, "a", b"2", None, None),
    (0, 2, None, "b", b"", None, None),
    (0, 3, None, None, b"keyless", None, None),
    (1, 0, None, "a", b"other partition", None, None),
    (1, 1, None, "c", b"x" * 16, None, {"k": b"1"}),
]


@pytest.fixture
def messages(spark):
    return spark.createDataFrame(ROWS, COLUMNS)


def test_the_latest_of_a_key_stays_unless_it_is_empty(messages):
    """An encrypted payload that is nothing but its tag is empty, too; keyless messages stay where they are to."""
    stay = {tuple(row) for row in places_that_stay(messages, retain_null_key=False).collect()}
    assert stay == {(0, 1, 1), (1, 0, 0)}
    stay = {tuple(row) for row in places_that_stay(messages, retain_null_key=True).collect()}
    assert stay == {(0, 1, 1), (1, 0, 0), (0, 3, 0)}


def test_rows_are_those_at_the_places(messages):
    found = rows_at(messages, places_that_stay(messages, retain_null_key=True)).collect()
    assert {bytes(row.payload) for row in found} == {b"2", b"keyless", b"other partition"} and len(found) == 3


def test_files_hold_positions_that_do_not_overlap_in_order(spark):
    rows = spark.createDataFrame(
        [(n % 2, n, None) for n in range(100, 0, -1)], "partition int, position long, batch_index int"
    )
    filed = in_files(rows, ("partition", FILE), {0: [40, 80]})
    of_task = filed.rdd.mapPartitions(lambda rows: [[(row[0], row[FILE], row[1]) for row in rows]]).collect()
    assert all(task == sorted(task) for task in of_task)
    found = {(partition, file): [] for task in of_task for partition, file, _ in task}
    for task in of_task:
        for partition, file, position in task:
            found[partition, file].append(position)
    assert {key: (min(held), max(held), len(held)) for key, held in found.items()} == {
        (0, 0): (2, 38, 19),
        (0, 1): (40, 78, 20),
        (0, 2): (80, 100, 11),
        (1, 0): (1, 99, 50),
    }
