"""The line to the broker: answers that do not come, leases that end, requests that share a commit."""

import sys
import threading

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.client.subscribing import reconnection
from pulsar_spark.errors import LogShortened
from pulsar_spark.link import inbox, outbox, request_writer
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.processes.presence import Presence
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.waiting import eventually, in_background, nothing_comes, receive_values, send

EARLIEST = dict(initial_position=pulsar.InitialPosition.Earliest)


def test_without_a_broker_subscribing_times_out_and_says_what_to_start(lonely_client, service_url):
    with pytest.raises(pulsar.Timeout, match="pulsar-spark broker --root") as raised:
        lonely_client.subscribe("t", "s")
    assert service_url.removeprefix("delta:") in str(raised.value)
    rows = TableLog(lonely_client._layout.broker_table("requests"))
    assert eventually(lambda: rows.latest() == 2)


def test_a_consumer_that_gave_up_is_not_left_behind(root_url, lonely_client):
    with pytest.raises(pulsar.Timeout):
        lonely_client.subscribe("t", "s")
    with PlainBroker(root_url) as broker:
        assert len(eventually(lambda: broker.asked("close"))) == 1
        lonely_client._timeout = 10
        lonely_client.subscribe("t", "s")


def test_a_consumer_whose_lease_ended_comes_back_by_itself(client, broker):
    producer = client.create_producer("t")
    for number in range(4):
        producer.send(f"m{number}".encode())
    consumer = client.subscribe("t", "s", **EARLIEST)
    messages = [consumer.receive(60_000) for _ in range(2)]
    broker.end_lease(consumer._consumer_id)
    assert eventually(lambda: len(broker.asked("subscribe")) == 2)
    assert receive_values(consumer, 4) == ["m0", "m1", "m2", "m3"]
    assert consumer.is_connected()
    consumer.acknowledge(messages[0])
    consumer.close()
    assert receive_values(client.subscribe("t", "s"), 3) == ["m1", "m2", "m3"]


def test_a_consumer_that_was_let_go_while_its_client_was_away_for_too_long_comes_back(client, broker, monkeypatch):
    """The round that said so is not in the log any more when the client reads on."""
    consumer = client.subscribe("t", "s", **EARLIEST)
    rounds, is_shortened = consumer._subscriptions[0]._channel._rounds, [True]
    commits = rounds.log.commits

    def commits_after(after: int, until: int | None = None):
        if is_shortened:
            is_shortened.clear()
            raise LogShortened("it begins later")
        return commits(after, until)

    with broker.paused():
        rounds.seen = 2**40
        broker.end_lease(consumer._consumer_id)
        eventually(lambda: rounds._bundle_log._seen == broker.rounds.bundle.version)
        monkeypatch.setattr(rounds.log, "commits", commits_after)
        rounds.seen = 0
    send(client, "t", "m")
    assert receive_values(consumer, 1) == ["m"]


@pytest.mark.parametrize("consumer_type", ["Exclusive", "Shared", "Failover", "KeyShared"])
def test_a_consumer_of_a_topic_that_is_unloaded_comes_back_by_itself(client, broker, service_url, consumer_type):
    producer = client.create_producer("t")
    for number in range(4):
        producer.send(f"m{number}".encode(), partition_key="k")
    consumer = client.subscribe("t", "s", consumer_type=getattr(pulsar.ConsumerType, consumer_type), **EARLIEST)
    messages = [consumer.receive(60_000) for _ in range(4)]
    consumer.acknowledge(messages[1])
    eventually(lambda: broker.asked("ack"))
    Admin(service_url, timeout_seconds=10).unload("t")
    again = [consumer.receive(60_000) for _ in range(3)]
    assert [(each.data(), each.redelivery_count()) for each in again] == [(b"m0", 0), (b"m2", 0), (b"m3", 0)]
    consumer.acknowledge(messages[2])
    producer.send(b"new", partition_key="k")
    assert receive_values(consumer, 1) == ["new"]


def test_a_refused_return_is_tried_again(client, other_client, broker, monkeypatch):
    monkeypatch.setattr(reconnection, "RECONNECT_SECONDS", 0.02)
    consumer = client.subscribe("t", "s")
    eventually(lambda: broker.asked("flow"))
    with broker.paused():
        other = in_background(broker, other_client.subscribe, "t", "s")
        broker.end_lease(consumer._consumer_id)
    other = other.result(60)
    eventually(lambda: len(broker.asked("subscribe")) >= 4)
    client.create_producer("t").send(b"x")
    assert nothing_comes(consumer) and other.receive(60_000).data() == b"x"
    other.close()
    assert consumer.receive(60_000).data() == b"x"


@pytest.mark.parametrize(
    "delete, text",
    [
        (lambda admin: admin.unsubscribe("t", "s", force=True), "unsubscribed"),
        (lambda admin: admin.delete_topic("t", force=True), "deleted"),
    ],
)
def test_a_consumer_whose_subscription_is_gone_is_told(client, broker, service_url, delete, text):
    consumer = client.subscribe("t", "s")
    delete(Admin(service_url))
    with pytest.raises(pulsar.AlreadyClosed, match=text):
        consumer.receive(60_000)
    assert len(broker.asked("subscribe")) == 1


def test_a_delivery_that_crossed_a_redelivery_request_is_dropped(client, broker):
    producer = client.create_producer("t")
    consumer = client.subscribe("t", "s", receiver_queue_size=10, **EARLIEST)
    with broker.paused():
        producer.send(b"m0")
    eventually(lambda: consumer._receiver._arrived)
    subscription = consumer._subscriptions[0]
    stale = dict(first=0, last=0, batch_size=1, redelivery_count=0, ack_set=None, entries=None)
    stale |= {"positions": None, "chunks": None, "delivery_round": 0}
    consumer.redeliver_unacknowledged_messages()
    subscription.on_delivery(stale, 0)  # it was asked for, whether or not that is written
    eventually(lambda: subscription._stale.version < sys.maxsize)
    subscription.on_delivery(stale, subscription._stale.version - 1)
    message = consumer.receive(60_000)
    assert (message.data(), message.redelivery_count()) == (b"m0", 1) and nothing_comes(consumer)


def test_requests_share_commits(client, broker):
    producer = client.create_producer("t", batching_enabled=False, max_pending_messages=0)
    for _ in range(500):
        producer.send_async(b"x", None)
    producer.flush()
    consumer = client.subscribe("t", "s", receiver_queue_size=20, **EARLIEST)
    for _ in range(500):
        consumer.acknowledge(consumer.receive(60_000))
    consumer.close()
    assert len(broker.asked("flow")) == 51
    log = TableLog(client._layout.broker_table("requests"))
    assert log.latest() < len(broker.asked("flow")) + len(broker.asked("ack"))


def test_a_flow_goes_at_once_with_the_acknowledgements_that_wait(broker, service_url, monkeypatch):
    """Nobody waits for acknowledgements, but without permits the queue runs empty."""
    client = pulsar.Client(service_url, lease_seconds=3600)
    producer = client.create_producer("t")
    consumer = client.subscribe("t", "s", receiver_queue_size=10, ack_group_time_ms=3_600_000, **EARLIEST)
    for _ in range(10):
        producer.send(b"x")
    eventually(lambda: consumer._subscriptions[0]._queued == 10)
    monkeypatch.setattr(outbox, "SPACING", 3600.0)
    for _ in range(5):
        consumer.acknowledge(consumer.receive(60_000))
    assert eventually(lambda: len(broker.asked("flow")) == 2)
    flow, (ack,) = broker.asked("flow")[1], broker.asked("ack")
    assert (flow.permits, ack.first, ack.last in (3, 4)) == (5, 0, True)
    assert ack.requests_version == flow.requests_version
    client.shutdown()


def test_a_request_commit_whose_answer_is_lost_counts_once(client, broker, monkeypatch):
    monkeypatch.setattr(request_writer, "RETRY_SECONDS", 0.01)
    consumer = client.subscribe("t", "s")
    append, failures = AppendTable.append, iter([True])

    def append_and_fail(self, rows, *more):
        version = append(self, rows, *more)
        if self is client._channel._first._requests._table._table._table and next(failures, False):
            raise OSError("connection lost")
        return version

    monkeypatch.setattr(AppendTable, "append", append_and_fail)
    consumer.redeliver_unacknowledged_messages()
    consumer.close()
    assert len(broker.asked("redeliver_all")) == 1 and len(broker.asked("close")) == 1


def _kept(broker, service_url, lease_seconds: float, signs: int) -> tuple[int, int]:
    """Versions of requests and of rounds that an idle consumer leaves behind over so many signs of life."""
    client = pulsar.Client(service_url, lease_seconds=lease_seconds)
    client.subscribe("t", "s")
    eventually(lambda: broker.asked("flow"))
    (consumer_id,) = broker.cursor("t", "s").consumers
    bundle = broker.rounds.bundle
    before, ends = (broker.requests_version(), bundle.version), set()

    def heard() -> bool:
        ends.add(bundle.leases[client._client_id])
        return len(ends) > signs

    eventually(heard)
    assert list(broker.cursor("t", "s").consumers) == [consumer_id]
    after = broker.requests_version(), bundle.version
    client.shutdown()
    return after[0] - before[0], after[1] - before[1]


@pytest.mark.local_disk
def test_a_sign_of_life_costs_no_commit(broker, service_url):
    files = len(list(broker.layout.root.rglob("*")))
    assert _kept(broker, service_url, 0.6, 5) == (0, 0)
    assert len(list(broker.layout.root.rglob("*"))) - files < 20, "the topic, and what subscribing and closing ask for"
    assert [request.properties["lease_ms"] for request in broker.asked("subscribe")] == ["600"]


def test_where_nobody_sees_it_a_sign_of_life_is_a_request(broker, service_url, monkeypatch):
    monkeypatch.setattr(Presence, "touch", lambda self: False)
    requests, rounds = _kept(broker, service_url, 0.15, 4)
    assert requests >= 3 and rounds == 0 and len(broker.asked("keep_alive")) >= 3


def test_a_round_that_concerns_others_wakes_nobody_and_is_not_read(
    only_in_files, client, other_client, broker, monkeypatch
):
    read, line = inbox.read_added, other_client._channel._first
    readers, dispatched, receive = [], [], line._inbox.receive

    def counting(path, commit, *columns):
        readers.append(threading.current_thread().name)
        return read(path, commit, *columns)

    waiting = other_client.subscribe("t", "other")
    eventually(lambda: broker.asked("flow") and line._rounds.seen == line._rounds.log.latest())
    eventually(lambda: not (line._rounds.has_news or line._rounds._is_behind))
    before = line._rounds.seen
    monkeypatch.setattr(inbox, "read_added", counting)
    monkeypatch.setattr(
        line._inbox, "receive", lambda *given: dispatched.append(given[0].version > before) or receive(*given)
    )
    consumer = client.subscribe("u", "s")
    client.create_producer("u").send(b"x")
    assert receive_values(consumer, 1) == ["x"]
    eventually(lambda: line._rounds.seen == line._rounds.log.latest())
    assert readers and line._thread.name not in readers and not any(dispatched)
    other_client.create_producer("t").send(b"y")
    assert receive_values(waiting, 1) == ["y"]
    assert line._thread.name in readers


def test_closing_the_client_closes_everything(client, broker):
    producer = client.create_producer("t")
    producer.send(b"m0"), producer.send(b"m1")
    consumer, reader = client.subscribe("t", "s", **EARLIEST), client.create_reader("t", pulsar.MessageId.earliest)
    consumer.acknowledge(consumer.receive(60_000))
    client.close()
    for call in (
        lambda: producer.send(b"x"),
        consumer.receive,
        reader.read_next,
        client.close,
        lambda: client.subscribe("t", "s"),
        lambda: client.create_producer("t"),
        lambda: client.create_reader("t", pulsar.MessageId.earliest),
        lambda: client.get_topic_partitions("t"),
    ):
        with pytest.raises(pulsar.AlreadyClosed):
            call()
    other = pulsar.Client(f"delta:{client._layout.root}")
    assert receive_values(other.subscribe("t", "s"), 1) == ["m1"]
    other.close()


@pytest.mark.local_disk
def test_a_broken_line_is_told_to_everybody(client, broker):
    consumer = client.subscribe("t", "s")
    with broker.paused():
        log = TableLog(client._layout.broker_table("cursor_ledger"))
        (log.folder / "broken").write_text("{not json")
        (log.folder / "broken").rename(log.folder / f"{log.latest() + 1:020d}.json")
        with pytest.raises(pulsar.CorruptState, match="doctor"):
            consumer.receive(60_000)
        with pytest.raises(pulsar.CorruptState):
            client.subscribe("u", "s")
        (log.folder / f"{log.latest():020d}.json").unlink()
