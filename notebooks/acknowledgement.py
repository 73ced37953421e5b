# Databricks notebook source
# MAGIC %md
# MAGIC # Acknowledgement and redelivery
# MAGIC A consumer acknowledges some messages. It returns one message again and again, until this becomes a dead letter.
# MAGIC SQL shows which messages are not acknowledged, and a picture shows what happened to one message. The picture
# MAGIC needs matplotlib: `pip install '.[plots]'` in the folder of the repository.

# COMMAND ----------

import os
import tempfile

import pulsar_spark as pulsar
from pulsar_spark import plots
from pulsar_spark.admin import Admin
from pulsar_spark.broker.runner import Broker
from pulsar_spark.storage.session import spark_session
from pulsar_spark.views import create_views

root = os.environ.get("PULSAR_SPARK_ROOT") or tempfile.mkdtemp(prefix="pulsar_spark_")
spark = spark_session(for_rounds=True)
broker = Broker(spark, root)
broker.start()
admin = Admin(f"delta:{root}")
admin.create_topic("orders")
client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=300)  # also on a busy machine
consumer = client.subscribe(
    "orders",
    "billing",
    consumer_type=pulsar.ConsumerType.Shared,
    consumer_name="anna",
    negative_ack_redelivery_delay_ms=500,
    dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(2),
)
producer = client.create_producer("orders")
for number in range(10):
    producer.send(f"order {number}".encode())

# COMMAND ----------

# MAGIC %md
# MAGIC ## Holes
# MAGIC Acknowledge all messages except 3, 6 and 7. Mark-delete, the last position up to which everything is
# MAGIC acknowledged, is then 2. Messages 3, 6 and 7 are holes: the broker remembers them as ranges of pending
# MAGIC positions.

# COMMAND ----------

messages = {int(message.data().split()[1]): message for message in (consumer.receive(60_000) for _ in range(10))}
consumer.acknowledge([message for number, message in messages.items() if number not in (3, 6, 7)])
create_views(spark, root)
while (mark_delete := spark.sql("SELECT mark_delete_position FROM cursors").first()[0]) < 2:
    pass
spark.sql("SELECT mark_delete_position, read_position FROM cursors").show()
pending = spark.sql("SELECT first, last, status, redelivery_count FROM pending_acks ORDER BY first")
before = [tuple(row) for row in pending.collect()]
pending.show()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Return a message until it dies
# MAGIC The policy allows two redeliveries. A message that is returned after its third delivery becomes a dead letter.

# COMMAND ----------

counts = []
message = messages[3]
while True:
    counts.append(message.redelivery_count())
    consumer.negative_acknowledge(message)
    try:
        message = consumer.receive(5_000)
    except pulsar.Timeout:
        break
print("redelivery counts of message 3:", counts)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Acknowledge the rest
# MAGIC When no hole is left, mark-delete moves to the last message. Message 3 counts as acknowledged: it became a dead
# MAGIC letter.

# COMMAND ----------

consumer.acknowledge([messages[6], messages[7]])
while (
    mark_delete := spark.sql("SELECT mark_delete_position FROM cursors WHERE subscription = 'billing'").first()[0]
) < 9:
    pass
print("mark-delete:", mark_delete)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The life of message 3

# COMMAND ----------

events = spark.sql("SELECT event FROM history WHERE 3 BETWEEN coalesce(first, 0) AND last ORDER BY time")
story = [row.event for row in events.collect()]
axes = plots.message_history(spark, root, "orders", 3)
picture = os.path.join(tempfile.mkdtemp(prefix="pulsar_spark_"), "message_history.png")
axes.figure.savefig(picture, dpi=100)
print(picture)

# COMMAND ----------

client.close()
broker.stop()
broker.wait()
