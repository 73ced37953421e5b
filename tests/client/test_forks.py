"""After a fork: an error that names ``spawn``, never a panic and never a wait."""

import pytest

from tests.client.processes import run

SOURCE = """
client = pulsar.Client(url)
producer = client.create_producer("t")
producer.send(b"x")
consumer = {consumer}
reader = client.create_reader("t", pulsar.MessageId.earliest)
message = reader.read_next(5000)
pid = os.fork()
if pid == 0:
    try:
        {call}
        print("it worked")
    except pulsar.OperationNotSupported as error:
        print("spawn" in str(error) and str(os.getpid()) in str(error))
    sys.exit()
print(os.waitpid(pid, 0)[1])
client.close()
"""


@pytest.mark.parametrize(
    "call",
    [
        "producer.send(b'y')",
        "producer.send_async(b'y', None)",
        "producer.flush()",
        "producer.close()",
        "client.create_producer('u')",
        "client.create_reader('t', pulsar.MessageId.earliest)",
        "client.subscribe('t', 's')",
        "client.get_topic_partitions('t')",
        "client.close()",
        "client.shutdown()",
        "reader.read_next(1000)",
        "reader.close()",
        "pulsar.Client(url)",
        "pulsar.Client(url + '2')",
        "from pulsar_spark.admin import Admin; Admin(url).create_topic('u')",
        "from pulsar_spark.admin import Admin; Admin(url).subscriptions('t')",
    ],
)
def test_a_forked_process_is_told_to_spawn(service_url, call):
    assert run(SOURCE.format(consumer=None, call=call), service_url) == (0, ["True", "0"], "")


@pytest.mark.parametrize(
    "call",
    [
        "receive()",
        "receive(1000)",
        "batch_receive()",
        "acknowledge(message)",
        "negative_acknowledge(message)",
        "acknowledge_cumulative(message)",
        "seek(0)",
        "unsubscribe()",
        "close()",
        "redeliver_unacknowledged_messages()",
    ],
)
def test_a_forked_consumer_is_told_to_spawn(broker, service_url, call):
    assert run(SOURCE.format(consumer="client.subscribe('t', 's')", call=f"consumer.{call}"), service_url) == (
        0,
        ["True", "0"],
        "",
    )


def test_a_process_that_only_imported_the_package_may_fork(service_url):
    source = """
    pid = os.fork()
    client = pulsar.Client(url)
    client.create_producer("child" if pid == 0 else "parent").send(b"x")
    client.close()
    if pid:
        print(os.waitpid(pid, 0)[1])
    """
    assert run(source, service_url) == (0, ["0"], "")
