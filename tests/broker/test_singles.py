"""What rounds read of messages that were sent one at a time: nothing where their commits say it, whatever a round asks
and however often; else each file once."""

import threading
import time
from collections import Counter
from contextlib import closing, suppress
from itertools import cycle

import pyarrow.parquet as pq
import pytest

import pulsar_spark as pulsar
from pulsar_spark.storage.delta.checkpoints import make_checkpoint
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import Topic, create_topic, prepare_root
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.singles import outgoing, send_singly

TYPES = {"Shared": pulsar.ConsumerType.Shared, "KeyShared": pulsar.ConsumerType.KeyShared}
HOUR = 3600
MESSAGES = 40


@pytest.fixture
def topic(tmp_path) -> Topic:
    layout = Layout(tmp_path / "root")
    prepare_root(layout)
    return create_topic(layout, "t")


@pytest.fixture
def opened(topic, monkeypatch) -> Counter:
    """How often the broker opened each file of the topic. The tests' client works on the main thread, and reads chunks
    ahead on one that has no name of ours."""
    found, init = Counter(), pq.ParquetFile.__init__

    def counted(self, source, *arguments, **options):
        is_client = threading.current_thread().name.startswith(("MainThread", "ThreadPoolExecutor"))
        if not is_client and str(source).startswith(str(topic.path)):
            found[str(source)] += 1
        return init(self, source, *arguments, **options)

    monkeypatch.setattr(pq.ParquetFile, "__init__", counted)
    return found


def subscribe(client: pulsar.Client, kind: str) -> list[pulsar.Consumer]:
    """Two consumers, so that keys decide who gets an entry."""
    return [client.subscribe("t", "s", TYPES[kind], receiver_queue_size=7) for _ in range(2)]


def receive(consumers: list[pulsar.Consumer], count: int) -> list[bytes]:
    """The next so many, of any of them."""
    found, deadline = [], time.monotonic() + 60
    for consumer in cycle(consumers):
        if len(found) == count or time.monotonic() > deadline:
            return found
        with suppress(pulsar.Timeout):
            message = consumer.receive(20)
            consumer.acknowledge(message)
            found.append(message.data())


def entries(kind: str) -> tuple[list[list], list[bytes], list[bytes]]:
    """What is sent, and the payloads that come at once and in an hour."""
    due_ms = int(time.time()) * 1000 + HOUR * 1000
    sent, now, later = [], [], []
    for number in range(MESSAGES):
        key, payload = None if kind == "delays" else f"key-{number % 17}", str(number).encode()
        is_late = kind in ("delays", "all") and number % 2 == 1
        sent.append([outgoing(payload, key, due_ms + number if is_late else None)])
        if kind == "batches":
            sent[-1] *= 3
        (later if is_late else now).extend(each.payload for each in sent[-1])
        if kind == "all" and number % 20 == 0:
            said = {"uuid": f"single-{number}", "num_chunks_from_msg": 3, "total_chunk_msg_size": 9}
            sent += [[outgoing(b"abc", key, chunk_id=chunk, **said)] for chunk in range(3)]
            now.append(b"abc" * 3)
    return sent, now, later


@pytest.mark.parametrize("kind", ["keys", "delays", "batches", "all"])
@pytest.mark.parametrize("subscription_type", TYPES)
def test_no_round_opens_a_file_of_what_was_sent_one_at_a_time(topic, opened, kind, subscription_type):
    """Nor does the one that numbers it, the delay index, or a broker that begins anew."""
    root = topic.path.parents[2]
    sent, now, later = entries(kind)
    with PlainBroker(root), closing(pulsar.Client(f"delta:{root}")) as client:
        subscribe(client, subscription_type)
    send_singly(topic, sent)
    found = []
    with PlainBroker(root), closing(pulsar.Client(f"delta:{root}")) as client:
        found += receive(subscribe(client, subscription_type), len(now) // 2)
    with PlainBroker(root) as broker, closing(pulsar.Client(f"delta:{root}")) as client:
        consumers = subscribe(client, subscription_type)
        found += receive(consumers, len(now) - len(found))
        broker.advance(2 * HOUR)
        found += receive(consumers, len(later))
    assert sorted(found) == sorted(now + later)
    assert opened == {}


@pytest.mark.parametrize("subscription_type,kind,most", [("KeyShared", "keys", 1), ("Shared", "delays", 2)])
def test_a_file_is_opened_once_where_the_log_says_nothing_any_more(topic, opened, subscription_type, kind, most):
    """And once by the delay index, which is loaded by itself."""
    root = topic.path.parents[2]
    sent, now, _ = entries(kind)
    with PlainBroker(root), closing(pulsar.Client(f"delta:{root}")) as client:
        consumers = subscribe(client, subscription_type)
        send_singly(topic, sent)
        receive(consumers, 1)
    make_checkpoint(topic.path)
    log = TableLog(topic.path)
    for version in range(1, log.latest()):
        log.file(version).unlink()
    opened.clear()
    with PlainBroker(root), closing(pulsar.Client(f"delta:{root}")) as client:
        assert len(receive(subscribe(client, subscription_type), len(now) - 1)) == len(now) - 1
    assert set(opened.values()) <= {*range(1, most + 1)}, opened.most_common(3)
    assert len(opened) > MESSAGES // 3
