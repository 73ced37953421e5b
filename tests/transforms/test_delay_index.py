"""The delay index of a large publish by Spark: which entries it has, and that it says what the driver would."""

from datetime import datetime, timedelta, timezone

from chispa import assert_df_equality

from pulsar_spark.protocol.keys.sticky_key import sticky_key_hash
from pulsar_spark.transforms.delay_index import delayed_entries

MESSAGES = (
    "partition int, ledger_id long, position long, batch_index int, deliver_at_time timestamp, sticky_key_hash int, "
    "partition_key string, ordering_key binary, partition_key_b64_encoded boolean, "
    "ordering_key_b64_encoded boolean"
)


def at(millis: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=millis)


def test_an_entry_is_delayed_where_its_first_message_is_due_behind_the_instant_of_its_run(spark):
    """The second publish was numbered later, the third before there was an index; a hash that is stored holds. What
    lies between two milliseconds is due at the next one."""
    rows = [
        (0, 1, 0, None, at(10), None, "k", None, None, None),
        (0, 1, 1, None, at(11), None, "k", None, None, None),
        (0, 1, 2, 0, None, None, None, None, None, None),
        (0, 1, 2, 1, at(99), None, None, None, None, None),
        (0, 1, 3, 0, at(-5), None, None, None, None, None),
        (0, 1, 4, 0, at(29.001), None, None, b"o", None, None),
        (0, 1, 4, 1, at(40), None, None, None, None, None),
        (1, 1, 0, None, at(11), -1, "k", None, None, None),
        (0, 2, 5, None, at(20), None, None, None, None, None),
        (0, 2, 6, None, at(21), None, "k", None, None, None),
        (0, 3, 7, None, at(50), None, None, None, None, None),
    ]
    instants = spark.createDataFrame(
        [(0, 1, 10_000), (1, 1, -(2**63)), (0, 2, 20_000)], "partition int, ledger_id long, delayed_after long"
    )
    found = delayed_entries(spark.createDataFrame(rows, MESSAGES), instants)
    key, ordering = sticky_key_hash(b"k"), sticky_key_hash(b"o")
    expected = [(0, at(11), 1, key), (0, at(30), 4, ordering), (1, at(11), 0, 2**31 - 1), (0, at(21), 6, key)]
    wanted = spark.createDataFrame(expected, "partition int, due_time timestamp, position long, sticky_key_hash int")
    assert_df_equality(found, wanted, ignore_row_order=True, ignore_nullable=True)
