"""What a projection is given, and when, whatever it does with it."""

import pytest

from pulsar_spark.broker.letters import projections
from pulsar_spark.broker.letters.projections import Projection
from pulsar_spark.broker.requests.request import Request
from pulsar_spark.storage.delta.log import TableLog
from tests.support.crashes import Crash
from tests.support.requests import On

TOPIC = "persistent://public/default/t"
ON = On(TOPIC, -1, "s")


def test_it_is_given_its_kinds_of_rows_behind_each_commit_and_again_at_a_start(engine, monkeypatch):
    seen = []

    def write(bundle, round_number, now, facts, *, is_again):
        rounds = TableLog(engine.layout.broker_table("cursor_ledger")).latest()
        seen.append((round_number, rounds, [fact["kind"] for fact in facts], is_again))
        return []

    projection = Projection("consumers", ("consumer", "topic"), write)
    monkeypatch.setattr(projections, "PROJECTIONS", (*projections.PROJECTIONS, projection))
    engine.round([ON.subscribe("A")], 1)
    engine.publish(TOPIC, -1, [1])
    engine.round([], 2)
    engine.round([], 3)
    assert seen == [(1, 1, ["consumer"], False), (2, 2, ["topic"], False)], "nothing behind an idle round"
    seen.clear()
    engine.restart(4)
    assert seen == [(2, 2, ["topic"], True)], "before the round of the take-over"


def test_requests_it_leads_to_are_of_the_next_round(engine, monkeypatch):
    engine.publish(TOPIC, -1, [1, 1])
    engine.round([ON.subscribe("A")], 1)
    wanted = [Request(**dict.fromkeys(Request._fields) | ON.flow("A", 1) | {"properties": {}})]

    def write(bundle, round_number, now, facts, *, is_again):
        return wanted if round_number == 2 else []

    monkeypatch.setattr(projections, "PROJECTIONS", (Projection("one", (), write),))
    assert not engine.rounds.has_work()
    assert [each.position for each in engine.round([ON.flow("A", 1)], 2)["deliveries"]] == [0]
    assert engine.rounds.has_work()
    assert [each.position for each in engine.round([], 3)["deliveries"]] == [1]
    assert not engine.rounds.has_work()


def test_one_that_ends_the_process_is_written_by_the_next_that_starts(engine, monkeypatch):
    written = []

    def die(*_, is_again):
        raise Crash

    def write(bundle, round_number, now, facts, *, is_again):
        written.append((round_number, is_again))
        return []

    for projection in (die, write):
        monkeypatch.setattr(projections, "PROJECTIONS", (Projection("one", (), projection),))
        if projection is die:
            with pytest.raises(Crash):
                engine.round([ON.subscribe("A")], 1)
            engine.start()
        else:
            engine.rounds.take_over()
    assert written == [(1, True)]
