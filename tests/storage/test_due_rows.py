"""What a cursor's rows say of its delayed entries, held against the broker that wrote them, over random
acknowledgements, moves and cancellations."""

import random

import pytest

from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.views.backlog import read_backlog
from tests.support.requests import On
from tests.support.spark_engine import new_engine

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)
MINUTE = 60_000


@pytest.mark.parametrize("seed", [1, 2])
def test_rows_say_what_the_broker_knows(tmp_path, seed):
    """Whatever was delivered, acknowledged or moved: the backlog, by position and by count, is what was published and
    is not acknowledged; and so much of it waits as is due later."""
    chance, engine = random.Random(seed), new_engine(None, tmp_path)
    engine.create_topic(TOPIC)
    engine.round([ON.subscribe("A", lease_ms=60 * MINUTE)], 0)
    left: dict[int, int] = {}
    published = 0
    for now in range(1, 24):
        sizes, engine.now_ms = [1] * chance.randint(0, 4), now * MINUTE
        times = [(now + chance.randint(-1, 8)) * MINUTE if chance.random() < 0.6 else None for _ in sizes]
        if sizes:
            left |= dict(zip(engine.publish(TOPIC, -1, sizes, deliver_at_ms=times), [due or 0 for due in times]))
            published += len(sizes)
        asked = [ON.flow("A", chance.randint(1, 3))]
        for position in chance.sample(sorted(left), min(2, len(left))):
            if chance.random() < 0.7:
                asked.append(ON.ack(position, consumer="A"))
                del left[position]
            elif left[position] > now * MINUTE:
                left[position] = (now + 3) * MINUTE
                properties = {"deliver_at_ms": str(left[position])}
                asked.append(ON._ask("reschedule", first=position, last=position, properties=properties))
        engine.round(asked, now * MINUTE)
        if chance.random() < 0.1:
            engine.start()
        latest, index = read_latest(engine.layout), LedgerIndex(engine.layout)
        ((key, cursor),) = latest.cursors.items()
        exact = latest.ranges(key)
        done = {at for held in exact if held.status == ACKNOWLEDGED for at in range(held.first, held.last + 1)}
        done |= set(range(cursor["mark_delete_position"] + 1))
        assert set(range(published)) - done == set(left), f"after minute {now}"
        backlog, waiting = read_backlog(latest, key, index, published, now * MINUTE * 1000), list(left.values())
        assert backlog == (len(left), sum(due > now * MINUTE for due in waiting)), f"after minute {now}"
