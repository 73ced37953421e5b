# Databricks notebook source
# MAGIC %md
# MAGIC # Delayed delivery: a million appointments
# MAGIC Messages with a deliver time wait in an index on disk until they are due. Shared and Key_Shared subscriptions
# MAGIC get each message at its time, never before. This notebook schedules a million of them; pictures show when they
# MAGIC were delivered, and what it costs to keep them waiting. They need matplotlib: `pip install '.[plots]'` in the
# MAGIC folder of the repository.

# COMMAND ----------

import os
import tempfile
import threading
import time
from datetime import UTC, datetime

import matplotlib.pyplot as plt
import numpy as np
from deltalake import DeltaTable
from matplotlib.ticker import MaxNLocator
from pyspark.sql import functions as F

from pulsar_spark.admin import Admin
from pulsar_spark.broker.runner import Broker
from pulsar_spark.frames import consume, publish
from pulsar_spark.storage.session import spark_session
from pulsar_spark.views import create_views

MESSAGES = int(os.environ.get("PULSAR_SPARK_NOTEBOOK_MESSAGES", 1_000_000))
SECONDS = 4 + MESSAGES / 10_000  # the span of their deliver times
PARTS = min(5, 1 + MESSAGES // 200_000)  # of that span, each published by itself
TOPIC, SUBSCRIPTION = "appointments", "reminders"

started = time.time()
root = os.environ.get("PULSAR_SPARK_ROOT") or tempfile.mkdtemp(prefix="pulsar_spark_")
spark = spark_session()
broker = Broker(spark_session(for_rounds=True), root)
broker.start()
admin = Admin(f"delta:{root}")
admin.create_topic(TOPIC)
admin.create_subscription(TOPIC, SUBSCRIPTION, "earliest")
create_views(spark, root)

# COMMAND ----------

# MAGIC %md
# MAGIC ## First, a single message
# MAGIC Schedule one message for tomorrow, look at it and cancel it. The notebook measures how long this takes. From
# MAGIC this it estimates how long scheduling the million takes, so that none of them is due before all are scheduled.

# COMMAND ----------

tomorrow = F.unix_millis(F.current_timestamp() + F.expr("INTERVAL 1 DAY")).alias("deliver_at")
publish(spark.range(1).select(F.lit("the first").alias("payload"), tomorrow), root, TOPIC)
while not admin.stats(TOPIC)["subscriptions"][SUBSCRIPTION]["msgBacklog"]:  # until the broker has seen it
    time.sleep(0.1)
spark.sql("SELECT due_time FROM scheduled").show(truncate=False)
admin.cancel_scheduled(TOPIC, SUBSCRIPTION, every=True, reason="a first look")
ahead = 5 + 2 * (time.time() - started) + MESSAGES / 20_000  # seconds

# COMMAND ----------

# MAGIC %md
# MAGIC ## Measure while it runs
# MAGIC A thread records two numbers twice a second. One is the memory of this process, in which the broker runs. The
# MAGIC other is the number of buckets of the index. A bucket is a file of entries, sorted by deliver time.

# COMMAND ----------

looks, is_over = [], threading.Event()


def buckets_of_index():
    table = admin.layout.broker_table("delay_index")
    if not DeltaTable.is_deltatable(table):
        return 0
    files = DeltaTable(table).partitions()
    return sum(file["kind"] == "entry" for file in files)


def look():
    pages = int(open("/proc/self/statm").read().split()[1]) if os.path.exists("/proc/self/statm") else 0
    looks.append((time.time(), pages * os.sysconf("SC_PAGE_SIZE"), buckets_of_index()))


def watch():
    while not is_over.wait(0.5):
        look()


look()
watcher = threading.Thread(target=watch, daemon=True)
watcher.start()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Scheduled in any order
# MAGIC A column has the deliver time of each message. The order in the topic does not matter: the messages published
# MAGIC last are due first. Spark builds the index for publishes this large; small publishes of a client need no Spark.

# COMMAND ----------

begin, scheduled = time.time() + ahead, 0
for part in reversed(range(PARTS)):
    second = (part + F.rand(seed=13)) * SECONDS / PARTS
    due = ((begin + second) * 1000).cast("bigint").alias("deliver_at")
    ids = spark.range(part * MESSAGES // PARTS, (part + 1) * MESSAGES // PARTS)
    scheduled += publish(ids.select(F.col("id").cast("string").alias("payload"), due), root, TOPIC).messages
print(scheduled, "scheduled")

# COMMAND ----------

# MAGIC %md
# MAGIC ## What is scheduled
# MAGIC `scheduled` is a view. On the command line, `pulsar-spark delayed list` shows it; `delayed cancel` and
# MAGIC `delayed reschedule` remove messages or move them. Here the notebook
# MAGIC cancels the messages that are due last: in the last hundredth of the time.

# COMMAND ----------

while admin.stats(TOPIC)["subscriptions"][SUBSCRIPTION]["msgBacklog"] < MESSAGES:  # until the broker has seen them
    time.sleep(0.1)
spark.sql("""
    SELECT count(*) AS wait, min(due_time) AS first, max(due_time) AS last FROM scheduled""").show(truncate=False)
end = datetime.fromtimestamp(begin + 0.99 * SECONDS, UTC)
done = admin.cancel_scheduled(TOPIC, SUBSCRIPTION, since=end, reason="after hours")["done"]
cancelled = done.get(SUBSCRIPTION, 0)  # none if all of them are due by now
print(cancelled, "cancelled")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Delivered when they are due
# MAGIC The consumer's function records when it is called and the deliver times of its messages. It receives all
# MAGIC messages that have become due since the last call. So the more messages are due, the larger a delivery is.

# COMMAND ----------

delivered = []


def note(messages, delivery):
    now = time.time()
    times = messages.select(F.unix_micros("deliver_at_time").alias("due")).toArrow()["due"].to_numpy()
    delivered.append((now, times / 1e6))


with consume(spark, root, TOPIC, SUBSCRIPTION, note, subscription_type="Shared", timeout=300) as consumption:
    while consumption.is_active and sum(len(times) for _, times in delivered) < MESSAGES - cancelled:
        time.sleep(0.2)
is_over.set()
watcher.join()
look()

# COMMAND ----------

dues = np.concatenate([times for _, times in delivered])
received = np.concatenate([np.full(len(times), now) for now, times in delivered])
delays = received - dues
print(f"{len(dues)} delivered, the earliest {delays.min() * 1000:.0f} ms after its time, half within", end=" ")
print(f"{np.median(delays):.2f} s, all within {delays.max():.1f} s")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Pictures
# MAGIC Above: how many messages were due and how many were delivered over time, and how late each one was. There are
# MAGIC never more delivered than due messages. Below: the buckets of the index and the memory of this process. A bucket
# MAGIC is deleted when all its messages are delivered. The dotted line is the first deliver time. Left of it a million
# MAGIC messages wait, and the memory does not grow. Right of it the memory grows, because the function above keeps the
# MAGIC deliver times of all messages it received.

# COMMAND ----------

figure, panels = plt.subplots(2, 2, figsize=(12, 8), layout="constrained")
(arrivals, lateness), (buckets, memory) = panels
for label, instants, dashes in (("due", dues, "-"), ("delivered", received, "--")):
    counts = np.arange(1, len(dues) + 1)
    arrivals.step(np.sort(instants) - begin, counts, where="post", label=label, linestyle=dashes)
arrivals.set(title="Messages due and delivered", xlabel="seconds since the first is due", ylabel="messages")
arrivals.legend()
lateness.hist(delays, bins=50)
lateness.set(title="How late", xlabel="seconds after the deliver time", ylabel="messages")
seconds, sizes, numbers = (np.array(column) for column in zip(*looks))
buckets.step(seconds - begin, numbers, where="post")
buckets.set(title="Buckets of the index", xlabel="seconds since the first is due", ylabel="buckets")
buckets.set(ylim=(0, numbers.max() + 1))
buckets.yaxis.set_major_locator(MaxNLocator(integer=True))
memory.plot(seconds - begin, sizes / 2**20)
memory.set(
    title="Memory of the process with broker and consumer",
    xlabel="seconds since the first is due",
    ylabel="MiB",
    ylim=(0, 1.2 * sizes.max() / 2**20),
)
for panel in (buckets, memory):
    panel.axvline(0, color="gray", linewidth=1, linestyle="dotted")
picture = os.path.join(tempfile.mkdtemp(prefix="pulsar_spark_"), "delayed_delivery.png")
figure.savefig(picture, dpi=100)
print(picture)

# COMMAND ----------

stats = admin.stats(TOPIC)["subscriptions"][SUBSCRIPTION]
broker.stop()
broker.wait()
