# Databricks notebook source
# MAGIC %md
# MAGIC # Operating
# MAGIC One consumer is too slow for its producer, and the backlog grows. A second consumer is started. Pictures of
# MAGIC backlog, rates and rounds show the effect. They need matplotlib: `pip install '.[plots]'` in the folder of the
# MAGIC repository.

# COMMAND ----------

import os
import tempfile
import threading

import matplotlib.pyplot as plt

import pulsar_spark as pulsar
from pulsar_spark import plots
from pulsar_spark.admin import Admin
from pulsar_spark.broker.runner import Broker
from pulsar_spark.storage.session import spark_session

SECONDS = int(os.environ.get("PULSAR_SPARK_NOTEBOOK_SECONDS", 30))
root = os.environ.get("PULSAR_SPARK_ROOT") or tempfile.mkdtemp(prefix="pulsar_spark_")
spark = spark_session(for_rounds=True)
broker = Broker(spark, root)
broker.start()
admin = Admin(f"delta:{root}")
admin.create_topic("orders")
client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=300)  # also on a busy machine

# COMMAND ----------

# MAGIC %md
# MAGIC ## A steady producer and a slow consumer
# MAGIC The producer sends a batch of ten orders every tenth of a second. A worker needs ten milliseconds per order.

# COMMAND ----------

is_over = threading.Event()
handled = {"anna": 0, "ben": 0}


def produce():
    producer = client.create_producer("orders")
    number = 0
    while not is_over.wait(0.1):
        for _ in range(10):
            producer.send_async(f"order {number}".encode(), None)
            number += 1
        producer.flush()


def work(name):
    consumer = client.subscribe(
        "orders", "billing", consumer_name=name, consumer_type=pulsar.ConsumerType.Shared, receiver_queue_size=50
    )
    while not is_over.wait(0.01):
        try:
            consumer.acknowledge(consumer.receive(500))
            handled[name] += 1
        except pulsar.Timeout:
            continue
    consumer.close()


admin.create_subscription("orders", "billing", "earliest")
threads = [threading.Thread(target=produce), threading.Thread(target=work, args=["anna"])]
for thread in threads:
    thread.start()
is_over.wait(SECONDS / 2)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Check the backlog, and start a second worker

# COMMAND ----------

slow = admin.stats("orders")["subscriptions"]["billing"]
print("backlog:", slow["msgBacklog"], "unacknowledged:", slow["unackedMessages"])
threads.append(threading.Thread(target=work, args=["ben"]))
threads[-1].start()
is_over.wait(SECONDS / 2)
is_over.set()
for thread in threads:
    thread.join()
print(handled)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Backlog, rates, rounds

# COMMAND ----------

figure, panels = plt.subplots(3, 1, figsize=(10, 9), layout="constrained")
plots.backlog(spark, root, "orders", axes=panels[0])
plots.rates(spark, root, "orders", "billing", axes=panels[1])
plots.rounds(spark, root, axes=panels[2])
picture = os.path.join(tempfile.mkdtemp(prefix="pulsar_spark_"), "operating.png")
figure.savefig(picture, dpi=100)
print(picture)

# COMMAND ----------

client.close()
broker.stop()
broker.wait()
