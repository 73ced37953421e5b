"""The demo's Key_Shared subscription, with a broker that needs no Spark: consumers join and leave, one is killed, and
every aircraft's flights come in order."""

import json
import time

import numpy as np

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.demo.account import Keyed, make_account
from pulsar_spark.demo.group import ConsumerGroup
from pulsar_spark.testing.plain_broker import PlainBroker

FLIGHTS, AIRCRAFT, PARTITIONS = 1_200, 50, 2
TOPIC = "persistent://public/default/flights"


class ServingBroker:
    """What the group asks of the broker's process: that it lives."""

    def check(self) -> None: ...

    def last_words(self) -> str:
        return ""


AIRCRAFT_OF = np.where(np.arange(FLIGHTS) % 40, np.arange(FLIGHTS) * 7 % AIRCRAFT, -1)
"""The aircraft of each flight, every 40th of none that is known."""


def publish(root, flights: range) -> None:
    """These flights by aircraft."""
    client = pulsar.Client(f"delta:{root}")
    producer = client.create_producer(TOPIC, block_if_queue_full=True)
    for flight in flights:
        number = int(AIRCRAFT_OF[flight])
        key = {} if number < 0 else {"partition_key": f"N{number}"}
        producer.send_async(json.dumps({"id": flight}).encode(), lambda result, message_id: None, **key)
    client.close()


def test_aircraft_stay_in_order_while_consumers_join_leave_and_are_killed(root, tmp_path):
    """Half of the flights come when everybody who joins is there."""
    admin, happened, half = Admin(f"delta:{root}"), [], FLIGHTS // 2
    admin.create_partitioned_topic(TOPIC, PARTITIONS)
    group = ConsumerGroup(
        "fleet", "KeyShared", TOPIC, 3, service_url=f"delta:{root}", work=tmp_path, batch=20, is_cumulative=False,
        kill_at=60, leave_at=100, joiners=2, queue_size=60,
    )  # fmt: skip
    with PlainBroker(root), group:
        group.wait_ready(ServingBroker(), 60)
        publish(root, range(half))
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline:
            was_waiting = group.is_waiting
            happened += group.watch()
            if was_waiting and not group.is_waiting:
                publish(root, range(half, FLIGHTS))
            stats = admin.stats(TOPIC)["subscriptions"]["fleet"]
            if stats["msgBacklog"] == 0 and stats["ackedEntries"] >= FLIGHTS and not group.is_waiting:
                break
            time.sleep(0.05)
        group.stop()
    account = make_account(
        "fleet", "KeyShared", FLIGHTS, stats, group.notes(), group.closed_after, None, Keyed(AIRCRAFT_OF, group.gone)
    )
    assert account.defects == []
    assert (account.acknowledged, account.left, len(group.gone), len(group.notes())) == (FLIGHTS, 0, 2, 5)
    assert sorted(said.split(" ")[1] for said in happened) == ["joined", "joined", "left", "was"], happened
    assert all(len(notes) for notes in group.notes()), "who joined got aircraft too"
