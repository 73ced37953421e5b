# Databricks notebook source
# MAGIC %md
# MAGIC # Delayed delivery: a million appointments
# MAGIC Messages with a deliver time wait in an index on disk until they are due; subscriptions of type Shared and
# MAGIC Key_Shared get each when its time has come, never before. Here a million of them are scheduled, and pictures
# MAGIC show when they came, and what their waiting cost. It needs matplotlib, an extra:
# MAGIC `pip install 'pulsar_spark[plots]'`.

# COMMAND ----------

import os
import tempfile
import threading
import time
from datetime import UTC, datetime

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import MaxNLocator
from pyspark.sql import functions as F

from pulsar_spark.admin import Admin
from pulsar_spark.broker.runner import Broker
from pulsar_spark.frames import consume, publish
from pulsar_spark.storage.delay_index import read_buckets
from pulsar_spark.storage.session import spark_session
from pulsar_spark.views import create_views

MESSAGES = int(os.environ.get("PULSAR_SPARK_NOTEBOOK_MESSAGES", 1_000_000))
SECONDS = 4 + MESSAGES / 10_000  # over which they are due
PARTS = min(5, 1 + MESSAGES // 200_000)  # of the time, each of which is a publish
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
# MAGIC ## One for tomorrow, to begin with
# MAGIC It is scheduled, seen and cancelled. How long that took, with all that began, says how much time the million
# MAGIC will need below before the first of them is due.

# COMMAND ----------

tomorrow = F.unix_millis(F.current_timestamp() + F.expr("INTERVAL 1 DAY")).alias("deliver_at")
publish(spark.range(1).select(F.lit("the first").alias("payload"), tomorrow), root, TOPIC)
while not admin.stats(TOPIC)["subscriptions"][SUBSCRIPTION]["msgBacklog"]:  # until the broker has met it
    time.sleep(0.1)
spark.sql("SELECT due_time FROM scheduled").show(truncate=False)
admin.cancel_scheduled(TOPIC, SUBSCRIPTION, every=True, reason="a first look")
ahead = 5 + 2 * (time.time() - started) + MESSAGES / 20_000  # seconds

# COMMAND ----------

# MAGIC %md
# MAGIC ## A look now and then
# MAGIC While all this runs, a thread notes the memory of this process, in which the broker is, and the buckets of the
# MAGIC index: sealed files of entries, sorted by deliver time.

# COMMAND ----------

looks, is_over = [], threading.Event()


def look():
    pages = int(open("/proc/self/statm").read().split()[1]) if os.path.exists("/proc/self/statm") else 0
    looks.append((time.time(), pages * os.sysconf("SC_PAGE_SIZE"), len(read_buckets(admin.layout))))


def watch():
    while not is_over.wait(0.5):
        look()


look()
watcher = threading.Thread(target=watch, daemon=True)
watcher.start()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Scheduled in any order
# MAGIC A column says when each message is due. Where one lies in the topic says nothing of its time: what is published
# MAGIC last, in the last of its parts, comes first. Spark makes the index of publishes as large as these; small ones
# MAGIC by a client need no Spark.

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
# MAGIC `scheduled` is a view; on the command line there is `pulsar-spark delayed list`, and `delayed cancel` and
# MAGIC `delayed reschedule` to take messages out of it or move them. Here the last hundredth of the time is cancelled.

# COMMAND ----------

while admin.stats(TOPIC)["subscriptions"][SUBSCRIPTION]["msgBacklog"] < MESSAGES:  # until the broker has met them
    time.sleep(0.1)
spark.sql("""
    SELECT count(*) AS wait, min(due_time) AS first, max(due_time) AS last FROM scheduled""").show(truncate=False)
end = datetime.fromtimestamp(begin + 0.99 * SECONDS, UTC)
done = admin.cancel_scheduled(TOPIC, SUBSCRIPTION, since=end, reason="after hours")["done"]
cancelled = done.get(SUBSCRIPTION, 0)  # none where all of them have come due by now
print(cancelled, "cancelled")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Delivered when they are due
# MAGIC The consumer's function notes when it was called and which deliver times its messages have. It is called with
# MAGIC what came due meanwhile, so the more come due the larger its deliveries are.

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
print(f"{len(dues)} delivered, the earliest {delays.min() * 1000:.0f} ms behind its time, half within", end=" ")
print(f"{np.median(delays):.2f} s, all within {delays.max():.1f} s")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Pictures
# MAGIC Above: what was due and what was delivered by then, so the delivered never lead; and how late each came. Below:
# MAGIC the index, whose buckets go when all that is in them was delivered; and the memory of this process. It is flat
# MAGIC while a million wait, to the left of the line at which the first of them is due: what comes later are the
# MAGIC deliveries, whose deliver times the function above keeps.

# COMMAND ----------

figure, panels = plt.subplots(2, 2, figsize=(12, 8), layout="constrained")
(arrivals, lateness), (buckets, memory) = panels
for label, instants in {"due": dues, "delivered": received}.items():
    arrivals.step(np.sort(instants) - begin, np.arange(1, len(dues) + 1), where="post", label=label)
arrivals.set(title="due and delivered", xlabel="seconds", ylabel="messages")
arrivals.legend()
lateness.hist(delays, bins=50)
lateness.set(title="how late", xlabel="seconds behind the deliver time", ylabel="messages")
seconds, sizes, numbers = (np.array(column) for column in zip(*looks))
buckets.step(seconds - begin, numbers, where="post")
buckets.set(title="buckets of the index", xlabel="seconds", ylabel="buckets", ylim=(0, numbers.max() + 1))
buckets.yaxis.set_major_locator(MaxNLocator(integer=True))
memory.plot(seconds - begin, sizes / 2**20)
memory.set(
    title="memory of the process with broker and consumer",
    xlabel="seconds",
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
