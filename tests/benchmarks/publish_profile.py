"""Where the time of publishing a DataFrame goes: appends that come closer to a publish step by step, from the bare
frame to the publish itself."""

from collections.abc import Callable, Iterator
from datetime import datetime, timezone

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsar_spark.frames import publish
from pulsar_spark.frames.publishing.message_columns import spark_type
from pulsar_spark.protocol.chunks.chunking import MAX_MESSAGE_SIZE
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import create_topic
from pulsar_spark.table_specs import MESSAGES
from tests.benchmarks.bench import Bench, in_turns, seconds
from tests.benchmarks.figures import quantile
from tests.benchmarks.publishing import ROWS
from tests.benchmarks.table import shown

NUMBERING = "publish_id,entry_id,batch_size,publish_time,deliver_at_time,uuid,partition_key,ordering_key"
"""The columns whose statistics number a publish."""


def profile_publish(bench: Bench) -> Iterator[str]:
    """How long each step takes, for a frame in memory of :data:`ROWS` messages."""
    bench.say("profiling a publish")
    folder = bench.new_folder("profile-publish")
    topics = [create_topic(Layout(folder / "root"), name) for name in ("t", "into")]
    frame = bench.messages(0, ROWS).persist()
    frame.count()
    numbered = frame.select(
        "*",
        F.lit("018f").alias("publish_id"),
        F.monotonically_increasing_id().alias("entry_id"),
        F.lit(1).alias("batch_size"),
        F.lit(-1).alias("partition"),
        F.lit(datetime.now(timezone.utc)).alias("publish_time"),
    )
    whole = numbered.select(
        *(
            (F.col(name) if name in numbered.columns else F.lit(None)).cast(spark_type(name)).alias(name)
            for name in MESSAGES.schema.names
        )
    )
    checked = whole.withColumn(
        "payload",
        F.when(F.octet_length("payload") > MAX_MESSAGE_SIZE, F.raise_error(F.lit("too big")).cast("binary")).otherwise(
            F.col("payload")
        ),
    )
    steps: dict[str, Callable[[], object]] = {
        "append the frame": _append(frame, folder / "frame"),
        "with ids and times": _append(numbered, folder / "numbered"),
        "with all columns of the messages table": _append(whole, folder / "whole"),
        "the same, statistics only of what numbers a publish": _append(
            whole, folder / "statistics", **{"delta.dataSkippingStatsColumns": NUMBERING}
        ),
        "the same, no statistics": _append(whole, folder / "none", **{"delta.dataSkippingNumIndexedCols": "0"}),
        "with all columns and the check of the payload's size": _append(checked, folder / "checked"),
        "the same, into a topic's table": _append(checked, topics[1].path),
        "publish": lambda: publish(frame, folder / "root", "t"),
    }
    measured = in_turns(bench.few(3, 7), *(_timed(step) for step in steps.values()), warm_up=bench.few(1, 2))
    frame.unpersist()
    yield f"== publish a DataFrame of {ROWS:,} messages, step by step\n"
    yield from (f"  {shown(quantile(runs, 0.5)):>9}  {name}\n" for name, runs in zip(steps, measured))


def _append(frame: DataFrame, path, **options: str) -> Callable[[], object]:
    return lambda: frame.write.format("delta").mode("append").options(**options).save(str(path))


def _timed(step: Callable[[], object]) -> Callable[[], float]:
    return lambda: seconds(step)
