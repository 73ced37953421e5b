"""Random histories, the reference broker against real rounds: the same deliveries, replies, states and letters, round
by round, also over restarts. On Key_Shared order per key, one holder and progress besides (``key_order``).

Few histories run on Spark, a round after the other; many more on the plan's twin without Spark. What the twin was given
in them is then planned by Spark as well, the cursors of many rounds in one plan. ``PULSAR_SPARK_HISTORIES=n`` runs n of
each, ``PULSAR_SPARK_SEED=s`` others than usual. What fails is shrunk and printed as the turns of one history; the same
seed finds it again.
"""

import tempfile
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.broker.committing import snapshots
from pulsar_spark.broker.letters import letters
from pulsar_spark.broker.planning.work import Outcome
from pulsar_spark.testing.plain_planner import PlainPlanner
from tests.differential import chunk_strategies, delay_strategies, key_strategies, strategies
from tests.differential.chunk_duel import ChunkedDuel
from tests.differential.delay_duel import DelayedDuel
from tests.differential.drawing import drawn
from tests.differential.duel import Duel
from tests.differential.key_order import KeyedDuel, KeyOrder
from tests.differential.strategies import Turn
from tests.differential.twins import assert_spark_plans
from tests.support.model import Model
from tests.support.model_cursor import Cursor
from tests.support.model_keys import KEY_SHARED, Key
from tests.support.requests import On


@pytest.fixture
def close_borders(monkeypatch):
    """Snapshots and commits of letters so small that short histories cross their borders."""
    monkeypatch.setattr(snapshots, "SNAPSHOT_EVERY", 7)
    monkeypatch.setattr(letters, "LETTERS_A_COMMIT", 2)


KINDS = {
    "types": (strategies.histories, Duel),
    "keys": (key_strategies.histories, KeyedDuel),
    "delays": (delay_strategies.histories, DelayedDuel),
    "chunks": (chunk_strategies.histories, ChunkedDuel),
}
"""Histories of all types, of Key_Shared alone, of messages that wait for their deliver time, and of chunked ones."""

FOUND = {
    "parts that were published just now are not skipped as messages": [
        Turn(0, ["t/any: a subscribe Shared", "t/any: a flow 1"]),
        Turn(1000, ["t/any: a flow 1", "t/any: skip 1", "t: publish A:0/2 A:1/2"]),
    ],
    "an ack set of a part asks nothing": [
        Turn(0, ["t: publish 3 A:1/2", "t: policy max_unacked_messages_per_consumer 3"]),
        Turn(0, ["t/any: a subscribe Shared", "t/any: a flow 20"]),
        Turn(0, ["t: publish B:1/2"]),
        Turn(0, ["t/any: a ack 1 left 0"]),
    ],
    "what is acknowledged already does not expire": [
        Turn(0, ["t: publish 1 1@100 3", "t: policy max_unacked_messages_per_consumer 3"]),
        Turn(0, ["t: policy ttl_check_seconds 1", "t: policy message_ttl_seconds 5"]),
        Turn(0, ["t/any: a subscribe Shared lease 600", "t/any: a flow 20", "t/any: a ack 0"]),
        Turn(9000, ["t: publish 3"]),
        Turn(0, ["t: publish B:1/2"]),
        Turn(1000, []),
    ],
    "one sought to is released by time to live at once": [
        Turn(0, ["t: publish A:0/2 1", "t: policy ttl_check_seconds 1", "t: policy message_ttl_seconds 2"]),
        Turn(3000, ["t/any: a subscribe Shared lease 600", "t/any: a seek latest"]),
        Turn(1000, []),
    ],
    "one that waits for its deliver time is none too many": [
        Turn(0, ["t: publish B:0/2@100 C:0/4 2 A:0/2 B:1/2@100"]),
        Turn(0, ["t/keys: b subscribe KeyShared pending 2 lease 600", "t/keys: b flow 1"]),
    ],
    "one too many is not kept back when it waits for its deliver time": [
        Turn(0, ["t: publish A:0/2@100", "t/any: a subscribe Shared pending 1 lease 600", "t/any: a flow 5"]),
        Turn(0, ["t: publish B:0/2"]),
        Turn(0, ["t: publish A:1/2@100"]),
        Turn(0, ["t/any: a close", "t/any: b subscribe Shared lease 600", "t/any: b flow 20"]),
        Turn(1000, []),
    ],
    "one that is cancelled holds nothing back": [
        Turn(0, ["t/any: a subscribe Shared lease 600", "t/any: a flow 1", "t: publish A:0/3 1"]),
        Turn(0, ["t/any: a ack 1", "t: publish A:1/3 A:2/3@25"]),
        Turn(0, ["t/any: cancel 2-3"]),
    ],
    "one begun anew holds nothing back, also behind a restart": [
        Turn(0, ["t/any: a subscribe Shared lease 600", "t/any: a flow 1", "t: publish A:0/2 B:0/1@100 1"]),
        Turn(0, ["t: publish A:0/3"], "between"),
    ],
    "what is given back in this round counts": [
        Turn(0, ["t: publish B:0/2 A:0/2 A:1/2 B:1/2", "t/any: a subscribe Shared pending 1 lease 600"]),
        Turn(0, ["t/any: b subscribe Shared lease 600", "t/any: b flow 2"]),
        Turn(0, ["t/any: b close", "t/any: a flow 2"]),
    ],
    "who asks for everything again gets everything": [
        Turn(0, ["t: publish B:0/2 A:0/2 A:1/2 B:1/2", "t/any: a subscribe Shared pending 1 lease 600"]),
        Turn(0, ["t/any: a flow 2"]),
        Turn(0, ["t/any: a redeliver", "t/any: a flow 2"]),
    ],
    "a broker that starts counts again what is not complete": [
        Turn(0, ["t: publish 1", "t/any: a subscribe Shared pending 1 lease 600", "t/any: a flow 1"]),
        Turn(0, ["t: publish B:0/2 A:0/3 B:1/2 A:2/3", "t/any: a redeliver", "t/any: a flow 1"]),
        Turn(0, ["t/any: a flow 5"], "between"),
    ],
    "one that is kept back in this round is none that its key waits for": [
        Turn(0, ["t: publish A:0/2 B:0/2 1 A:1/2 1=b"]),
        Turn(0, ["t/keys: a subscribe KeyShared lease 600", "t/keys: c subscribe KeyShared pending 1 lease 600"]),
        Turn(0, ["t/keys: a flow 1"]),
        Turn(0, ["t/keys: a flow 1", "t/keys: c flow 1"]),
    ],
    "who comes first decides whether deliver times count, also if it leaves at once": [
        Turn(0, ["t/any: a subscribe Shared lease 600", "t/any: a flow 5", "t: publish 1@100"]),
        Turn(1000, ["t/any: a close"]),
        Turn(0, ["t/any: c subscribe Exclusive lease 600", "t/any: c close"]),
        Turn(0, ["t/any: a subscribe Shared lease 600", "t/any: a flow 5"]),
    ],
    "a held back subscription reads nothing when what came due is acknowledged": [
        Turn(0, ["t/any: a subscribe Shared lease 600", "t/any: a flow 7"]),
        Turn(0, ["t/any: policy max_unacked_messages_per_subscription 4", "t: publish 1@10"]),
        Turn(1000, ["t: publish 4", "t/any: expire 0"]),
        Turn(9000, ["t: publish A:0/3"]),
    ],
    "a held back subscription reads nothing beside what comes again": [
        Turn(0, ["t/any: policy max_unacked_messages_per_subscription 4", "t: publish 1 1 1 1"]),
        Turn(0, ["t/any: a subscribe Shared lease 600", "t/any: a flow 4"]),
        Turn(0, ["t/any: a nack 0"]),
        Turn(0, ["t/any: a flow 1", "t: publish A:0/3"]),
    ],
}
"""Histories of chunks, the smallest that showed a difference; also in the end, when all is delivered."""


def duels(spark, kind: str, examples: int) -> None:
    histories, duel = KINDS[kind]

    @drawn(examples)
    @given(histories(), st.sampled_from([0, 0, 6, 14]))
    def play(history, limit):
        with tempfile.TemporaryDirectory(prefix="pulsar_spark_history_") as root:
            duel(spark, Path(root), max_unacked_messages_per_broker=limit).play(history)

    play()


@cache
def planned_without_spark(kind: str) -> list[tuple[list[dict], Outcome]]:
    """Plays histories without Spark; the rows of each cursor of each round, and what becomes of it."""
    planned, plan = [], PlainPlanner.run

    def plan_and_note(self, work):
        result = plan(self, work)
        rows = work.rows.to_pylist()
        planned.extend(
            ([row for row in rows if row["cursor"] == number], outcome) for number, outcome in enumerate(result)
        )
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlainPlanner, "run", plan_and_note)
        duels(None, kind, 25 if kind == "types" else 10)
    return planned


@pytest.mark.default
@pytest.mark.parametrize("kind", KINDS)
def test_a_few_rounds_do_what_the_reference_broker_does(close_borders, kind):
    duels(None, kind, 2)


@pytest.mark.xdist_group("spark")  # whoever lets Spark plan the same has it in memory then
@pytest.mark.parametrize("kind", KINDS)
def test_rounds_do_what_the_reference_broker_does(close_borders, kind):
    assert planned_without_spark(kind)


@pytest.mark.parametrize("history", FOUND.values(), ids=FOUND)
def test_histories_that_once_differed(close_borders, tmp_path, history):
    ChunkedDuel(None, tmp_path).play(history)


@pytest.mark.parametrize("kind", KINDS)
def test_spark_does_what_the_reference_broker_does(spark, close_borders, kind):
    duels(spark, kind, 5 if kind == "types" else 2)


@pytest.mark.parametrize("kind", KINDS)
def test_spark_plans_what_its_twin_plans(spark, close_borders, kind):
    assert_spark_plans(spark, planned_without_spark(kind))


def test_order_that_is_broken_is_found_out(monkeypatch):
    """The promises can be broken: a model whose entries never wait does not keep them."""
    monkeypatch.setattr(Cursor, "waits", lambda cursor, position, now_ms: False)
    topic = "persistent://public/default/t"
    model, on = Model(), On(topic)
    model.create_topic(topic)
    order = KeyOrder(model)
    model.publish(topic, -1, [1] * 2, keys=[(Key("b"),)] * 2)
    order.watch(model.round([on.subscribe("A", KEY_SHARED), on.flow("A", 1)], 0)["deliveries"])
    moved = model.round([on.subscribe("B", KEY_SHARED), on.flow("B", 1)], 1)["deliveries"]
    with pytest.raises(AssertionError, match="two holders"):
        order.watch(moved)
    model.publish(topic, -1, [1], keys=[(Key("b"),)])
    overtaking = model.round([on.ack(0), on.negative_ack("B", 1, delay_ms=9_000), on.flow("B", 1)], 2)["deliveries"]
    with pytest.raises(AssertionError, match="to come again"):
        order.watch(overtaking)
