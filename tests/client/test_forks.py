"""After a fork: an error that names ``spawn``, never a panic and never a wait."""

from tests.client.processes import run

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
