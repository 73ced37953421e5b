"""A picture that shows another backlog, consumer, owner or event than the root has is seen here."""

import matplotlib
import pytest

import pulsar_spark as pulsar
from pulsar_spark import plots
from pulsar_spark.testing.plain_broker import PlainBroker

matplotlib.use("Agg")
TOPIC = "orders"


@pytest.fixture(scope="module")
def drawn(spark, tmp_path_factory):
    """A root in which two consumers shared ten messages by key, one message died, and one waits until 2040."""
    root = tmp_path_factory.mktemp("plots") / "root"
    with PlainBroker(root):
        client = pulsar.Client(f"delta:{root}")
        options = {
            "consumer_type": pulsar.ConsumerType.KeyShared,
            "negative_ack_redelivery_delay_ms": 100,
            "dead_letter_policy": pulsar.ConsumerDeadLetterPolicy(1),
        }
        consumers = [client.subscribe(TOPIC, "billing", consumer_name=name, **options) for name in ("anna", "ben")]
        producer = client.create_producer(TOPIC)
        for number in range(10):
            producer.send(b"%d" % number, partition_key=f"k{number % 7}")
        producer.send(b"later", deliver_at=2_208_988_800_000)
        handled = 0
        while handled < 11:  # ten, one of them twice
            for consumer in consumers:
                try:
                    message = consumer.receive(200)
                except pulsar.Timeout:
                    continue
                handled += 1
                if message.data() == b"0":
                    consumer.negative_acknowledge(message)
                else:
                    consumer.acknowledge(message)
        letters = client.create_reader(f"{TOPIC}-billing-DLQ", pulsar.MessageId.earliest)
        assert letters.read_next(60_000).data() == b"0"
        client.close()
    return root


def test_backlog_ends_with_what_waits(spark, drawn):
    (line,) = plots.backlog(spark, drawn, TOPIC).lines
    assert line.get_label() == "billing" and line.get_ydata()[-1] == 1 and max(line.get_ydata()) <= 11


def test_rates_add_up(spark, drawn):
    lines = {line.get_label(): sum(line.get_ydata()) for line in plots.rates(spark, drawn, TOPIC, "billing").lines}
    assert set(lines) == {"published", "delivered", "acknowledged"} and lines["acknowledged"] <= 10


def test_rounds_are_counted(spark, drawn):
    (line,) = plots.rounds(spark, drawn).lines
    assert sum(line.get_ydata()) > 3


def test_who_got_what_has_each_consumer(spark, drawn):
    axes = plots.who_got_what(spark, drawn, TOPIC, "billing")
    assert [label.get_text() for label in axes.get_yticklabels()] == ["anna", "ben"]
    assert {each.get_hatch() for each in axes.collections} == {None, "//"}, "the message that died came twice"


def test_hash_owners_share_all_hashes(spark, drawn):
    axes = plots.hash_owners(spark, drawn, TOPIC, "billing")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["anna", "ben"]
    assert axes.get_ylim()[1] == 2**31


def test_due_times_count_what_waits(spark, drawn):
    axes = plots.due_times(spark, drawn, TOPIC, bins=5)
    assert sum(bar.get_height() for bar in axes.patches) == 1 and axes.get_title().endswith(": 1")


def test_the_history_of_the_message_that_died(spark, drawn):
    axes = plots.message_history(spark, drawn, TOPIC, 0)
    events = {label for label in axes.get_legend_handles_labels()[1]}
    assert {"delivered", "negatively_acknowledged", "dead_lettered"} <= events
