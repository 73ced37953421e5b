"""``python -m tests.frames.source.subscription.killed_driver <root> <folder> <goes_on | ends>``: Spark's driver with
two streams of the topic ``t``, into a Delta table and into ``foreachBatch``. It goes on until it is killed, or ends
with what was published before.

The function of ``foreachBatch`` writes a file for each call, ``each/<batch id>-<a new name>``."""

import json
import sys
import uuid
from pathlib import Path

from pyspark.sql import DataFrame

from pulsar_spark.frames.source.data_source import NAME
from pulsar_spark.storage.session import spark_session

MOST = 100
"""Messages of a micro-batch."""


def run(root: str, folder: Path, how: str) -> None:
    settings = {"spark.sql.shuffle.partitions": "1", "spark.driver.memory": "1g"}
    spark = spark_session("killed driver", master="local[2]", settings=settings)

    def stream(subscription: str, subscription_type: str) -> DataFrame:
        given = {"subscription": subscription, "subscriptionType": subscription_type, "maxMessagesPerTrigger": MOST}
        read = spark.readStream.format(NAME).options(root=root, topic="t", **given).load()
        return read.selectExpr("string(payload) AS text")

    def write(batch: DataFrame, batch_id: int) -> None:
        path = folder / "each" / f"{batch_id:06}-{uuid.uuid4().hex}"
        path.with_suffix(".new").write_text(json.dumps([row.text for row in batch.collect()]))
        path.with_suffix(".new").rename(path)

    trigger = {"availableNow": True} if how == "ends" else {"processingTime": "0 seconds"}
    sinks = {
        "delta": stream("delta", "Exclusive").writeStream.format("delta").option("path", str(folder / "table")),
        "each": stream("each", "Shared").writeStream.foreachBatch(write),
    }
    queries = [
        sink.option("checkpointLocation", str(folder / f"{name}-checkpoint")).trigger(**trigger).start()
        for name, sink in sinks.items()
    ]
    for query in queries:
        query.awaitTermination()


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
