# Databricks notebook source
# MAGIC %md
# MAGIC # Quickstart
# MAGIC Publish a DataFrame to a topic, run a broker in this notebook, consume a subscription as DataFrames, and query
# MAGIC its state with SQL. Everything lies in one folder, the root. It has a Delta table for each topic, and Delta
# MAGIC tables for the state of all subscriptions. The picture at the end needs matplotlib: `pip install '.[plots]'` in
# MAGIC the folder of the repository.

# COMMAND ----------

import logging
import os
import tempfile

from pyspark.sql import functions as F

from pulsar_spark import plots
from pulsar_spark.admin import Admin
from pulsar_spark.broker.runner import Broker
from pulsar_spark.frames import consume, publish
from pulsar_spark.storage.session import spark_session
from pulsar_spark.views import create_views

root = os.environ.get("PULSAR_SPARK_ROOT") or tempfile.mkdtemp(prefix="pulsar_spark_")
spark = spark_session()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Publish
# MAGIC The frame needs a column `payload`; `partition_key`, `properties`, `event_time` and others are optional.
# MAGIC One publish is one commit.

# COMMAND ----------

admin = Admin(f"delta:{root}")
admin.create_partitioned_topic("orders", 2)

orders = spark.range(1_000).select(
    F.to_json(F.struct(F.col("id").alias("order"), (F.col("id") % 100).alias("amount"))).alias("payload"),
    (F.col("id") % 7).cast("string").alias("partition_key"),
)
published = publish(orders, root, "orders")
print(published)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Run a broker
# MAGIC A broker is a streaming query; outside a notebook you start it with `pulsar-spark broker` or `jobs/broker.py`.
# MAGIC If you run this cell again, the new broker replaces the running one. Brokers and consumers log with Python's
# MAGIC `logging`, which a notebook can configure.

# COMMAND ----------

logging.getLogger("pulsar_spark").setLevel(logging.INFO)
broker = Broker(spark_session(for_rounds=True), root)
broker.start()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Consume
# MAGIC The function is called with each delivery. When it returns, the delivery is acknowledged. When it raises, the
# MAGIC delivery is given back and the error is logged. It can also return a frame of outcomes, one per row. A new
# MAGIC subscription starts at the earliest message, unless `initial_position` is "Latest". With a consumer name you can
# MAGIC run the cell again: the new consumer replaces the running one.

# COMMAND ----------

amounts = []


def add_up(messages, delivery):
    amount = F.get_json_object(F.col("payload").cast("string"), "$.amount").cast("long")
    amounts.append(messages.agg(F.sum(amount)).first()[0])


consumption = consume(
    spark, root, "orders", "accounting", add_up, consumer_name="quickstart", available_now=True, timeout=300
)
consumption.await_termination(120)
print(sum(amounts), "in", len(amounts), "deliveries:", consumption.totals)

# COMMAND ----------

# MAGIC %md
# MAGIC ## State is SQL
# MAGIC `create_views` creates the views `cursors`, `pending_acks`, `consumers`, `rounds` and others.

# COMMAND ----------

create_views(spark, root)
cursors = spark.sql(
    "SELECT topic, partition, subscription, mark_delete_position, read_position FROM cursors ORDER BY partition"
)
cursors.show(truncate=False)

# COMMAND ----------

stats = admin.stats("orders")
print({name: subscription["msgBacklog"] for name, subscription in stats["subscriptions"].items()})

# COMMAND ----------

# MAGIC %md
# MAGIC ## The backlog over time

# COMMAND ----------

axes = plots.backlog(spark, root, "orders")
picture = os.path.join(tempfile.mkdtemp(prefix="pulsar_spark_"), "backlog.png")
axes.figure.savefig(picture, dpi=100)
print(picture)

# COMMAND ----------

broker.stop()
broker.wait()
