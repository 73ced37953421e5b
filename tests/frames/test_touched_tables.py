"""What Spark SQL does to a topic's table, and what DataFrame consumers make of it."""

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from pulsar_spark.admin import Admin
from pulsar_spark.broker.runner import Broker
from pulsar_spark.frames import consume, publish
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.session import spark_session
from pulsar_spark.storage.topics.topics import create_topic
from pulsar_spark.views import create_views


@pytest.fixture(scope="module")
def served(spark, tmp_path_factory):
    """A root with a broker."""
    root = tmp_path_factory.mktemp("touched") / "root"
    broker = Broker(spark_session(for_rounds=True), root)
    assert broker.start(standby_seconds=0)
    yield root
    broker.stop()
    broker.wait()


@pytest.fixture
def topic(spark, served, request):
    """A topic with messages 0 to 199 in two publishes."""
    made = create_topic(Layout(served), f"t-{abs(hash(request.node.name)):x}")
    Admin(f"delta:{served}").create_subscription(str(made.name), "s", "earliest")
    for first in (0, 100):
        publish(spark.range(first, first + 100, 1, 1).selectExpr("cast(id as string) payload"), served, str(made.name))
    return made


def consumed(spark, root, topic, **options):
    """The numbers that a run over what is there got, the messages its deliveries said they have, and the run."""
    numbers, said = [], []

    def take(messages, delivery):
        numbers.extend(int(row.payload) for row in messages.select(F.col("payload").cast("string")).collect())
        said.append(delivery.messages)

    with consume(spark, str(root), str(topic.name), "s", take, available_now=True, **options) as consumption:
        consumption._consumer.has_ended.wait(90)
    return sorted(numbers), sum(said), consumption


def backlog(root, topic) -> int:
    return Admin(f"delta:{root}").stats(str(topic.name))["subscriptions"]["s"]["msgBacklog"]


def test_what_sql_deleted_is_neither_seen_nor_counted(spark, served, topic):
    spark.sql(f"DELETE FROM delta.`{topic.path}` WHERE int(string(payload)) % 5 = 0")
    spark.sql(f"UPDATE delta.`{topic.path}` SET payload = binary('1000') WHERE string(payload) = '7'")
    numbers, said, consumption = consumed(spark, served, topic)
    expected = sorted({number for number in range(200) if number % 5} - {7} | {1000})
    assert (numbers, said, consumption.exception()) == (expected, 160, None)
    assert backlog(served, topic) == 0
    assert Admin(f"delta:{served}").stats(str(topic.name))["deletedMessages"] == 40
    create_views(spark, served)
    deleted = f"event = 'deleted' and topic = '{topic.name}'"
    told = spark.sql(f"select first, last, round > 0, time is not null, subscription from history where {deleted}")
    assert sorted(map(tuple, told.collect())) == [(each, each, True, True, None) for each in range(0, 200, 5)]


def test_an_append_of_rows_that_are_no_publish_is_refused_and_a_copy_is_delivered_once(spark, served, topic):
    with pytest.raises((PySparkException, Py4JJavaError), match="NOT_NULL|NOT NULL"):
        spark.range(3).selectExpr("cast(string(id) as binary) payload").write.format("delta").mode("append").save(
            str(topic.path)
        )
    spark.sql(f"INSERT INTO delta.`{topic.path}` SELECT * FROM delta.`{topic.path}`")
    numbers, said, _ = consumed(spark, served, topic)
    assert (numbers, said) == (list(range(200)), 200)
    assert Admin(f"delta:{served}").stats(str(topic.name))["foreignMessages"] == 200


def test_lost_messages_are_named_and_the_others_flow(spark, served, topic):
    file = TableLog(topic.path).commit(2).added[0].path
    (topic.path / file).unlink()
    numbers, said, consumption = consumed(spark, served, topic)
    assert (numbers, said) == (list(range(100)), 100)
    assert type(consumption.exception()).__name__ == "MessagesLost" and "2:0 to 2:99" in str(consumption.exception())
    assert backlog(served, topic) == 100
    assert Admin(f"delta:{served}").skip_lost(str(topic.name), "s") == 100
    assert backlog(served, topic) == 0
    assert consumed(spark, served, topic)[2].exception() is None


def test_deletion_vectors_stop_the_topic_until_the_table_does_without(spark, served, topic):
    spark.sql(f"ALTER TABLE delta.`{topic.path}` SET TBLPROPERTIES (delta.enableDeletionVectors = true)")
    error = Admin(f"delta:{served}").stats(str(topic.name))["error"]
    assert "deletionVectors" in error and "DROP FEATURE" in error
