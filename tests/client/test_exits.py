"""How programs that use the client end: by themselves, by a signal, in the middle of something; never with a traceback
of ours, never hanging."""

import os
import signal

import pytest

from tests.support.processes import Program, run

USE = """
client = pulsar.Client(url, operation_timeout_seconds=20)
producer = client.create_producer("t")
consumer = client.subscribe("t", "s", initial_position=pulsar.InitialPosition.Earliest)
listening = client.subscribe("t", "l", message_listener=lambda consumer, message: None)
reader = client.create_reader("t", pulsar.MessageId.earliest, reader_listener=lambda reader, message: None)
for number in range(20):
    producer.send_async(b"x", None)
producer.flush()
"""


@pytest.mark.parametrize(
    "call",
    [
        "consumer.receive()",
        "consumer.receive(50)",
        "consumer.batch_receive()",
        "reading.read_next()",
        "consumer.acknowledge(consumer.receive())",
        "producer.send(b'x')",
        "client.get_topic_partitions('t')",
    ],
)
def test_a_daemon_thread_in_a_call_at_the_end_leaves_no_traceback(broker, service_url, call):
    """The program ends without closing anything: whoever is still in a call, or makes another one, is not told."""
    source = (
        USE
        + f"""
reading = client.create_reader("t", pulsar.MessageId.latest)
begun = threading.Event()
def work():
    while True:
        try:
            begun.set()
            {call}
        except pulsar.Timeout:
            pass
threading.Thread(target=work, daemon=True).start()
begun.wait()
"""
    )
    assert run(source, service_url) == (0, [], "")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL])
def test_a_signal_to_the_process_group_leaves_no_traceback_of_ours(broker, service_url, how):
    source = (
        USE
        + """
try:
    threading.Thread(target=lambda: [consumer.receive() for _ in range(1000)], daemon=True).start()
    print("runs")
    time.sleep(100)
except KeyboardInterrupt:
    sys.exit(130)
"""
    )
    with Program(source + "\n", service_url) as running:
        running.say("runs")
        os.killpg(running.process.pid, how)
        code, lines, error = running.end()
    assert code == (130 if how == signal.SIGINT else -how)
    assert lines == ["runs"] and (how == signal.SIGINT or error == "")
    assert "pulsar-spark" not in error


def test_ctrl_c_with_a_thread_of_the_applications_that_catches_it(broker, service_url):
    source = (
        USE
        + """
done = threading.Event()
def work():
    try:
        while True:
            consumer.acknowledge(consumer.receive())
    except pulsar.Interrupted:
        client.close()
        done.set()
threading.Thread(target=work).start()
try:
    print("runs")
    done.wait()
except KeyboardInterrupt:
    done.wait(60)
    print("closed", done.is_set())
"""
    )
    with Program(source + "\n", service_url) as running:
        running.say("runs")
        running.interrupt()
        assert running.end() == (0, ["runs", "closed True"], "")


@pytest.mark.parametrize(
    "handler", ["sys.exit(0)", "client.close() or sys.exit(0)", "client.shutdown() or sys.exit(0)"]
)
def test_a_handler_of_sigterm_may_close_and_exit(broker, service_url, handler):
    source = (
        USE
        + f"""
signal.signal(signal.SIGTERM, lambda *_: {handler})
print("runs")
while True:
    consumer.acknowledge(consumer.receive())
"""
    )
    with Program(source + "\n", service_url) as running:
        running.say("runs")
        running.process.terminate()
        assert running.end() == (0, ["runs"], "")


@pytest.mark.parametrize(
    "end",
    [
        "",
        "client.close()",
        "client.shutdown()",
        "consumer.close(); producer.close()",
        "sys.exit(3)",
        "1 / 0",
        "del client, producer, consumer, reader",
        "threading.Thread(target=client.close).start()",
    ],
)
def test_a_program_ends_when_its_last_line_is_done(broker, service_url, end):
    code, lines, error = run(USE + f"print('ends')\n{end}\n", service_url)
    assert (code, lines) == ({"sys.exit(3)": 3, "1 / 0": 1}.get(end, 0), ["ends"])
    assert error == "" or (end == "1 / 0" and error.count("Traceback") == 1)


@pytest.mark.parametrize("end", ["", "client.close()", "client.shutdown()"])
def test_a_program_without_a_broker_ends_too(service_url, end):
    source = f"""
    import logging
    logging.getLogger("pulsar_spark").addHandler(logging.NullHandler())
    client = pulsar.Client(url, operation_timeout_seconds=1)
    client.create_producer("t").send_async(b"x", None)
    try:
        client.subscribe("t", "s")
    except pulsar.Timeout:
        print("Timeout")
    {end or "pass"}
    """
    assert run(source, service_url) == (0, ["Timeout"], "")


def test_what_is_pending_at_the_end_is_published(broker, service_url):
    source = """
    client = pulsar.Client(url)
    producer = client.create_producer("t", batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for number in range(50):
        producer.send_async(b"%d" % number, None)
    """
    assert run(source, service_url) == (0, [], "")
    source = """
    client = pulsar.Client(url)
    reader = client.create_reader("t", pulsar.MessageId.earliest)
    print([int(reader.read_next(60_000).data()) for _ in range(50)] == list(range(50)))
    """
    assert run(source, service_url) == (0, ["True"], "")


def test_what_is_acknowledged_in_the_last_line_is_acknowledged(broker, service_url, client):
    producer = client.create_producer("t", batching_enabled=True)
    for _ in range(50):
        producer.send_async(b"x", None)
    producer.flush()
    source = """
    client = pulsar.Client(url)
    consumer = client.subscribe("t", "s", initial_position=pulsar.InitialPosition.Earliest)
    for message in [consumer.receive(60_000) for _ in range(50)]:
        consumer.acknowledge(message)
    """
    assert run(source, service_url) == (0, [], "")
    consumer = client.subscribe("t", "s")
    producer.send(b"the next")
    assert consumer.receive(60_000).data() == b"the next"
