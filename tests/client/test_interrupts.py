"""Ctrl-C while a call waits: ``pulsar.Interrupted``, whichever thread waits, as in the examples of the ``pulsar``
package."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.link import interrupts
from pulsar_spark.link.request_writer import RequestWriter
from tests.support.processes import Program

SETUP = """
client = pulsar.Client(url, operation_timeout_seconds=50)
def subscribe(**options):
    return client.subscribe("t", "s", **options)
"""

CALLS = {
    "receive": "consumer = subscribe()\nwaiting()\nconsumer.receive()",
    "receive with a timeout": "consumer = subscribe()\nwaiting()\nconsumer.receive(50_000)",
    "receive without a queue": "consumer = subscribe(receiver_queue_size=0)\nwaiting()\nconsumer.receive()",
    "batch_receive": (
        "consumer = subscribe(batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(9, -1, 50_000))\n"
        "waiting()\nconsumer.batch_receive()"
    ),
    "read_next": "reader = client.create_reader('t', pulsar.MessageId.earliest)\nwaiting()\nreader.read_next()",
    "read_next with a timeout": (
        "reader = client.create_reader('t', pulsar.MessageId.earliest)\nwaiting()\nreader.read_next(50_000)"
    ),
}
WITHOUT_A_BROKER = {
    "subscribe": "waiting()\nsubscribe()",
    "an administrator's request": (
        "from pulsar_spark.admin import Admin\nclient.create_producer('t')\nwaiting()\n"
        "Admin(url).create_subscription('t', 's')"
    ),
    "send": "producer = client.create_producer('t')\nhold('t')\nwaiting()\nproducer.send(b'x')",
    "flush": (
        "producer = client.create_producer('t')\nhold('t')\nproducer.send_async(b'x', None)\n"
        "waiting()\nproducer.flush()"
    ),
    "a full queue": (
        "producer = client.create_producer('t', max_pending_messages=1, block_if_queue_full=True)\nhold('t')\n"
        "producer.send_async(b'x', None)\nwaiting()\nproducer.send_async(b'y', None)"
    ),
    "close": (
        "producer = client.create_producer('t')\nhold('t')\nproducer.send_async(b'x', "
        "None)\nwaiting()\nproducer.close()"
    ),
}
HOLD = """
from pulsar_spark.storage.topics.topics import read_topic
def hold(topic):
    # Whoever publishes waits.
    def never(self, rows):
        while True:
            time.sleep(0.1)
    from pulsar_spark.storage.delta.tables import AppendTable
    AppendTable.append = never
"""


def program(call: str, *, in_a_thread: bool) -> str:
    body = "\n".join("        " + line for line in call.splitlines())
    source = (
        SETUP
        + HOLD
        + f"""
def waiting():
    print("waiting")
def work():
    try:
{body}
        print("went on")
    except pulsar.Interrupted as interrupted:
        print("Interrupted" if isinstance(interrupted, (pulsar.PulsarException, KeyboardInterrupt)) else "?")
"""
    )
    if not in_a_thread:
        return source + "work()\nprint('ended')\nos._exit(0)"
    return (
        source
        + """
done = threading.Event()
threading.Thread(target=lambda: (work(), done.set())).start()
try:
    done.wait()
except KeyboardInterrupt:
    print("main")
done.wait(50)  # an interrupted join() takes the thread for ended, in Python 3.11
print("ended")
os._exit(0)
"""
    )


@pytest.mark.parametrize("call", list(CALLS | WITHOUT_A_BROKER))
@pytest.mark.parametrize("in_a_thread", [False, True], ids=["main thread", "other thread"])
def test_ctrl_c_in_a_blocking_call_raises_interrupted(request, service_url, call, in_a_thread):
    if call in CALLS:
        request.getfixturevalue("broker")
    with Program(program((CALLS | WITHOUT_A_BROKER)[call], in_a_thread=in_a_thread), service_url) as running:
        running.say("waiting")
        running.wait_in_a_call()
        running.interrupt()
        code, lines, error = running.end()
    assert sorted(lines) == sorted(["waiting", "Interrupted", "ended"] + (["main"] if in_a_thread else []))
    said = [line for line in error.splitlines() if not line.startswith("no broker serves root")]
    assert (code, said) == (0, [])


def test_ctrl_c_while_an_administrator_s_request_is_written_interrupts_it(client, service_url, monkeypatch):
    client.create_producer("t")
    write = RequestWriter.write

    def write_and_press(self, rows):
        monkeypatch.setattr(interrupts, "_count", interrupts.count() + 1)
        return write(self, rows)

    monkeypatch.setattr(RequestWriter, "write", write_and_press)
    with ThreadPoolExecutor(1) as threads, pytest.raises(pulsar.Interrupted):
        threads.submit(Admin(service_url, timeout_seconds=60).create_subscription, "t", "s").result()


def test_the_client_goes_on_after_an_interrupt(broker, service_url):
    source = """
    client = pulsar.Client(url)
    producer, consumer = client.create_producer("t"), client.subscribe("t", "s")
    print("waiting")
    try:
        consumer.receive()
    except pulsar.Interrupted:
        producer.send(b"after")
        print(consumer.receive(60_000).data().decode())
    client.close()
    print([thread.name for thread in threading.enumerate()])
    """
    with Program(source, service_url) as running:
        running.say("waiting")
        running.wait_in_a_call()
        running.interrupt()
        assert running.end() == (0, ["waiting", "after", "['MainThread']"], "")


def test_a_program_that_does_not_catch_it_ends_with_one_traceback(broker, service_url):
    source = """
    client = pulsar.Client(url)
    consumer = client.subscribe("t", "s")
    print("waiting")
    consumer.receive()
    """
    with Program(source, service_url) as running:
        running.say("waiting")
        running.wait_in_a_call()
        running.interrupt()
        code, _, error = running.end()
    assert code == 1
    assert error.count("Traceback") == 1 and "Interrupted" in error.splitlines()[-1]


def test_a_client_made_by_the_waiting_thread_does_not_keep_the_process(broker, service_url):
    source = """
    def work():
        client = pulsar.Client(url)
        consumer = client.subscribe("t", "s")
        print("waiting")
        try:
            consumer.receive()
        except pulsar.Interrupted:
            print("Interrupted")
            client.close()
    threading.Thread(target=work).start()
    threading.Event().wait()
    """
    with Program(source, service_url) as running:
        running.say("waiting")
        running.interrupt()
        code, lines, _ = running.end()
    assert (code, lines) == (-2, ["waiting", "Interrupted"])


def test_a_thread_between_two_receives_is_told_by_the_next(broker, service_url):
    source = """
    client = pulsar.Client(url)
    producer, consumer = client.create_producer("t"), client.subscribe("t", "s")
    was_pressed, done = threading.Event(), threading.Event()
    def work():
        consumer.receive()
        print("working")
        was_pressed.wait()
        try:
            consumer.receive()
        except pulsar.Interrupted:
            print("Interrupted")
        done.set()
    threading.Thread(target=work).start()
    producer.send(b"x")
    try:
        done.wait()
    except KeyboardInterrupt:
        was_pressed.set()
    done.wait(50)
    client.close()
    """
    with Program(source, service_url) as running:
        running.say("working")
        running.interrupt()
        assert running.end() == (0, ["working", "Interrupted"], "")


def test_handlers_of_the_application_stay(broker, service_url):
    source = """
    pressed = []
    def handler(*_):
        pressed.append(1)
    signal.signal(signal.SIGINT, handler)
    client = pulsar.Client(url)
    consumer = client.subscribe("t", "s")
    assert signal.getsignal(signal.SIGINT) is handler
    print("waiting")
    try:
        consumer.receive(2000)
    except pulsar.Timeout:
        print("Timeout", len(pressed))
    client.close()
    assert signal.getsignal(signal.SIGINT) is handler
    """
    with Program(source, service_url) as running:
        running.say("waiting")
        running.interrupt()
        assert running.end() == (0, ["waiting", "Timeout 1"], "")


def test_listeners_go_on(broker, service_url):
    source = """
    client = pulsar.Client(url)
    producer, received = client.create_producer("t"), threading.Event()
    def listen(consumer, message):
        print(message.data().decode())
        received.set()
    client.subscribe("t", "s", message_listener=listen)
    try:
        print("waiting")
        time.sleep(60)
    except KeyboardInterrupt:
        producer.send(b"after")
    received.wait(50)
    client.close()
    """
    with Program(source, service_url) as running:
        running.say("waiting")
        running.interrupt()
        assert running.end() == (0, ["waiting", "after"], "")


def test_the_default_handler_is_back_when_all_clients_are_closed(service_url):
    import signal

    before = signal.getsignal(signal.SIGINT)
    first, second = pulsar.Client(service_url), pulsar.Client(service_url)
    first.close()
    second.close()
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_while_a_delivery_is_read_loses_nothing_of_it(client, broker, monkeypatch, only_in_files):
    producer = client.create_producer("t")
    for number in range(5):
        producer.send(f"m{number}".encode())
    consumer = client.subscribe("t", "s", initial_position=pulsar.InitialPosition.Earliest)
    (subscription,) = consumer._subscriptions
    read = subscription.read

    def interrupted_at_the_third(delivery):
        for number, message in enumerate(read(delivery)):
            if number == 2:
                monkeypatch.undo()
                raise KeyboardInterrupt
            yield message

    monkeypatch.setattr(subscription, "read", interrupted_at_the_third)
    values = []
    for _ in range(6):
        try:
            values.append(consumer.receive(60_000).data().decode())
        except pulsar.Interrupted:
            values.append("Interrupted")
    assert values == ["m0", "m1", "Interrupted", "m2", "m3", "m4"]
