# Databricks notebook source
# MAGIC %md
# MAGIC # Chunked messages: in pieces on disk, whole for consumers
# MAGIC A message that is too large for one entry is published as chunks. These are rows of the topic's table with the
# MAGIC same `uuid`. When the last chunk has arrived, a consumer gets the whole message. In this notebook the chunks of
# MAGIC two messages arrive in turn, and one chunk is late. A picture shows when each message was delivered. It needs
# MAGIC matplotlib: `pip install '.[plots]'` in the folder of the repository.

# COMMAND ----------

import os
import tempfile

import matplotlib.pyplot as plt
from pyspark.sql import functions as F

from pulsar_spark.admin import Admin
from pulsar_spark.broker.runner import Broker
from pulsar_spark.frames import consume, publish, read_messages
from pulsar_spark.storage.session import spark_session
from pulsar_spark.views import create_views

SIZE = int(os.environ.get("PULSAR_SPARK_NOTEBOOK_BYTES", 64 * 1024 * 1024))
TOPIC, SUBSCRIPTION = "scans", "archive"

root = os.environ.get("PULSAR_SPARK_ROOT") or tempfile.mkdtemp(prefix="pulsar_spark_")
spark = spark_session()
broker = Broker(spark_session(for_rounds=True), root)
broker.start()
admin = Admin(f"delta:{root}")
admin.create_topic(TOPIC)
admin.create_subscription(TOPIC, SUBSCRIPTION, "earliest")

# COMMAND ----------

# MAGIC %md
# MAGIC ## A frame with a large row
# MAGIC `publish(..., chunking=True)` lets Spark split rows that are too large. Small rows are not changed.

# COMMAND ----------

rows = spark.range(1_000).select(
    F.when(F.col("id") == 500, F.expr(f"repeat(cast(id % 10 AS string), {SIZE})"))
    .otherwise(F.concat(F.lit("scan "), F.col("id")))
    .alias("payload"),
    F.col("id").cast("string").alias("key"),
)
published = publish(rows, root, TOPIC, chunking=True, producer_name="scanner")
stored = spark.read.format("delta").load(str(admin.layout.root / "public" / "default" / TOPIC))
chunks = stored.filter("uuid IS NOT NULL").count()
print(f"{published.messages} messages, one of them in {chunks} chunks")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Consumed as one row per message
# MAGIC The chunked message has the position of its last chunk. It counts as one message: the consumer acknowledges it
# MAGIC once.

# COMMAND ----------

sizes = {}


def note(messages, delivery):
    found = messages.select("position", F.octet_length("payload").alias("bytes"), "num_chunks_from_msg").collect()
    sizes.update({row.position: (row.bytes, row.num_chunks_from_msg) for row in found})


consume(spark, root, TOPIC, SUBSCRIPTION, note, available_now=True, timeout=300).await_termination()
largest = max(sizes.values())
print(f"{len(sizes)} messages, the largest of {largest[0]:,} bytes in {largest[1]} chunks")
print(read_messages(spark, root, TOPIC).filter(F.octet_length("payload") > 100).select("position", "uuid").collect())

# COMMAND ----------

# MAGIC %md
# MAGIC ## Chunks arriving
# MAGIC The chunks of the messages `a` and `b` arrive in turn, with small messages between them. The notebook writes the
# MAGIC metadata of each chunk by hand. The last chunk of `a` is late.

# COMMAND ----------

first = max(sizes) + 1
arrivals = ["a:0", "b:0", "plain", "a:1", "b:1", "plain"]


def arrive(entry):
    uuid, _, chunk_id = entry.partition(":")
    of = {"a": 3, "b": 2}.get(uuid, 1)
    named = (uuid, int(chunk_id), of, 4 * of) if chunk_id else (None, 0, 1, 5)
    admin.publish_raw_chunk(TOPIC, *named, payload=entry.encode().ljust(4), producer_name="by hand")


for entry in arrivals:
    arrive(entry)
before = len(sizes)
consume(spark, root, TOPIC, SUBSCRIPTION, note, available_now=True, timeout=300).await_termination()
delivered_first = sorted(position - first for position in sizes if position >= first)
print("delivered:", delivered_first)

# COMMAND ----------

# MAGIC %md
# MAGIC ## What is incomplete
# MAGIC The view `chunks` shows which message waits for which chunks, and since when. `pulsar-spark chunks list scans`
# MAGIC shows the same. An incomplete message does not delay other messages. Its chunks stay in the topic's table until
# MAGIC it is complete or expires.

# COMMAND ----------

create_views(spark, root)
incomplete = spark.sql("SELECT producer_name, uuid, chunks, missing, since, is_open, reason FROM chunks")
incomplete.show(truncate=False)
waiting = incomplete.collect()

# COMMAND ----------

# MAGIC %md
# MAGIC ## The late chunk arrives
# MAGIC The last chunk completes the message `a`. The message gets the position of this chunk.

# COMMAND ----------

arrive("a:2")
consume(spark, root, TOPIC, SUBSCRIPTION, note, available_now=True, timeout=300).await_termination()
delivered_then = sorted(position - first for position in sizes if position >= first and position - first > 5)
print("delivered:", delivered_then, "still incomplete:", admin.count_incomplete_chunks(TOPIC)["messages"])

# COMMAND ----------

# MAGIC %md
# MAGIC ## A picture
# MAGIC Entries from left to right in order of arrival, with a line from the first chunk of each message to its last. A
# MAGIC filled mark is where the message was delivered.

# COMMAND ----------

figure, panel = plt.subplots(figsize=(9, 3), layout="constrained")
names = ["a", "b", "plain"]
for name in names:
    places = [at for at, entry in enumerate([*arrivals, "a:2"]) if entry.partition(":")[0] == name]
    height = names.index(name)
    if name != "plain":
        panel.plot(places, [height] * len(places), color="C0", zorder=1)
    panel.scatter(places, [height] * len(places), s=120, facecolor="white", edgecolor="C0", zorder=2)
done = [*delivered_first, *delivered_then]
heights = [names.index([*arrivals, "a:2"][at].partition(":")[0]) for at in done]
panel.scatter(done, heights, s=120, color="C0", zorder=3, label="delivered")
panel.set(title="Chunks as they arrive, and when each message is delivered", xlabel="position", ylabel="message")
panel.set(yticks=range(3), yticklabels=names, ylim=(-0.5, 2.5))
panel.legend(loc="center left", bbox_to_anchor=(1, 0.5))
picture = os.path.join(tempfile.mkdtemp(prefix="pulsar_spark_"), "chunked_messages.png")
figure.savefig(picture, dpi=100)
print(picture)

# COMMAND ----------

stats = admin.stats(TOPIC)["subscriptions"][SUBSCRIPTION]
print("left:", stats["msgBacklog"])
broker.stop()
broker.wait()
