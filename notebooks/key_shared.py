# Databricks notebook source
# MAGIC %md
# MAGIC # Key_Shared: who owns which keys
# MAGIC Consumers of a Key_Shared subscription share its messages by key. Each owns ranges of the keys' hashes, and the
# MAGIC ranges change when a consumer joins or leaves. This notebook shows that, with a picture from the history of the
# MAGIC broker's rounds. The picture needs matplotlib: `pip install '.[plots]'` in the folder of the repository.

# COMMAND ----------

import os
import tempfile

import matplotlib.pyplot as plt
from matplotlib.patches import Patch
from pyspark.sql import functions as F

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.broker.runner import Broker
from pulsar_spark.frames import publish
from pulsar_spark.plots.drawing import COLOURS
from pulsar_spark.storage.session import spark_session
from pulsar_spark.views import create_views

root = os.environ.get("PULSAR_SPARK_ROOT") or tempfile.mkdtemp(prefix="pulsar_spark_")
spark = spark_session()
broker = Broker(spark_session(for_rounds=True), root)
broker.start()
admin = Admin(f"delta:{root}")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Two ways to share
# MAGIC The same orders go to two topics. On `split` a new consumer takes half of another's range. On `ring`, Pulsar's
# MAGIC default, each consumer has a hundred points on a ring of hashes, so a new one takes a little from every other.

# COMMAND ----------

orders = spark.range(600).select(
    F.col("id").cast("string").alias("payload"),
    F.concat(F.lit("customer-"), (F.col("id") % 100).cast("string")).alias("partition_key"),
)
TOPICS = ("split", "ring")
for topic in TOPICS:
    admin.create_topic(topic)
    publish(orders, root, topic)
admin.set_policy("persistent://public/default/split", "subscription_key_shared_use_consistent_hashing", 0)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Consumers come and go
# MAGIC `anna` joins first and receives fifty orders, which she does not acknowledge yet. Then `ben`, `cleo` and `dora`
# MAGIC join. After each of them has joined, all consumers except `anna` handle some orders.

# COMMAND ----------

client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=300)  # also on a busy machine


class Team:
    """The consumers of one topic, by name."""

    def __init__(self, topic):
        self.topic, self.consumers, self.slow = topic, {}, []

    def join(self, name):
        self.consumers[name] = client.subscribe(
            self.topic,
            "billing",
            consumer_name=name,
            consumer_type=pulsar.ConsumerType.KeyShared,
            initial_position=pulsar.InitialPosition.Earliest,
            receiver_queue_size=20,
        )

    def leave(self, name):
        self.consumers.pop(name).close()

    def take(self, name, orders):
        """The next orders that the consumer gets, fewer if no more come."""
        taken = []
        try:
            while len(taken) < orders:
                taken.append(self.consumers[name].receive(500))
        except pulsar.Timeout:
            pass
        return taken

    def work(self, orders=10):
        """Every consumer except the slow ones handles some orders."""
        for name in self.consumers.keys() - self.slow:
            self.consumers[name].acknowledge(self.take(name, orders))


def everywhere(*steps):
    """Run each step in both teams: a name joins, "-name" leaves, "work" handles orders."""
    for step in steps:
        for team in teams:
            if step == "work":
                team.work()
            elif step.startswith("-"):
                team.leave(step[1:])
            else:
                team.join(step)


teams = [Team(topic) for topic in TOPICS]
everywhere("anna")
held = [team.take("anna", 50) for team in teams]
for team in teams:
    team.slow = ["anna"]
everywhere("ben", "work", "work", "cleo", "work", "work", "dora", "work", "work")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Hashes that drain
# MAGIC `anna` holds orders of customers that other consumers own now. Until she acknowledges them or gives them back,
# MAGIC the new owners get no orders of these customers, so each customer's orders stay in order. The view
# MAGIC `draining_hashes` shows which hashes wait for which consumer.

# COMMAND ----------

create_views(spark, root)
draining = spark.sql("""
    SELECT split_part(topic, '/', -1) AS topic, owner_name, consumer_name AS waits_for, count(*) AS hashes,
        sum(messages) AS messages
    FROM draining_hashes WHERE is_draining GROUP BY ALL ORDER BY ALL""")
before = draining.collect()
draining.show()

# COMMAND ----------

# MAGIC %md
# MAGIC ## The wait ends
# MAGIC `anna` acknowledges her orders, `ben` leaves, and `emil` joins. All continue until every order is handled. Then
# MAGIC no hash waits for another consumer.

# COMMAND ----------

for team, orders_of_anna in zip(teams, held, strict=True):
    team.consumers["anna"].acknowledge(orders_of_anna)
    team.slow = []
everywhere("work", "work", "-ben", "work", "work", "emil")
while any(admin.stats(topic)["subscriptions"]["billing"]["msgBacklog"] for topic in TOPICS):
    for team in teams:
        team.work(100)

after = draining.collect()
draining.show()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Who owns what, now
# MAGIC The view `hash_ranges` has a row for each range. To join it with messages, compute the place of a message's
# MAGIC hash: `sticky_key_hash % axis_size + axis_start`. Here the view shows which share of all hashes each consumer
# MAGIC owns.

# COMMAND ----------

shares = spark.sql("""
    SELECT split_part(topic, '/', -1) AS topic, consumer_name, count(*) AS ranges,
        round(sum((range_end - range_start + 1) / sharers / axis_size), 3) AS share
    FROM hash_ranges GROUP BY ALL ORDER BY topic, consumer_name""").toPandas()
print(shares.to_string(index=False))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Who owned what, round by round
# MAGIC The broker's table `cursor_ledger` has a row for each consumer and each round in which the consumer changed. If
# MAGIC the consumer's hash ranges changed, the row has the new ones. They hold until its next row with hash ranges.

# COMMAND ----------

spark.read.format("delta").load(str(admin.layout.broker_table("cursor_ledger"))).createOrReplaceTempView("facts")
owned = spark.sql("""
    SELECT split_part(topic, '/', -1) AS topic, consumer_name, first_round, last_round,
        bigint(range.start) AS start, bigint(range.end) AS end
    FROM (
        SELECT topic, consumer_name, is_removed, hash_ranges, round AS first_round,
            lead(round, 1, (SELECT max(round) + 1 FROM facts)) OVER (PARTITION BY topic, consumer_id ORDER BY round)
                AS last_round
        FROM facts WHERE kind = 'consumer' AND (hash_ranges IS NOT NULL OR is_removed)
    ) LATERAL VIEW explode(hash_ranges) AS range
    WHERE is_removed IS NOT TRUE ORDER BY first_round, range.start""").toPandas()

# COMMAND ----------

names = sorted(owned["consumer_name"].unique())
colours = dict(zip(names, COLOURS, strict=False))
figure, panels = plt.subplots(1, len(TOPICS), figsize=(12, 5), layout="constrained")
for panel, topic in zip(panels, TOPICS, strict=True):
    rows = owned[owned["topic"] == topic]
    for name, ranges in rows.groupby("consumer_name"):
        panel.bar(
            ranges["first_round"],
            ranges["end"] - ranges["start"] + 1,
            width=ranges["last_round"] - ranges["first_round"],
            bottom=ranges["start"],
            align="edge",
            color=colours[name],
        )
    panel.set(title=topic, xlabel="round", xlim=(rows["first_round"].min(), rows["last_round"].max()))
    panel.set(ylabel="hash % 65536" if topic == "split" else "hash", ylim=(0, rows["end"].max() + 1))
    panel.xaxis.get_major_locator().set_params(integer=True)
figure.legend(handles=[Patch(color=colours[name], label=name) for name in names], loc="outside right")
figure.suptitle("Who owns which hashes")
picture = os.path.join(tempfile.mkdtemp(prefix="pulsar_spark_"), "ownership.png")
figure.savefig(picture, dpi=100)
print(picture)

# COMMAND ----------

client.close()
broker.stop()
broker.wait()
