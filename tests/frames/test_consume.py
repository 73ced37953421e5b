"""Consuming subscriptions as frames, with a broker in the same session. Topics differ from test to test; the root and
the broker are shared."""

import threading
import time

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.sql import functions as F

from pulsar_spark import ConsumerDeadLetterPolicy
from pulsar_spark.admin import Admin
from pulsar_spark.broker.runner import Broker
from pulsar_spark.errors import ConsumerBusy, InvalidConfiguration, InvalidTopicName, TopicNotFound
from pulsar_spark.frames import consume, dead_letters, publish, to_delta
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.session import spark_session
from pulsar_spark.storage.topics.topics import create_topic

WAIT = 60
EARLIEST = {"initial_position": "Earliest"}


@pytest.fixture(scope="module")
def served(spark, tmp_path_factory):
    """A root with a broker."""
    root = tmp_path_factory.mktemp("served") / "root"
    broker = Broker(spark_session(for_rounds=True), root)
    assert broker.start(standby_seconds=0)
    yield root
    broker.stop()
    broker.wait()


@pytest.fixture
def topic(spark, served, request):
    """A topic of two partitions with messages 0 to 99."""
    name = f"t-{abs(hash(request.node.name)):x}"
    create_topic(Layout(served), name, 2)
    publish(spark.range(0, 100, 1, 2).selectExpr("cast(id as string) payload"), served, name)
    return name


class Collected:
    """A function that keeps what it is given, and returns what another one says."""

    def __init__(self, then=lambda messages, delivery: None):
        self.tables, self.deliveries, self.then = [], [], then
        self.arrived = threading.Event()

    def __call__(self, messages, delivery):
        self.deliveries.append(delivery)
        self.tables.append(
            messages.withColumn("payload", F.col("payload").cast("string"))
            .select("payload", "redelivery_count")
            .toArrow()
        )
        self.arrived.set()
        return self.then(messages, delivery)

    def assert_got(self, spark, *expected):
        """Exactly these (number of the message, redelivery count), each once."""
        got = spark.createDataFrame(pa.concat_tables(self.tables))
        rows = [(str(number), count) for number, count in expected]
        assert_df_equality(
            got,
            spark.createDataFrame(rows, "payload string, redelivery_count int"),
            ignore_row_order=True,
            ignore_nullable=True,
        )


def run_to_end(spark, served, topic, subscription, function, **options):
    with consume(
        spark, served, topic, subscription, function, available_now=True, **{**EARLIEST, **options}
    ) as consumption:
        assert consumption.await_termination(WAIT)
    return consumption


def test_a_run_gets_everything_once_and_the_next_one_nothing(spark, served, topic):
    function = Collected()
    run_to_end(spark, served, topic, "s", function, max_messages=30)
    function.assert_got(spark, *((number, 0) for number in range(100)))
    assert all(delivery.messages <= 30 for delivery in function.deliveries)
    publish(spark.createDataFrame([("100",)], "payload string"), served, topic)
    later = Collected()
    run_to_end(spark, served, topic, "s", later)
    later.assert_got(spark, (100, 0))


def test_rows_given_back_come_again_in_the_next_run(spark, served, topic):
    def odd_ones_back(messages, delivery):
        is_odd = F.col("payload").cast("string").cast("int") % 2 == 1
        return messages.select(
            "partition", "position", F.when(is_odd, "negative_acknowledge").otherwise("acknowledge").alias("outcome")
        )

    first, second = Collected(odd_ones_back), Collected()
    consumption = run_to_end(spark, served, topic, "s", first, subscription_type="Shared")
    assert consumption.last_progress["error"] is None
    run_to_end(spark, served, topic, "s", second, subscription_type="Shared")
    first.assert_got(spark, *((number, 0) for number in range(100)))
    second.assert_got(spark, *((number, 1) for number in range(1, 100, 2)))


def test_messages_put_off_come_from_the_retry_topic_and_end_as_dead_letters(spark, served, topic):
    def every_tenth_later(messages, delivery):
        is_tenth = F.col("payload").cast("string").cast("int") % 10 == 0
        return messages.select(
            "partition", "position", F.when(is_tenth, "reconsume_later").otherwise("acknowledge").alias("outcome")
        )

    options = {"subscription_type": "Shared", "retry_enable": True, "dead_letter_policy": ConsumerDeadLetterPolicy(1)}
    first, again, last = Collected(every_tenth_later), Collected(every_tenth_later), Collected()
    consumption = run_to_end(spark, served, topic, "s", first, **options)
    assert (consumption.last_progress["error"], consumption.last_progress["put_off"]) == (None, 10)
    first.assert_got(spark, *((number, 0) for number in range(100)))
    wait_for_messages(served, f"{topic}-s-RETRY", 10)
    run_to_end(spark, served, f"{topic}-s-RETRY", "s", again, **options)
    again.assert_got(spark, *((number, 0) for number in range(0, 100, 10)))
    wait_for_messages(served, f"{topic}-s-DLQ", 10)
    for over in (topic, f"{topic}-s-RETRY"):
        run_to_end(spark, served, over, "s", last, **options)
    assert last.tables == []
    letters = dead_letters(spark, served, topic, subscription="s")
    found = letters.select(F.col("payload").cast("string").alias("payload"), "cause", "attempts")
    expected = [(str(number), "max_reconsume_times", 2) for number in range(0, 100, 10)]
    assert_df_equality(
        found, spark.createDataFrame(expected, found.schema), ignore_row_order=True, ignore_nullable=True
    )


def test_putting_off_without_a_retry_topic_gives_back_and_says_so(spark, served, topic):
    def later(messages, delivery):
        return messages.selectExpr("partition", "position", "'reconsume_later' outcome")

    with (
        consume(spark, served, topic, "s", later, available_now=True, **EARLIEST) as consumption,
        pytest.raises(InvalidConfiguration, match="retry_enable=True"),
    ):
        consumption.await_termination(WAIT)


def wait_for_messages(root, topic: str, count: int) -> None:
    """Until a topic holds that many messages, for letters follow the round that decided them."""
    until = time.monotonic() + WAIT
    while Admin(f"delta:{root}").stats(topic)["msgInCounter"] < count:
        assert time.monotonic() < until
        time.sleep(0.05)


def test_an_error_gives_back_and_is_raised_at_the_end(spark, served, topic):
    def fail(messages, delivery):
        raise ValueError("no")

    with (
        consume(spark, served, topic, "s", fail, available_now=True, **EARLIEST) as consumption,
        pytest.raises(ValueError, match="no"),
    ):
        consumption.await_termination(WAIT)
    assert not consumption.is_active
    again = Collected()
    run_to_end(spark, served, topic, "s", again)
    again.assert_got(spark, *((number, 1) for number in range(100)))


def test_it_goes_on_until_stopped_and_what_was_handled_stays_acknowledged(spark, served, topic):
    function = Collected()
    with consume(spark, served, topic, "s", function, **EARLIEST) as consumption:
        assert function.arrived.wait(WAIT) and consumption.is_active
        with pytest.raises(ConsumerBusy):
            consume(spark, served, topic, "s", function)
    assert not consumption.is_active and consumption.exception() is None and consumption.await_termination(0)
    rest = Collected()
    run_to_end(spark, served, topic, "s", rest)
    both = Collected()
    both.tables = function.tables + rest.tables
    both.assert_got(spark, *((number, 0) for number in range(100)))


def test_a_function_may_stop_its_own_consumer(spark, served, topic):
    holder = {}
    started = threading.Event()

    def stop(messages, delivery):
        started.wait(WAIT)
        holder["consumption"].stop()

    holder["consumption"] = consume(spark, served, topic, "s", stop, **EARLIEST)
    started.set()
    assert holder["consumption"].await_termination(WAIT)


def test_on_error_stop_ends_at_the_first_error(spark, served, topic):
    calls = []

    def fail(messages, delivery):
        calls.append(delivery)
        raise KeyError("first")

    with (
        consume(spark, served, topic, "s", fail, on_error="stop", max_messages=10, **EARLIEST) as consumption,
        pytest.raises(KeyError, match="first"),
    ):
        consumption.await_termination(WAIT)
    assert len(calls) == 1


def test_into_delta_each_message_once(spark, served, topic, tmp_path):
    def payloads(messages):
        return messages.select(F.col("payload").cast("string").alias("payload"), "partition", "position")

    class Crash(Exception):
        pass

    def write_and_crash(sink):
        """The worst moment: the delivery is in the table and its acknowledgement was never sent."""

        def function(messages, delivery):
            sink(messages, delivery)
            raise Crash

        function.is_exactly_once, function.open = True, sink.open
        return function

    with consume(
        spark,
        served,
        topic,
        "s",
        write_and_crash(to_delta(tmp_path / "sink", transform=payloads)),
        max_messages=40,
        **EARLIEST,
    ) as consumption:
        with pytest.raises(Crash):
            consumption.await_termination(WAIT)
    assert 0 < spark.read.format("delta").load(str(tmp_path / "sink")).count() < 100
    run_to_end(spark, served, topic, "s", to_delta(tmp_path / "sink", transform=payloads), max_messages=40)
    written = spark.read.format("delta").load(str(tmp_path / "sink")).select("payload")
    assert_df_equality(
        written, spark.createDataFrame([(str(number),) for number in range(100)], written.schema), ignore_row_order=True
    )


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"subscription_type": "Sole"}, InvalidConfiguration),
        ({"initial_position": "Middle"}, InvalidConfiguration),
        ({"on_error": "ignore"}, InvalidConfiguration),
        ({"max_messages": 0}, InvalidConfiguration),
        ({"subscription": " "}, InvalidTopicName),
        ({"topic": "none", "create": False}, TopicNotFound),
    ],
)
def test_bad_options_are_named(spark, root, options, error):
    with pytest.raises(error):
        consume(spark, root, **{"topic": "t", "subscription": "s", "function": print, **options})
