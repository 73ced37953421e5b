"""Many requests alike: noted together they do what they do one by one."""

import random

import pytest

from pulsar_spark.broker.requests import executor
from pulsar_spark.broker.requests.drafts import RoundDraft
from pulsar_spark.broker.requests.executor import RequestExecutor
from pulsar_spark.broker.requests.request import MOST_DELAY_MS, requests_of
from pulsar_spark.storage.cursor_ledger.set_aside import REQUEST, SetAside
from pulsar_spark.table_specs import REQUESTS
from tests.support.requests import On

TOPIC = "persistent://public/default/t"
ON, GONE, ELSEWHERE = On(TOPIC), On(TOPIC, subscription="gone"), On("t", partition=7)
ENTRIES = 300


@pytest.fixture
def bundle(engine):
    engine.publish(TOPIC, -1, [1] * (ENTRIES - 1) + [3])
    engine.round([ON.subscribe("c"), ON.subscribe("d"), ON.flow("c", 10**6)], 1)
    return engine.rounds.bundle


def drawn(seed: int) -> list[dict]:
    """Acknowledgements and returns in stretches of one kind and consumer, some of which are to be refused."""
    rng, rows = random.Random(seed), []
    for _ in range(60):
        consumer, kind, on = (
            rng.choice(["c", "c", "d", "nobody"]),
            rng.choice(["ack", "nack"]),
            rng.choice([ON] * 8 + [GONE, ELSEWHERE]),
        )
        for _ in range(rng.randint(1, 12)):
            first = rng.randrange(-1, ENTRIES + 1)
            row = (
                on.ack(first, first + rng.choice([0, 0, 5]), consumer=consumer)
                if kind == "ack"
                else on.negative_ack(consumer, first, delay_ms=rng.choice([0, -5, 1000, MOST_DELAY_MS + 1]))
            )
            odd = rng.random()
            rows.append(
                row | {"first": None}
                if odd < 0.03
                else row | {"ack_set": [2], "first": ENTRIES - 1, "last": ENTRIES - 1}
                if odd < 0.06
                else row | {"properties": {"receipt": "true"}}
                if odd < 0.09
                else row | {"properties": {"valid_until_ms": rng.choice(["0", str(10**14)])}}
                if odd < 0.12
                else row | {"properties": {"is_unseen": "true"}}
                if odd < 0.24
                else row
            )
        if rng.random() < 0.1:
            rows.append(ON.redeliver_all("d"))
    return rows


def taken(bundle, rows: list[dict], broken=()) -> tuple:
    """What a round notes down of *rows*."""
    draft = RoundDraft(bundle.round + 1, bundle.now.own, bundle.now.wall)
    RequestExecutor(bundle, draft, dict(broken)).execute_all(requests_of(REQUESTS.rows(rows)))
    noted = {
        key: (list(each.acks), each.ack_sets, each.returns, each.redelivered) for key, each in draft.cursors.items()
    }
    return noted, draft.facts, draft.refusals, dict(bundle.leases)


@pytest.mark.parametrize("seed", range(5))
def test_many_alike_are_noted_as_they_are_one_by_one(bundle, monkeypatch, seed):
    rows = drawn(seed)
    one_by_one = taken(bundle, rows)
    monkeypatch.setattr(executor, "MANY", 1)
    together = taken(bundle, rows)
    assert together == one_by_one
    noted, facts, refusals, _ = together
    assert noted and facts and {refusal.error for refusal in refusals} >= {"InvalidMessage", "ConsumerNotFound"}, (
        "the draw has what it is for"
    )


def test_of_many_alike_the_first_of_which_is_refused_each_is_refused(bundle, monkeypatch):
    monkeypatch.setattr(executor, "MANY", 1)
    noted, _, refusals, _ = taken(bundle, [ON.negative_ack("nobody", position) for position in range(4)])
    assert (noted, [refusal.error for refusal in refusals]) == ({}, ["ConsumerNotFound"] * 4)


def test_of_many_alike_one_that_is_set_aside_is_left_out(bundle, monkeypatch):
    monkeypatch.setattr(executor, "MANY", 1)
    rows = [ON.ack(position, consumer="c") for position in range(0, 8, 2)]
    entry = SetAside(REQUEST, "Bug", "", request_id=rows[2]["request_id"])
    noted, facts, _, _ = taken(bundle, rows, {entry.id: entry}.items())
    ((acks, *_),) = noted.values()
    assert acks == [(0, 0), (2, 2), (6, 6)]
    assert [fact["error"] for fact in facts] == ["UnknownError"]
