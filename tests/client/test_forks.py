"""After a fork: an error that names ``spawn``, never a panic and never a wait."""

import contextlib
import textwrap

import pytest

import pulsar_spark as pulsar
from tests.support.processes import run
from tests.support.waiting import send

SOURCE = """
from pulsar_spark.admin import Admin
client = pulsar.Client(url)
producer = client.create_producer("t")
producer.send(b"x")
consumer = {consumer}
reader = client.create_reader("t", pulsar.MessageId.earliest)
message = reader.read_next(60_000)
for name, call in [{calls}]:
    pid = os.fork()
    if pid == 0:
        try:
            call()
            print(name, "worked", flush=True)
        except pulsar.OperationNotSupported as error:
            print(name, "spawn" in str(error) and str(os.getpid()) in str(error), flush=True)
        sys.exit()
    print(name, os.waitpid(pid, 0)[1], flush=True)
client.close()
"""


def what_forks_are_told(service_url: str, calls: list[str], consumer: str) -> tuple[int, list[str], str]:
    """Each call in a fork of its own of one program."""
    return run(
        SOURCE.format(consumer=consumer, calls=", ".join(f"({call!r}, lambda: {call})" for call in calls)), service_url
    )


def expected(calls: list[str]) -> tuple[int, list[str], str]:
    return 0, [f"{call} {said}" for call in calls for said in (True, 0)], ""


def test_a_forked_process_is_told_to_spawn(service_url):
    calls = [
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
        "Admin(url).create_topic('u')",
        "Admin(url).subscriptions('t')",
    ]
    assert what_forks_are_told(service_url, calls, "None") == expected(calls)


def test_a_forked_consumer_is_told_to_spawn(broker, service_url):
    calls = [
        f"consumer.{call}"
        for call in (
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
        )
    ]
    assert what_forks_are_told(service_url, calls, "client.subscribe('t', 's')") == expected(calls)


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


CHILD = """
client = pulsar.Client(url, operation_timeout_seconds=20)
client.create_producer("old").send(b"of the child")
consumer = client.subscribe("old", "child", initial_position=pulsar.InitialPosition.Earliest)
print(consumer.receive(20_000).data() in (b"x", b"of the child"), flush=True)
client.close()
"""
FORK = """
pid = os.fork()
if pid == 0:
    try:
{child}
    except pulsar.OperationNotSupported as error:
        print("post_fork hook" in str(error) and "clients and Admin do not work" in str(error), flush=True)
    os._exit(0)
print(os.waitpid(pid, 0)[1])
os._exit(0)
"""


def of_a_child(service_url: str, parent: str) -> tuple[int, list[str], str]:
    """What a client says that a child makes after its parent did something."""
    return run(parent + FORK.format(child=textwrap.indent(CHILD, " " * 8)), service_url)


@pytest.mark.parametrize(
    "parent",
    [
        "client = pulsar.Client(url)",
        "pulsar.Client(url).close()",
        "client = pulsar.Client(url)\nproducer = client.create_producer('old')\n"
        "for _ in range(30): producer.send_async(b'x', None)\n",
    ],
    ids=["opened", "closed", "sending"],
)
def test_a_child_has_a_client_of_its_own_where_the_parent_only_sent(broker, service_url, parent):
    with contextlib.closing(pulsar.Client(service_url)) as other:
        send(other, "old", "x")
    assert of_a_child(service_url, parent) == (0, ["True", "0"], "")


@pytest.mark.parametrize(
    "parent",
    [
        "client = pulsar.Client(url)\nclient.create_producer('new')",
        "client = pulsar.Client(url)\nclient.create_reader('old', pulsar.MessageId.earliest).read_next(20_000)",
    ],
    ids=["made a topic", "read"],
)
def test_a_child_is_told_what_its_parent_did(broker, service_url, parent):
    with contextlib.closing(pulsar.Client(service_url)) as other:
        send(other, "old", "x")
    assert of_a_child(service_url, parent + "\n") == (0, ["True", "0"], "")
