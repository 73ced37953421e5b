"""Samples of activity that miss a count, name a wrong minute, or are folded away too early, are found here."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import pulsar_spark as pulsar
from pulsar_spark.broker.round.samples import Samples
from pulsar_spark.broker.upkeep.activity import ActivityUpkeep
from pulsar_spark.storage.delta.definitions import create_table
from pulsar_spark.storage.delta.scan import dataset_of, open_table
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.upkeep.folding import fold
from pulsar_spark.table_specs import ACTIVITY
from pulsar_spark.testing.broker import Broker
from pulsar_spark.testing.clock import Clock
from tests.support.waiting import DEADLINE_SECONDS, send

WAIT = DEADLINE_SECONDS * 1000
SHARED = {"consumer_type": pulsar.ConsumerType.Shared}
COUNTERS = ("msg_in_counter", "msg_out_counter", "msg_redeliver_counter", "msg_ack_counter", "msg_dead_counter")


@pytest.fixture
def served(tmp_path):
    with Clock() as clock, Broker(tmp_path / "root", clock=clock) as broker:
        broker.upkeep = ActivityUpkeep(broker.layout, broker.rounds, broker._batches.lock)
        broker.clock = clock
        yield broker


def samples(layout: Layout) -> list[dict]:
    path = layout.broker_table(ACTIVITY.name)
    if not path.exists():
        return []
    rows = dataset_of(path).to_table().to_pylist()
    return sorted(rows, key=lambda row: (row["minute_time"], row["subscription"] or "", row["round"]))


def of(rows: list[dict], subscription: str | None) -> list[dict]:
    return [row for row in rows if row["subscription"] == subscription]


def test_what_no_round_committed_is_in_no_sample(served):
    client = pulsar.Client(served.service_url)
    client.subscribe("t", "s", **SHARED)
    served.settle()
    served.upkeep.append()
    before = samples(served.layout)
    served.rounds._recovery._is_reload_due = True
    served.upkeep.close()
    assert samples(served.layout) == before
    served.rounds._recovery._is_reload_due = False
    served.upkeep.close()
    assert len(samples(served.layout)) > len(before)
    client.close()


def test_a_minute_in_which_something_changed_has_one_sample_of_it(served):
    client = pulsar.Client(served.service_url)
    consumer = client.subscribe("t", "s", **SHARED)
    served.settle()
    served.clock.advance(minutes=1)
    send(client, "t", *"abcd")
    for _ in range(3):
        consumer.acknowledge(consumer.receive(WAIT))
    served.settle()
    served.upkeep.look()
    assert not any(row["msg_out_counter"] for row in samples(served.layout)), "the minute is not over"
    served.clock.advance(minutes=5)
    served.upkeep.look()
    base, last = of(samples(served.layout), "s")[-2:]
    assert last["minute_time"] > base["minute_time"]
    assert [last[name] for name in COUNTERS] == [4, 4, 0, 3, 0]
    assert (last["backlog"], last["unacked"], last["consumers"], last["delayed"]) == (1, 1, 1, 0)
    assert last["minute_time"] - timedelta(minutes=1) < last["oldest_publish_time"]
    assert [row["msg_in_counter"] for row in of(samples(served.layout), None)][-1:] == [4]
    count = len(samples(served.layout))
    served.clock.advance(minutes=5)
    served.upkeep.look()
    assert len(samples(served.layout)) == count, "nothing changed since"
    client.close()


def test_a_new_subscription_has_a_sample_from_which_its_counters_begin(served):
    client = pulsar.Client(served.service_url)
    send(client, "t", *"abc")
    consumer = client.subscribe("t", "s", **SHARED, initial_position=pulsar.InitialPosition.Earliest)
    consumer.acknowledge(consumer.receive(WAIT))
    served.settle()
    served.clock.advance(minutes=2)
    served.upkeep.look()
    first, second = of(samples(served.layout), "s")
    assert [first[name] for name in COUNTERS] == [3, 0, 0, 0, 0]
    assert [second[name] for name in COUNTERS] == [3, 3, 0, 1, 0]
    assert second["minute_time"] - first["minute_time"] == timedelta(minutes=1)
    client.close()


def test_a_broker_that_starts_samples_everything(served):
    client = pulsar.Client(served.service_url)
    client.subscribe("t", "s", **SHARED).close()
    send(client, "t", "a", "b")
    served.settle()
    served.clock.advance(minutes=2)
    served.upkeep.look()  # takes what changed
    later = Samples(served.rounds.bundle)  # as of a broker that took over after a crash
    later.take(served.rounds.bundle)
    (rows,) = later.waiting
    (row,) = (row for row in rows if row.get("subscription") == "s")
    assert (row["backlog"], row["msg_in_counter"]) == (2, 2)
    client.close()


def test_samples_wait_while_the_table_cannot_be_written(served, monkeypatch, caplog):
    client = pulsar.Client(served.service_url)
    client.subscribe("t", "s", **SHARED).close()
    served.settle()
    served.clock.advance(minutes=2)
    with monkeypatch.context() as broken:

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        broken.setattr(AppendTable, "append", full)
        served.upkeep.look()
        served.upkeep.look()
    assert samples(served.layout) == []
    assert sum("samples of activity cannot be written" in line for line in caplog.messages) == 1
    served.upkeep.look()
    assert {row["subscription"] for row in samples(served.layout)} == {"s"}
    client.close()


NOW = datetime(2026, 5, 20, 12, 0, tzinfo=UTC)


def table_of(layout: Layout, ages: list[timedelta], **columns: object) -> pa.Table:
    """Samples of these ages, whose counters count them."""
    path = layout.broker_table(ACTIVITY.name)
    create_table(path, ACTIVITY)
    place = {"topic": "t", "topic_id": "id", "partition": -1, "subscription": "s", "round": 1}
    for number, age in enumerate(ages):
        row = place | {"minute_time": NOW - age, "msg_out_counter": number} | columns
        AppendTable(path).append(ACTIVITY.rows([row]))
    return path


def left(layout: Layout) -> list[int]:
    return [row["msg_out_counter"] for row in samples(layout)]


def test_old_samples_are_folded_to_the_last_of_each_hour_and_day(layout):
    minutes = [timedelta(minutes=minute) for minute in (50, 40, 30)]
    hours = [timedelta(days=2, minutes=minute) for minute in (110, 50, 40)]
    days = [timedelta(days=20, hours=hour) for hour in (15, 5, 1)]
    older = [timedelta(days=100), timedelta(days=95)]
    path = table_of(layout, [*older, *days, *hours, *minutes])
    assert fold(path, open_table(path), NOW.timestamp()) == 11, "each of the files"
    assert left(layout) == [1, 2, 4, 5, 7, 8, 9, 10]
    assert len(open_table(path).get_add_actions()) == 1, "in one file"
    assert fold(path, open_table(path), NOW.timestamp()) == 0, "little would go"
    assert fold(path, open_table(path), (NOW + timedelta(days=200)).timestamp()) == 1
    assert left(layout) == [10], "the last stays, as later differences count from it"


def test_of_two_samples_of_a_minute_that_of_the_later_round_stays(layout):
    path = table_of(layout, [timedelta(0)], round=2, msg_out_counter=7)
    table_of(layout, [timedelta(0)])
    table_of(layout, [timedelta(0)], subscription=None)
    table_of(layout, [timedelta(0)], partition=0)
    assert fold(path, open_table(path), NOW.timestamp()) == 4
    assert sorted(left(layout)) == [0, 0, 7]
