"""When the messages of a frame are delivered: by a column, as an instant, milliseconds or an interval, or all alike."""

from datetime import datetime, timedelta, timezone
from itertools import count

import pytest
from pyspark.sql import functions as F

from pulsar_spark.client.sending.send_arguments import deliver_at_ms
from pulsar_spark.errors import InvalidMessage
from pulsar_spark.frames import publish
from pulsar_spark.protocol.delays.instants import to_millis
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.topics.topics import read_topic

AT = datetime(2030, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
MILLISECONDS = int(AT.timestamp() * 1000)
YEAR_10000 = 253_402_300_800_000
LAST = 9_223_372_036_854_774


def deliver_times(spark, layout, topic: str) -> list[int | None]:
    """In milliseconds since 1970, by payload."""
    rows = spark.read.format("delta").load(str(read_topic(layout, topic).path))
    return [row[0] for row in rows.orderBy("payload").select(F.unix_millis("deliver_at_time")).collect()]


def test_columns_and_arguments(spark, root, layout, clock):
    now = int(clock().timestamp() * 1000)
    messages = spark.range(2).select(F.col("id").cast("string").alias("payload"), "id")
    is_first, numbers = F.col("id") == 0, count()

    def published(column=None, **options):
        topic = f"t{next(numbers)}"
        frame = messages if column is None else messages.withColumns(column)
        publish(frame.drop("id"), root, topic, clock=clock, **options)
        return deliver_times(spark, layout, topic)

    assert published({"deliver_at": F.when(is_first, F.lit(AT))}) == [MILLISECONDS, None]
    assert published({"deliver_at": F.when(is_first, F.lit(LAST))}) == [LAST, None]
    assert published({"deliver_at": F.when(is_first, F.lit(-5))}) == [-5, None]
    assert published({"deliver_at": F.when(is_first, F.timestamp_millis(F.lit(YEAR_10000)))}) == [YEAR_10000, None]
    assert published({"deliver_at": F.when(is_first, F.lit(datetime(1969, 7, 20)))}) == [-14_256_000_000, None]
    assert published(deliver_after=timedelta(minutes=-2)) == [now - 120_000] * 2
    assert published({"deliver_after": F.when(is_first, F.expr("interval 2 minutes"))}) == [now + 120_000, None]
    assert published(deliver_after=timedelta(minutes=2)) == [now + 120_000] * 2
    assert published(deliver_at=AT) == published(deliver_at=MILLISECONDS) == [MILLISECONDS] * 2
    assert published({"deliver_at_time": F.lit(AT)}, deliver_after=timedelta(1)) == [MILLISECONDS] * 2


@pytest.mark.parametrize("micros", [1999, -1])
def test_how_long_after_counts_whole_milliseconds(spark, root, layout, clock, micros):
    """As the client and Pulsar count it, by the column and by the argument."""
    clock.advance(microseconds=1700)
    after = timedelta(microseconds=micros)
    expected = deliver_at_ms(None, after, to_millis(clock()))
    messages = spark.createDataFrame([("x",)], "payload string")
    publish(messages.withColumn("deliver_after", F.lit(after)), root, "t", clock=clock)
    publish(messages, root, "t", deliver_after=after, clock=clock)
    rows = spark.read.format("delta").load(str(read_topic(layout, "t").path))
    assert [row[0] for row in rows.select(F.unix_micros("deliver_at_time")).collect()] == [1000 * expected] * 2


def test_what_is_refused_publishes_nothing(spark, root, layout, clock):
    messages = spark.createDataFrame([("x",)], "payload string")
    for frame, options, said in (
        (messages.withColumn("deliver_at", F.lit(LAST + 1)), {}, f"deliver_at '{LAST + 1}' exceeds 64 bits"),
        (
            messages.withColumn("deliver_after", F.lit(timedelta(days=106_751_991))),
            {},
            "deliver_after '.* exceeds 64 bits",
        ),
        (messages.withColumn("deliver_at", F.lit("soon")), {}, "column 'deliver_at' is a string: cast it"),
        (messages.withColumns({"deliver_at": F.lit(1), "deliver_at_time": F.lit(AT)}), {}, "drop all but one"),
        (messages, {"deliver_at": 1 << 63}, "exceeds 64 bits"),
        (messages, {"deliver_after": timedelta.max}, "exceeds 64 bits"),
    ):
        with pytest.raises(InvalidMessage, match=said):
            publish(frame, root, "t", clock=clock, **options)
    for options in ({"deliver_at": "soon"}, {"deliver_after": 5}):
        with pytest.raises(ValueError):
            publish(messages, root, "t", clock=clock, **options)
    publish(messages, root, "t", clock=clock)
    assert TableLog(read_topic(layout, "t").path).latest() == 1
