"""A disk that is full or read-only for a while: the broker says so, waits, and goes on as if nothing had been."""

import logging
import os
from collections import Counter

import pytest

from pulsar_spark.broker.delays import delay_head, delay_upkeep
from pulsar_spark.broker.runner import Broker
from pulsar_spark.broker.service import backoff
from pulsar_spark.errors import BrokerFenced
from pulsar_spark.protocol.redelivery.letters import dead_letter_topic
from pulsar_spark.protocol.redelivery.redelivery import MultiplierRedeliveryBackoff
from pulsar_spark.storage.clock import now_micros
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.delay_index.delay_segments import Places
from pulsar_spark.storage.delay_index.delay_table import DelayTable
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import dataset_of
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledgers import read_ledgers, runs_of
from pulsar_spark.storage.topics.topics import create_topic, prepare_root, read_topic
from pulsar_spark.table_specs import MESSAGES, REQUESTS
from pulsar_spark.testing.plain_broker import BATCH_THREAD, PlainBroker
from tests.support.faults import FULL, READ_ONLY, faults
from tests.support.requests import On
from tests.support.waiting import eventually

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)
DEAD = dead_letter_topic(TOPIC, "s")
WRITES, SECOND = 64, 1_000_000
EVERY = int(os.environ.get("PULSAR_SPARK_FAULTS_EVERY", "5"))


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(backoff, "PAUSES", MultiplierRedeliveryBackoff(min_delay_ms=2, max_delay_ms=10))


def publish(layout: Layout, number: int, entries: int, **columns) -> None:
    same = dict(batch_size=1, partition=-1, payload=b"x", publish_time=number, **columns)
    rows = [dict(publish_id=f"{number:032x}", entry_id=entry, **same) for entry in range(entries)]
    AppendTable(layout.topic(read_topic(layout, TOPIC).name)).append(MESSAGES.rows(rows))


def ask(layout: Layout, *requests: dict) -> int:
    return AppendTable(layout.broker_table("requests")).append(REQUESTS.rows(list(requests)))


def consumed(layout: Layout) -> int:
    row = read_latest(layout).round_row
    return row["requests_version"] if row else -1


def play(root) -> dict:
    """Messages, deliveries, acknowledgements, a death with its letter; what is left, with the broker's part on a disk
    as it is."""
    layout = Layout(root)
    prepare_root(layout)
    create_topic(layout, TOPIC)
    publish(layout, 1, 4)
    last = ask(layout, ON.subscribe("A", max_redeliver_count=1), ON.flow("A", 20))
    with PlainBroker(root) as broker:

        def settled(*, is_over: bool = False) -> bool:
            """Is what was asked and published done? And, if that *is_over*, no round to come and no fault waited for?
            Asked between two rounds: a write that failed when it was done is seen before the broker knows."""
            broker.failure and broker.wait()
            with broker._batches.lock:
                if is_over and (broker._batches.disk.is_waiting or broker._batches.moved()):
                    return False
                return not broker.rounds.bundle.moved() and consumed(layout) >= last

        eventually(settled)
        last = ask(layout, ON.ack(0), ON.negative_ack("A", 1))
        publish(layout, 2, 2)
        eventually(lambda: settled() and pending(layout).get(1) == ("A", 1))
        last = ask(layout, ON.ack(2), ON.negative_ack("A", 1))
        eventually(lambda: pending(layout).keys() == {3, 4, 5} and letters(layout) and settled(is_over=True))
    assert broker.failure is None
    runs = list(runs_of(read_ledgers(layout.broker_table("ledgers"))[0]))
    topic_id = read_topic(layout, TOPIC).topic_id
    [cursor] = (row for key, row in read_latest(layout).cursors.items() if key.topic_id == topic_id)
    return {
        "pending": pending(layout),
        "mark_delete": cursor["mark_delete_position"],
        "letters": letters(layout),
        "permits": permits(layout),
        "numbered": [(run.first_position, run.entries) for owner, _, run in runs if owner == topic_id],
    }


def pending(layout: Layout) -> dict:
    topic_id, latest = read_topic(layout, TOPIC).topic_id, read_latest(layout)
    return {
        position: (range_.consumer_id, range_.redelivery_count)
        for key in latest.cursors
        if key.topic_id == topic_id
        for range_ in latest.ranges(key)
        if range_.status == "pending"
        for position in range(range_.first, range_.last + 1)
    }


def permits(layout: Layout) -> list[int]:
    return [row["permits"] for rows in read_latest(layout).consumers.values() for row in rows.values()]


def letters(layout: Layout) -> Counter:
    path = layout.topic(read_topic(layout, TOPIC).name).with_name("t-s-_44_4c_51")
    if TableLog(path).latest() < 0:
        return Counter()
    return Counter(
        dict(properties)["ORIGIN_MESSAGE_ID"] if "ORIGIN_MESSAGE_ID" in dict(properties) else str(properties)
        for properties in dataset_of(path).to_table()["properties"].to_pylist()
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> dict:
    found = play(tmp_path_factory.mktemp("undisturbed") / "root")
    assert found["pending"] == {3: ("A", 0), 4: ("A", 0), 5: ("A", 0)} and found["mark_delete"] == 2
    assert found["letters"].total() == 1 and found["numbered"] == [(0, 4), (4, 2)]
    return found


@pytest.mark.parametrize("write", range(1, WRITES, EVERY))
def test_each_write_may_fail_for_a_while(tmp_path, caplog, undisturbed, write):
    """Three writes in a row, before they are done or, every second time, after."""
    after = write // EVERY % 2 == 1
    with (
        faults(FULL if write % 4 else READ_ONLY, first=write, count=3, after=after, threads={BATCH_THREAD}) as disk,
        caplog.at_level(logging.INFO, "pulsar_spark.broker"),
    ):
        assert play(tmp_path / "root") == undisturbed
    assert disk.raised == min(3, max(0, disk.writes - write + 1))
    said = [record.getMessage() for record in caplog.records if record.name.endswith("backoff")]
    waits, goes_on = [line for line in said if "waits" in line], [line for line in said if "goes on after" in line]
    assert len(waits) == len(goes_on) and (not disk.raised or 1 <= len(waits) <= 3)


def test_one_line_when_it_begins_and_one_when_it_is_over(root, caplog):
    layout = Layout(root)
    create_topic(layout, TOPIC)
    with caplog.at_level(logging.INFO, "pulsar_spark.broker"), PlainBroker(root):
        with faults(FULL, first=1, count=40, threads={BATCH_THREAD}) as disk:
            last = ask(layout, ON.subscribe("A"))
            eventually(lambda: consumed(layout) >= last)
        assert disk.raised == 40
    said = [record for record in caplog.records if record.name.endswith("backoff")]
    assert [record.levelname for record in said] == ["ERROR", "WARNING"]
    assert (
        "waits" in said[0].message
        and "No space left on device" in said[0].message
        and "goes on after" in said[1].message
    )


def test_the_delay_index_waits_for_its_disk_and_what_comes_due_is_delivered(root, monkeypatch, caplog):
    """Once in words, and then, when it is over, all of it is in buckets."""
    monkeypatch.setattr(delay_upkeep, "PAUSES", MultiplierRedeliveryBackoff(min_delay_ms=2, max_delay_ms=10))
    monkeypatch.setattr(delay_head, "MOST_ENTRIES", 3)
    layout = Layout(root)
    create_topic(layout, TOPIC)
    due = now_micros() + 60 * SECOND
    with caplog.at_level(logging.INFO, "pulsar_spark.broker"), PlainBroker(root) as broker:
        with faults(FULL, first=1, count=1_000_000, threads={"delay index"}) as disk:
            ask(layout, ON.subscribe("A", "Shared"), ON.flow("A", 20))
            publish(layout, 1, 4, deliver_at_time=due)
            publish(layout, 2, 4, deliver_at_time=due + 60 * SECOND)
            eventually(lambda: disk.raised > 3)
            assert pending(layout) == {}
            broker.advance(61)
            eventually(lambda: [*pending(layout).values()] == [("A", 0)] * 4)
        eventually(lambda: sum(bucket.entries for bucket in DelayTable(layout).load(Places()).buckets) >= 4)
        broker.advance(60)
        eventually(lambda: [*pending(layout).values()] == [("A", 0)] * 8)
    said = [
        record.levelname for record in caplog.records if "the delay index could not be written" in record.getMessage()
    ]
    assert said[0] == "ERROR" and set(said[1:]) == {"WARNING"}


def test_a_broker_that_waits_stops_when_it_is_told(root):
    layout = Layout(root)
    broker = PlainBroker(root)
    assert broker.start()
    with faults(FULL, first=1, count=1_000_000, threads={BATCH_THREAD}) as disk:
        ask(layout, ON.subscribe("A"))
        eventually(lambda: disk.raised > 3)
        broker.stop()
        broker.wait()
    assert broker.failure is None


def test_a_failing_disk_does_not_end_the_thread_of_the_lease(root, monkeypatch, caplog):
    from pulsar_spark.broker.service import lease_keeper

    monkeypatch.setattr(lease_keeper, "LEASE_SECONDS", 0.04)
    with caplog.at_level(logging.INFO, "pulsar_spark.broker"), PlainBroker(root):
        with faults(READ_ONLY, first=1, count=5, threads={"lease"}) as disk:
            eventually(lambda: disk.raised == 5 and disk.writes > 8)
    said = [record.getMessage() for record in caplog.records if record.name.endswith("backoff")]
    assert len(said) == 2 and "its lease cannot be renewed" in said[0] and "goes on" in said[1]


def test_what_another_broker_committed_while_the_disk_failed_is_not_taken_over(root):
    """A broker that waited for its disk finds the round of another and ends, instead of going on from there."""
    layout = Layout(root)
    first = PlainBroker(root)
    assert first.start()
    with faults(FULL, first=1, count=1_000_000, threads={BATCH_THREAD}) as disk:
        ask(layout, ON.subscribe("A"))
        eventually(lambda: disk.raised > 3)
        second = PlainBroker(root)
        second._patiently(second._take_over)
    with pytest.raises(BrokerFenced, match="another broker"):
        first.wait(60)
    assert read_latest(layout).round_row["broker_id"] == second.broker_id


def test_another_failure_ends_the_broker_and_is_told(root, monkeypatch):
    broker = PlainBroker(root)
    assert broker.start()
    monkeypatch.setattr(broker.rounds, "run", lambda *_: 1 / 0)
    ask(Layout(root), ON.subscribe("A"))
    with pytest.raises(ZeroDivisionError):
        broker.wait(60)
    assert not broker._lease_keeper._lease.holder()


def test_the_end_of_a_with_statement_gives_the_lease_back(root):
    with PlainBroker(root) as broker:
        assert broker._lease_keeper._lease.holder().broker_id == broker.broker_id
    assert broker._lease_keeper._lease.holder() is None
    with PlainBroker(root):
        pass


def test_a_standby_says_for_whom_it_stands_by_and_when_it_takes_over(root, caplog):
    with caplog.at_level(logging.INFO, "pulsar_spark.broker"):
        with PlainBroker(root) as first:
            second = PlainBroker(root)
            assert not second.start(standby_seconds=0.3)
            assert isinstance(second, Broker)
        assert second.start()
        second.close()
    stands_by = [record.getMessage() for record in caplog.records if "stands by" in record.getMessage()]
    assert len(stands_by) == 1 and second.broker_id in stands_by[0] and first.broker_id in stands_by[0]
