# Databricks notebook source
# MAGIC %md
# MAGIC # SQL cookbook, with time travel
# MAGIC Questions about cursors and messages, and the SQL that answers them. The picture at the end needs matplotlib:
# MAGIC `pip install '.[plots]'` in the folder of the repository.

# COMMAND ----------

import os
import tempfile
import time

from pyspark.sql import functions as F

from pulsar_spark import plots
from pulsar_spark.admin import Admin
from pulsar_spark.broker.runner import Broker
from pulsar_spark.frames import consume, publish
from pulsar_spark.storage.session import spark_session
from pulsar_spark.views import create_views

root = os.environ.get("PULSAR_SPARK_ROOT") or tempfile.mkdtemp(prefix="pulsar_spark_")
spark = spark_session(for_rounds=True)
broker = Broker(spark, root)
broker.start()
admin = Admin(f"delta:{root}")
admin.create_topic("orders")
admin.create_subscription("orders", "audit", "earliest")


def orders(first, last):
    return spark.range(first, last).select(
        F.col("id").cast("string").alias("payload"),
        F.concat(F.lit("customer-"), F.col("id") % 5).alias("partition_key"),
    )


def bill(name):
    consume(
        spark,
        root,
        "orders",
        "billing",
        lambda messages, delivery: None,
        consumer_name=name,
        available_now=True,
        timeout=300,
    ).await_termination()


publish(orders(0, 50), root, "orders")
bill("anna")
before = spark.sql("SELECT current_timestamp()").first()[0]
time.sleep(1)
publish(orders(50, 80), root, "orders")
bill("ben")
create_views(spark, root)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Who had message 17?

# COMMAND ----------

who = spark.sql(
    "SELECT time, event, consumer_name FROM history WHERE 17 BETWEEN coalesce(first, 0) AND last ORDER BY time"
)
who.show(truncate=False)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Where was the cursor then?
# MAGIC The table `cursor_ledger` has a row for each cursor that a round changed. Take the row of the last round before
# MAGIC the given time.

# COMMAND ----------

spark.read.format("delta").load(str(admin.layout.broker_table("cursor_ledger"))).createOrReplaceTempView("facts")
then = spark.sql(
    """
    SELECT max_by(mark_delete_position, round) AS mark_delete_position FROM facts
    WHERE kind = 'cursor' AND subscription = 'billing'
        AND round <= (SELECT max(round) FROM rounds WHERE round_time <= :instant)""",
    args={"instant": before},
)
then.show()

# COMMAND ----------

# MAGIC %md
# MAGIC ## What did the topic hold at an earlier version?
# MAGIC A topic is a Delta table, so Delta's time travel works on it.

# COMMAND ----------

topic = spark.read.format("delta").option("versionAsOf", 1).load(os.path.join(root, "public", "default", "orders"))
print(topic.count(), "messages at version 1")

# COMMAND ----------

# MAGIC %md
# MAGIC ## How large is each backlog?

# COMMAND ----------

backlogs = spark.sql(
    """
    SELECT c.subscription, t.end_position - 1 - c.mark_delete_position AS behind
    FROM cursors c JOIN (SELECT topic, partition, max(end_position) AS end_position FROM facts
        WHERE kind = 'topic' GROUP BY topic, partition) t USING (topic, partition) ORDER BY c.subscription"""
)
backlogs.show()

# COMMAND ----------

# MAGIC %md
# MAGIC ## The backlog over time, as a picture

# COMMAND ----------

axes = plots.backlog(spark, root, "orders")
picture = os.path.join(tempfile.mkdtemp(prefix="pulsar_spark_"), "backlog.png")
axes.figure.savefig(picture, dpi=100)
print(picture)

# COMMAND ----------

broker.stop()
broker.wait()
