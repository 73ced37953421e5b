# Databricks notebook source
# MAGIC %md
# MAGIC # The four subscription types
# MAGIC The same forty messages go to four subscriptions, each with two consumers. The pictures show who gets what, and
# MAGIC what happens when a consumer leaves. They need matplotlib: `pip install '.[plots]'` in the folder of the
# MAGIC repository.

# COMMAND ----------

import os
import tempfile

import matplotlib.pyplot as plt

import pulsar_spark as pulsar
from pulsar_spark import plots
from pulsar_spark.admin import Admin
from pulsar_spark.broker.runner import Broker
from pulsar_spark.storage.session import spark_session

root = os.environ.get("PULSAR_SPARK_ROOT") or tempfile.mkdtemp(prefix="pulsar_spark_")
spark = spark_session(for_rounds=True)
broker = Broker(spark, root)
broker.start()
admin = Admin(f"delta:{root}")
admin.create_topic("orders")
client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=300)  # also on a busy machine

# COMMAND ----------

# MAGIC %md
# MAGIC ## Two consumers per subscription
# MAGIC An Exclusive subscription accepts one consumer and refuses the second.

# COMMAND ----------

TYPES = {
    "exclusive": pulsar.ConsumerType.Exclusive,
    "failover": pulsar.ConsumerType.Failover,
    "shared": pulsar.ConsumerType.Shared,
    "key-shared": pulsar.ConsumerType.KeyShared,
}
consumers, refused = {}, []
for name, kind in TYPES.items():
    for consumer in ("anna", "ben"):
        try:
            priority = int((name, consumer) == ("failover", "ben"))  # 0 is better: Anna is active
            consumers[name, consumer] = client.subscribe(
                "orders", name, consumer_name=consumer, consumer_type=kind, priority_level=priority
            )
        except pulsar.ConsumerBusy as error:
            refused.append((name, consumer))
            print(error)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Forty messages of eight keys

# COMMAND ----------

producer = client.create_producer("orders")
for number in range(40):
    producer.send(f"order {number}".encode(), partition_key=f"customer-{number % 8}")


def take(name, consumer, most):
    """Up to *most* messages of a consumer, fewer if no more come."""
    taken = []
    try:
        while len(taken) < most:
            taken.append(consumers[name, consumer].receive(2_000))
    except pulsar.Timeout:
        pass
    return taken


received = {(name, consumer): take(name, consumer, 40) for name, consumer in consumers}
print({of: len(messages) for of, messages in received.items()})

# COMMAND ----------

# MAGIC %md
# MAGIC ## Anna acknowledges five messages and leaves
# MAGIC Ben gets her unacknowledged messages. On the Exclusive subscription, which refused him before, Ben subscribes
# MAGIC now.

# COMMAND ----------

for name, kind in TYPES.items():
    for message in received[name, "anna"][:5]:
        consumers[name, "anna"].acknowledge(message)
    consumers.pop((name, "anna")).close()
    if (name, "ben") not in consumers:
        consumers[name, "ben"] = client.subscribe("orders", name, consumer_name="ben", consumer_type=kind)
after = {name: len(take(name, "ben", 40)) for name in TYPES}
print("Ben got after Anna left:", after)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Who got what
# MAGIC Hatched bars were delivered again: Anna left before she had acknowledged them.

# COMMAND ----------

figure, panels = plt.subplots(4, 1, figsize=(10, 9), layout="constrained")
for panel, name in zip(panels, TYPES, strict=True):
    plots.who_got_what(spark, root, "orders", name, axes=panel)
picture = os.path.join(tempfile.mkdtemp(prefix="pulsar_spark_"), "subscription_types.png")
figure.savefig(picture, dpi=100)
print(picture)

# COMMAND ----------

client.close()
broker.stop()
broker.wait()
