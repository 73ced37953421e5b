# Databricks notebook source
# MAGIC %md
# MAGIC # Dead letters, from failure to reprocessing
# MAGIC A handler fails on some messages. It gives them back, and the broker delivers them again. After too many
# MAGIC attempts they become dead letters: rows of a table with the message and the cause. This notebook examines
# MAGIC the letters, repairs them, and sends each one back once. The last cell draws a picture and needs matplotlib:
# MAGIC `pip install '.[plots]'` in the folder of the repository.

# COMMAND ----------

import os
import tempfile

from pyspark.sql import functions as F

import pulsar_spark as pulsar
from pulsar_spark import plots
from pulsar_spark.broker.runner import Broker
from pulsar_spark.frames import consume, count_by_cause, dead_letters, publish, reprocess_dead_letters
from pulsar_spark.protocol.redelivery.letters import retry_letter_topic
from pulsar_spark.storage.session import spark_session
from pulsar_spark.views import create_views

root = os.environ.get("PULSAR_SPARK_ROOT") or tempfile.mkdtemp(prefix="pulsar_spark_")
spark = spark_session()
broker = Broker(spark_session(for_rounds=True), root)
broker.start()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Orders, some of which are broken
# MAGIC Every tenth order has no amount.

# COMMAND ----------

amount = F.when(F.col("id") % 10 != 0, F.col("id"))
orders = spark.range(200).select(
    F.to_json(F.struct(F.col("id").alias("order"), amount.alias("amount"))).alias("payload"),
    F.concat(F.lit("customer-"), (F.col("id") % 7).cast("string")).alias("partition_key"),
)
publish(orders, root, "orders")

# COMMAND ----------

# MAGIC %md
# MAGIC ## A handler that decides row by row
# MAGIC The handler returns a frame that names the orders to give back. The dead letter policy allows one redelivery, so
# MAGIC the second delivery is the last. Like a scheduled job, each run handles the messages that were published before
# MAGIC it started. Messages that it gives back are delivered to the next run. The third run has nothing to do.

# COMMAND ----------

billed = []


def amount_of(messages):
    return F.get_json_object(messages["payload"].cast("string"), "$.amount").cast("long")


def bill(messages, delivery):
    billed.append(messages.agg(F.sum(amount_of(messages))).first()[0] or 0)
    return messages.filter(amount_of(messages).isNull()).select(
        "partition", "position", F.lit("negative_acknowledge").alias("outcome")
    )


policy = pulsar.ConsumerDeadLetterPolicy(1)
for run in range(3):
    consume(
        spark,
        root,
        "orders",
        "billing",
        bill,
        subscription_type="Shared",
        consumer_name="biller",
        dead_letter_policy=policy,
        available_now=True,
        timeout=300,
    ).await_termination(120)
    print("run", run + 1, "billed", billed)

# COMMAND ----------

# MAGIC %md
# MAGIC ## What died, and why

# COMMAND ----------

causes = count_by_cause(spark, root, "orders", subscription="billing")
causes.show(truncate=False)

letters = dead_letters(spark, root, "orders", subscription="billing")
letters.select(
    "origin_message_id", "cause", "attempts", "partition_key", F.col("payload").cast("string").alias("order")
).show(5, truncate=False)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Repair and send back
# MAGIC First comes a dry run, which sends nothing. The real run publishes the letters to the retry letter topic of the
# MAGIC subscription on which they died, so no other subscription gets them. (`to="origin"` would send them to the topic
# MAGIC itself, and so to every subscription.) The run can be repeated: with the same job id nothing is sent twice.

# COMMAND ----------


def repair(letters):
    order = F.get_json_object(F.col("payload").cast("string"), "$.order").cast("long")
    return letters.withColumn(
        "payload", F.to_json(F.struct(order.alias("order"), F.lit(0).alias("amount"))).cast("binary")
    )


job = dict(subscription="billing", job_id="repair-amounts", where="cause = 'max_redeliver_count'", fix=repair)
planned = reprocess_dead_letters(spark, root, "orders", dry_run=True, **job)
done = reprocess_dead_letters(spark, root, "orders", **job)
again = reprocess_dead_letters(spark, root, "orders", **job)
print(f"selected {planned.selected}, sent {done.sent}, after a repetition still {again.sent}")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The repaired orders are billed
# MAGIC The retry letter topic is a topic like any other; a client's consumer with `retry_enable` reads it by itself.

# COMMAND ----------

repaired = []
consume(
    spark,
    root,
    retry_letter_topic("persistent://public/default/orders", "billing"),
    "billing",
    lambda messages, delivery: repaired.append(messages.filter(amount_of(messages).isNotNull()).count()),
    subscription_type="Shared",
    available_now=True,
).await_termination(120)
print(sum(repaired), "repaired orders were billed")

# COMMAND ----------

# MAGIC %md
# MAGIC ## What happened to one of them
# MAGIC The view `history` has each delivery of a message, and what happened after it.

# COMMAND ----------

create_views(spark, root)
story = spark.sql("""
    SELECT round, event, redelivery_count FROM history
    WHERE topic = 'persistent://public/default/orders' AND subscription = 'billing'
        AND 10 BETWEEN coalesce(first, 0) AND last
    ORDER BY round, event""")
story.show(truncate=False)

# COMMAND ----------

position, partition = spark.sql("""
    SELECT first, partition FROM history WHERE event = 'dead_lettered' ORDER BY time LIMIT 1""").first()
axes = plots.message_history(spark, root, "orders", position, partition=partition)
picture = os.path.join(tempfile.mkdtemp(prefix="pulsar_spark_"), "message_history.png")
axes.figure.savefig(picture, dpi=100)
print(picture)

# COMMAND ----------

broker.stop()
broker.wait()
