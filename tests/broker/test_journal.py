"""What a broker says of itself: a line a minute of what happened, one for every refusal, none for what is only
repeated."""

import logging

import pytest

from pulsar_spark.broker.bundle.journal import Journal
from pulsar_spark.broker.requests.drafts import RoundResult
from tests.frames.plain import Seconds
from tests.support.requests import On

TOPIC = "persistent://public/default/t"


@pytest.fixture
def results(engine, monkeypatch):
    """What the engine's rounds say they did."""
    found, run = [], type(engine.rounds).run

    def noted(self, requests, version):
        found.append(run(self, requests, version))
        return found[-1]

    monkeypatch.setattr(type(engine.rounds), "run", noted)
    return found


def counts(result: RoundResult) -> tuple:
    return (
        result.delivered_messages,
        result.acknowledged_entries,
        result.letters,
        [refusal.error for refusal in result.refusals],
    )


def test_who_is_waited_for_is_said_once_a_minute(caplog):
    clock, asked = Seconds(), []

    def names():
        asked.append(clock())
        return [f"'{number}' on 's' of {TOPIC}" for number in range(12)]

    journal = Journal(clock)
    with caplog.at_level(logging.INFO, "pulsar_spark.broker"):
        for _ in range(130):
            journal.note_waiting(names)
            clock.advance(1)
    first, *others = [record.getMessage() for record in caplog.records]
    assert "its 12 connected consumers" in first and first.endswith(f"'9' on 's' of {TOPIC}, ...")
    assert others == [first] * 2 and asked == [1000.0, 1060.0, 1120.0]


def test_a_round_says_what_it_did(engine, results):
    on = On(TOPIC)
    engine.publish(TOPIC, -1, [1] * 10)
    engine.round([on.subscribe("A", "Shared", max_redeliver_count=1), on.flow("A", 10)], 1)
    engine.round([on.ack(0, 3), on.ack(2, 5), on.negative_ack("A", 6, 7)], 2)
    engine.round([on.flow("A", 10)], 3)
    engine.round([on.negative_ack("A", 6, 7)], 4)
    engine.round([on.ack(8, 30), on.flow("B", 5)], 5)
    told = [counts(result) for result in results if result.is_committed or result.refusals]
    assert sum(acknowledged for _, acknowledged, _, _ in told) == 6, (
        "what is dead is a letter, what was acknowledged twice counts once"
    )
    assert sum(letters for _, _, letters, _ in told) == 2
    assert told[0][0] == 10
    assert [error for each in told for error in each[3]] == ["InvalidMessage", "ConsumerNotFound"]
    assert results[-1].refusals[0].subscription == "s" and "positions 8 to 30" in results[-1].refusals[0].text


def test_a_line_a_minute_says_what_happened_and_a_quiet_minute_has_none(caplog):
    caplog.set_level(logging.INFO, "pulsar_spark")
    clock = Seconds()
    journal = Journal(clock)
    for number in range(100):
        journal.note(
            RoundResult(True, delivered_messages=5, acknowledged_entries=3, letters=number == 0), 0.010 + number / 1000
        )
    journal.note(RoundResult(False), 0.001)
    clock.advance(59)
    journal.look()
    assert caplog.records == []
    clock.advance(1)
    journal.look()
    [line] = caplog.records
    counts = line.rounds, line.delivered, line.acknowledged, line.refused, line.letters, line.round_p99_ms
    assert counts == (100, 500, 300, 0, 1, 108)
    assert line.levelno == logging.INFO
    assert line.message == (
        "60 s: 100 rounds, 500 messages delivered, 300 entries acknowledged, 0 requests refused, 1 letter, "
        "99 % of rounds within 108 ms"
    )
    clock.advance(600)
    journal.look()
    journal.end_minute()
    assert len(caplog.records) == 1


def test_a_refusal_is_named_once_a_minute_and_counted_always(engine, results, caplog):
    caplog.set_level(logging.INFO, "pulsar_spark")
    clock = Seconds()
    journal, on = Journal(clock), On(TOPIC)
    engine.round([on.subscribe("A", "Exclusive")], 1)
    for now in range(2, 7):
        engine.round([on.subscribe("B", "Exclusive"), on.flow("C", 1)], now)
        journal.note(results[-1], 0.01)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert lines[0].startswith(
        f"refused subscribe: subscription 's' of {TOPIC}, partition -1, consumer 'B': ConsumerBusy: "
    )
    assert lines[1].startswith(
        f"refused flow: subscription 's' of {TOPIC}, partition -1, consumer 'C': ConsumerNotFound: "
    )
    caplog.clear()
    clock.advance(60)
    journal.look()
    assert [record.getMessage() for record in caplog.records][:2] == [
        f"refused 4 times more: ConsumerBusy, subscription 's' of {TOPIC}, consumer 'B'",
        f"refused 4 times more: ConsumerNotFound, subscription 's' of {TOPIC}, consumer 'C'",
    ]
    assert caplog.records[2].refused == 10


def test_refusals_of_many_kinds_do_not_flood_the_log(engine, results, caplog):
    journal, on = Journal(Seconds()), On(TOPIC)
    for now in range(1, 100):
        engine.round([on.flow(f"nobody-{now}", 1)], now)
        journal.note(results[-1], 0.01)
    assert len([record for record in caplog.records if record.getMessage().startswith("refused flow")]) == 20


def test_what_expired_is_told_apart_from_what_was_acknowledged(engine, results, caplog):
    caplog.set_level(logging.INFO, "pulsar_spark")
    engine.publish(TOPIC, -1, [1] * 10, publish_time_ms=1_000)
    on = On(TOPIC)
    engine.round([on.subscribe("A"), on.policy("message_ttl_seconds", 60), on.policy("ttl_check_seconds", 1)], 2_000)
    engine.round([on.ack(0), on.ack(4)], 3_000)
    engine.publish(TOPIC, -1, [1] * 5, publish_time_ms=60_000)
    engine.round([on.ack(6)], 62_000)
    engine.round([on.expire(0)], 63_000)
    assert [(result.acknowledged_entries, result.expired_entries) for result in results if result.is_committed] == [
        (0, 0),
        (2, 0),
        (1, 7),
        (0, 5),
    ]
    journal = Journal(Seconds())
    for result in results:
        journal.note(result, 0.001)
    journal.end_minute()
    [line] = caplog.records
    assert (line.acknowledged, line.expired) == (3, 12)
    assert "3 entries acknowledged, 12 expired, 0 requests refused" in line.message
