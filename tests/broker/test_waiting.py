"""What a cursor keeps of delayed entries: one code of what waits, and until when it looked for what came due.

Rules: semantics 5 with 0.21, 0.24; design 12 (see broker.delays.waiting). What is delivered when is in
tests/spec/delayed.
"""

import shutil

import pytest
from deltalake import DeltaTable

from pulsar_spark.broker.bundle import numbering
from pulsar_spark.broker.bundle.load_bundle import load_bundle
from pulsar_spark.broker.delays import delay_index, dues
from pulsar_spark.broker.delays.delay_upkeep import DelayUpkeep
from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, PENDING, REPLAY
from pulsar_spark.protocol.entries.entry_codes import WAITING, WAITING_CODE
from pulsar_spark.storage.cursor_ledger.committed_rounds import read_round
from pulsar_spark.storage.ledgers.publishes import number_commit
from tests.broker.test_crash import request_of
from tests.support.crashes import Crash, crash_at
from tests.support.model_keys import Key
from tests.support.next_due import next_due
from tests.support.requests import On
from tests.support.spark_engine import SparkEngine, cursor_of, new_engine

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)
START = 1_000_000
HOUR = 3_600_000


def kept(engine: SparkEngine) -> list[tuple[int, int, str]]:
    """(first, last, status) of all the cursor keeps beside what waits, on whatever axis."""
    ranges = cursor_of(engine).ranges()
    return [range_[:3] for range_ in ranges if range_.status != WAITING]


def positions(result: dict) -> list[int]:
    return [delivery.position for delivery in result["deliveries"]]


def publish(engine: SparkEngine, *delays: int | None, at: int = START, **columns) -> None:
    """One entry each, due so many milliseconds behind *at*."""
    dues = [None if delay is None else at + delay for delay in delays]
    engine.publish(TOPIC, -1, [1] * len(dues), at, deliver_at_ms=dues, **columns)


def join(*, permits: int = 99, subscription_type: str = "Shared") -> list[dict]:
    return [ON.subscribe("A", subscription_type, lease_ms=HOUR * 24), ON.flow("A", permits)]


def test_what_waits_has_one_code_and_what_came_due_is_one_row_of_the_plan(engine, monkeypatch):
    publish(engine, *[None, 2_000, 1_000] * 100)
    first = engine.round(join(permits=5_000), START)
    engine.round([ON.ack(position) for position in positions(first)], START + 1)
    cursor, works, plan = cursor_of(engine), [], engine.rounds.plan
    assert (cursor.mark_delete, cursor.entries.counts[WAITING_CODE]) == (0, 200)
    monkeypatch.setattr(engine.rounds, "plan", lambda work: works.append(work) or plan(work))
    due = engine.round([], START + 1_000)
    assert sorted(positions(due)) == list(range(2, 300, 3))
    assert works[0].rows["kind"].to_pylist() == ["cursor", "range", "consumer", "consumer"]
    engine.round([ON.ack(position) for position in positions(due)], START + 1_001)
    assert (cursor.mark_delete, cursor.entries.counts[WAITING_CODE]) == (0, 100)
    rest = engine.round([], START + 2_000)
    engine.round([ON.ack(position) for position in positions(rest)], START + 2_001)
    assert (kept(engine), cursor.mark_delete) == ([], 299), "it costs nothing any more"
    assert engine.state(TOPIC, -1, "s")["mark_delete_position"] == 299


def test_a_deliver_time_between_two_milliseconds_is_the_next_one(engine):
    engine.publish(TOPIC, -1, [1], START, deliver_at_time=1000 * START + 1_000_001)
    engine.round(join(), START)
    assert next_due(engine.rounds.bundle, START * 1000) == (START + 1_001) * 1000
    assert positions(engine.round([], START + 1_000)) == []
    assert positions(engine.round([], START + 1_001)) == [0]


def test_a_delivery_says_its_positions_in_the_order_they_came_due(engine):
    publish(engine, 3_000, 1_000, None, 2_000)
    engine.round(join(), START)
    engine.round([], START + 3_000)
    rows = read_round(engine.layout.broker_table("cursor_ledger"), engine.rounds.bundle.version).to_pylist()
    (row,) = [row for row in rows if row["kind"] == "range"]
    assert (row["first"], row["last"], row["positions"]) == (0, 3, [1, 3, 0])
    engine.restart(START + 3_001)
    assert kept(engine) == [(0, 1, PENDING), (2, 2, PENDING), (3, 3, PENDING)], "of two rounds"


def test_a_topic_without_delays_knows_nothing_of_them(engine):
    engine.publish(TOPIC, -1, [1] * 5)
    engine.round(join(), START)
    assert cursor_of(engine).dues is None


@pytest.mark.parametrize("subscription_type", ["Shared", "KeyShared"])
def test_a_restart_at_any_round_changes_nothing(tmp_path, subscription_type):
    """Rounds with what waits, what is in motion, what came back, what is kept apart; the same without a restart."""

    def play(root, restarts: bool) -> tuple:
        engine = new_engine(None, root)
        engine.create_topic(TOPIC)
        publish(engine, 3_000, None, 1_000, 2_000, 4_000, None, 9_000, keys=None)
        found = []
        for number, (now, requests) in enumerate(
            [
                (0, join(permits=4, subscription_type=subscription_type)),
                (1_000, [ON.ack(1), ON.ack(4)]),
                (2_000, [ON.negative_ack("A", 2, delay_ms=500)]),
                (2_600, [ON.reschedule(6, deliver_at_ms=START + 5_000)]),
                (3_000, [ON.ack(5), ON.negative_ack("A", 3), ON.flow("A", 1)]),
                (4_500, [ON.flow("A", 9)]),
                (5_000, [ON.ack(2, 3)]),
                (5_001, [ON.ack(0), ON.ack(6)]),
            ]
        ):
            if restarts:
                engine.restart(START + now)
                engine.committed()
            result = engine.round(requests, START + now)
            found.append((number, positions(result), engine.state(TOPIC, -1, "s")))
        return found

    plain, restarted = play(tmp_path / "plain", False), play(tmp_path / "restarted", True)
    for (number, *left), (_, *right) in zip(plain, restarted, strict=True):
        assert left == right, number
    assert plain[-1][2]["mark_delete_position"] == 6
    assert sorted({position for _, found, _ in plain for position in found}) == [0, 1, 2, 3, 5, 6], "not 4"


def test_the_clock_set_back_delivers_nothing_early_and_nothing_never(engine):
    publish(engine, 1_000, 5_000)
    engine.round(join(), START)
    assert positions(engine.round([], START + 4_000)) == [0]
    publish(engine, 1_000, 4_500, at=START)
    assert positions(engine.round([], START + 10)) == [], "one of these is due before what was promoted"
    engine.restart(START + 20)
    assert positions(engine.committed()) == []
    assert next_due(engine.rounds.bundle, (START + 20) * 1000) == (START + 1_000) * 1000
    assert positions(engine.round([], START + 999)) == []
    assert positions(engine.round([], START + 1_000)) == [2]
    assert positions(engine.round([], START + 4_499)) == []
    assert positions(engine.round([], START + 4_500)) == [3]
    assert positions(engine.round([], START + 5_000)) == [1]


def test_what_came_due_and_was_not_taken_goes_out_later(engine):
    publish(engine, 1_000, 2_000, 2_500, HOUR)
    engine.round(join(permits=1), START)
    assert positions(engine.round([], START + 3_000)) == [0]
    assert positions(engine.round([ON.flow("A", 1)], START + 3_001)) == [1]
    engine.restart(START + 3_002)
    assert positions(engine.round([ON.flow("A", 1)], START + 3_003)) == [2]


def test_promoted_entries_wait_where_the_clock_is_set_back_before_anybody_takes_them(engine):
    publish(engine, 1_000, 2_000)
    engine.round(join(permits=1), START)
    assert positions(engine.round([], START + 3_000)) == [0]
    assert positions(engine.round([ON.flow("A", 9)], START + 1_500)) == [], "number 1 is not due by this clock"
    assert next_due(engine.rounds.bundle, (START + 1_500) * 1000) == (START + 2_000) * 1000
    assert positions(engine.round([], START + 2_000)) == [1]


def test_what_is_promoted_and_not_due_by_the_clock_waits_whatever_else_the_round_does(engine):
    publish(engine, 1_000, 2_000)
    engine.round(join(permits=1), START)
    assert positions(engine.round([], START + 3_000)) == [0]
    assert positions(engine.round([ON.ack(0), ON.flow("A", 9)], START + 1_999)) == []
    assert positions(engine.round([], START + 2_000)) == [1]


def test_exclusive_gets_all_and_what_is_left_waits_again(engine):
    publish(engine, HOUR, None, 2 * HOUR, 1_000)
    engine.round(join(permits=9), START)
    assert positions(engine.round([], START + 1_000)) == [3]
    engine.round([ON.ack(1), ON.ack(3), ON.close("A")], START + 1_001)
    engine.round([ON.subscribe("E", "Exclusive", lease_ms=HOUR), ON.flow("E", 1)], START + 1_002)
    assert cursor_of(engine).dues is None
    assert kept(engine) == [(0, 0, PENDING), (1, 1, ACKNOWLEDGED), (3, 3, ACKNOWLEDGED)]
    engine.round([ON.close("E"), *join(permits=9)], START + 1_003)
    assert engine.state(TOPIC, -1, "s")["waits"] == {0: START + HOUR, 2: START + 2 * HOUR}
    assert positions(engine.round([], START + HOUR)) == [0]
    assert positions(engine.round([], START + 2 * HOUR)) == [2]
    engine.round([ON.ack(0), ON.ack(2)], START + 2 * HOUR)
    assert engine.state(TOPIC, -1, "s")["mark_delete_position"] == 3


def test_delays_are_switched_off_and_on(engine):
    publish(engine, HOUR, None, 1_000)
    engine.round(join(permits=1), START)
    assert positions(engine.round([ON.flow("A", 1)], START + 1_000)) == [2]
    engine.round([ON.policy("delayed_delivery_active", 0)], START + 1_001)
    assert cursor_of(engine).dues is None
    assert positions(engine.round([ON.flow("A", 1)], START + 1_002)) == [0], "at once"
    engine.round([ON.negative_ack("A", 0), ON.policy("delayed_delivery_active", 1)], START + 1_003)
    publish(engine, 5_000)
    assert positions(engine.round([ON.flow("A", 9)], START + 1_004)) in ([], [0])
    assert 3 in positions(engine.round([], START + 5_000))


def test_skip_counts_what_waits_and_what_is_behind_it(engine):
    publish(engine, None, HOUR, None, HOUR, None)
    engine.round(join(permits=1), START)
    result = engine.round([ON.skip(3)], START + 1)
    assert [reply.text for reply in result["replies"]] == ["3"]
    assert engine.state(TOPIC, -1, "s")["mark_delete_position"] == 2
    assert positions(engine.round([ON.flow("A", 9)], START + HOUR)) == [3, 4]


def test_clear_backlog_keeps_nothing_of_very_many(engine):
    publish(engine, *[None, HOUR] * 50)
    engine.round(join(permits=10), START)
    engine.round([ON.clear_backlog()], START + 1)
    assert kept(engine) == [] and engine.state(TOPIC, -1, "s")["mark_delete_position"] == 99
    publish(engine, 1_000)
    engine.round([ON.flow("A", 9)], START + 2)
    assert positions(engine.round([], START + HOUR)) == [100], "what was cleared never comes"


def test_what_comes_due_is_read_from_the_index_in_parts(engine, monkeypatch):
    monkeypatch.setattr(dues, "MOST_READ", 2)
    publish(engine, *[1_000, 2_000, 3_000, 3_000, 3_000, 4_000])
    engine.round(join(), START)
    assert positions(engine.round([], START + 5_000)) == [0, 1, 2, 3, 4, 5]


def test_a_second_subscription_and_one_without_consumers(engine):
    other = On(TOPIC, subscription="other")
    publish(engine, 2_000, 1_000)
    engine.round([*join(), other.create_subscription("Earliest")], START)
    assert sorted(positions(engine.round([], START + 2_000))) == [0, 1]
    engine.round([ON.ack(0, 1)], START + 2_001)
    late = engine.round([other.subscribe("B", lease_ms=HOUR), other.flow("B", 9)], START + HOUR)
    assert positions(late) == [0, 1], "both had come due before it met them"


def test_rounds_for_what_comes_due_keep_a_tick_apart(engine):
    publish(engine, 1_000, 1_010, 1_020, 9_000)
    engine.round(join(), START)
    assert next_due(engine.rounds.bundle, START * 1000) == (START + 1_000) * 1000, "the first one to the microsecond"
    assert positions(engine.round([], START + 1_000)) == [0]
    assert next_due(engine.rounds.bundle, (START + 1_000) * 1000) == (START + 2_000) * 1000, "a tick later"
    assert positions(engine.round([ON.ack(0)], START + 1_015)) == [1], "in rounds that are made anyway nothing waits"
    assert positions(engine.round([], START + 2_015)) == [2]
    assert next_due(engine.rounds.bundle, (START + 2_015) * 1000) == (START + 9_000) * 1000


def test_a_round_in_which_nothing_came_due_puts_off_nothing(engine):
    publish(engine, 1_000)
    engine.round(join(), START)
    assert positions(engine.round([ON.flow("A", 1)], START + 999)) == []
    assert next_due(engine.rounds.bundle, (START + 999) * 1000) == (START + 1_000) * 1000, "not a tick behind 999"


def test_a_topic_made_again_starts_clean(engine):
    publish(engine, 1_000, 2_000)
    engine.round(join(), START)
    engine.round([], START + 1_000)
    shutil.rmtree(engine.rounds.bundle.topics[TOPIC].topic.path)
    engine.create_topic(TOPIC)
    engine.round(join(), START + 1_500)
    publish(engine, 4_000)
    engine.round([], START + 1_501)
    assert positions(engine.round([], START + 2_000)) == []
    assert positions(engine.round([], START + 4_000)) == [0]


def test_dead_letters_and_retry_letters_of_what_came_due(engine):
    publish(engine, 2_000, 1_000, None)
    engine.round([ON.subscribe("A", lease_ms=HOUR, max_redeliver_count=1), ON.flow("A", 99)], START)
    engine.round([], START + 2_000)
    engine.round([ON.negative_ack("A", 0), ON.reconsume_later(1)], START + 2_001)
    engine.round([ON.negative_ack("A", 0)], START + 2_002)
    assert [letter.position for letter in engine.letters(TOPIC, "s")] == [0]
    assert [letter.position for letter in engine.letters_put_off(TOPIC, "s")] == [1]
    assert [status for *_, status in kept(engine)] == [PENDING], "entry 2"


def test_what_is_acknowledged_as_a_delivery(engine):
    publish(engine, 2_000, None, 1_000, 3_000)
    engine.round(join(), START)
    engine.round([], START + 2_000)
    number = engine.rounds.bundle.round
    engine.round([ON.ack(0, 3, consumer="A", delivery_round=number)], START + 2_001)
    state = engine.state(TOPIC, -1, "s")
    assert (state["mark_delete_position"], state["acknowledged"]) == (0, [(2, 2)])
    assert (list(state["pending"]), list(state["waits"])) == ([1], [3])


def test_time_to_live_passes_over_what_waits_while_nobody_can_take_anything(engine):
    publish(engine, HOUR)
    engine.round([ON.policy("message_ttl_seconds", 2), ON.subscribe("A", lease_ms=HOUR)], START)
    engine.restart(START + 5_000)
    engine.round([], START + 5_000)
    state = engine.state(TOPIC, -1, "s")
    assert (state["read_position"], state["waits"], state["mark_delete_position"]) == (1, {0: START + HOUR}, -1)


def test_time_to_live_makes_nothing_wait_of_what_is_acknowledged(engine):
    """In a round before, or in its own; one for what is not."""
    publish(engine, HOUR, HOUR)
    ttl = ON.policy("message_ttl_seconds", 2)
    engine.round([ttl, ON.create_subscription("Earliest"), ON.ack(1)], START)
    engine.round([ON.ack(0)], START + 70_000)
    state = engine.state(TOPIC, -1, "s")
    assert (state["waits"], state["mark_delete_position"], kept(engine)) == ({}, 1, [])
    publish(engine, HOUR, at=START + 70_000)
    engine.round([], START + 140_000)
    assert engine.state(TOPIC, -1, "s")["mark_delete_position"] == 1


def test_parts_of_a_batch_acknowledged_while_it_waits(engine):
    engine.publish(TOPIC, -1, [3, 1], START, deliver_at_ms=[START + 1_000, None])
    engine.round(join(), START)
    engine.round([ON.ack(0, ack_set=[0b101])], START + 1)
    assert [status for *_, status in kept(engine)] == [REPLAY, PENDING]
    (delivery,) = engine.round([], START + 1_000)["deliveries"]
    assert (delivery.position, delivery.ack_set) == (0, (0b101,))
    engine.round([ON.ack(0), ON.ack(1)], START + 1_001)
    assert engine.state(TOPIC, -1, "s")["mark_delete_position"] == 1 and kept(engine) == []


@pytest.fixture
def lost_index(engine, monkeypatch):
    """Restarts a broker without its delay index, which is made anew when that is called."""
    monkeypatch.setattr(delay_index, "AT_ONCE", 0)

    def lose(now: int) -> DelayUpkeep:
        index = delay_index.DelayIndex(engine.layout, is_attended=True)
        monkeypatch.setattr("tests.support.spark_engine.load_bundle", lambda layout: load_bundle(layout, index))
        engine.restart(now)
        return DelayUpkeep(index)

    return lose


def test_others_go_on_while_the_index_of_a_topic_is_made_anew(engine, lost_index):
    """What waits there goes on waiting, and nothing else does."""
    another = "persistent://public/default/u"
    other = On(another)
    engine.create_topic(another)
    publish(engine, 1_000, 2_000, None)
    engine.round(join(permits=2), START)
    assert positions(engine.round([], START + 1_000)) == [0]
    upkeep = lost_index(START + 1_001)
    engine.publish(another, -1, [1])
    asked = [other.subscribe("C", lease_ms=HOUR), other.flow("C", 9), ON.flow("A", 9)]
    found = engine.round(asked, START + 3_000)["deliveries"]
    assert [(each.topic, each.position) for each in found] == [(another, 0)]
    assert positions(engine.round([ON.ack(0)], START + 3_001)) == []
    upkeep.work()
    assert engine.rounds.is_due()
    assert positions(engine.round([], START + 3_001)) == [1]
    assert engine.state(TOPIC, -1, "s")["mark_delete_position"] == 0


def test_what_was_acknowledged_while_the_index_was_made_anew_comes_to_nobody(engine, lost_index):
    """It was out then: the entries know it as acknowledged when the index is there again."""
    publish(engine, 1_000, HOUR)
    engine.round(join(), START)
    assert positions(engine.round([], START + 1_000)) == [0]
    upkeep = lost_index(START + 1_001)
    engine.round([ON.ack(0)], START + 1_002)
    upkeep.work()
    engine.round([], START + 1_003)
    engine.round([ON.close("A")], START + 1_004)
    assert positions(engine.round(join(), START + 1_005)) == []


def delete(engine: SparkEngine, predicate: str, *, is_vacuumed: bool) -> None:
    table = DeltaTable(str(engine.rounds.bundle.topics[TOPIC].topic.path))
    table.delete(predicate)
    if is_vacuumed:
        table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)


def test_entries_deleted_from_the_topic_wait_all_the_same(engine):
    """Whoever counts them counts the same, and their numbers stay: nothing is sent again."""
    publish(engine, *range(1_000, 9_000, 1_000))
    engine.round(join(permits=4), START)
    engine.round([], START + 6_000)
    engine.round([ON.ack(0), ON.ack(2)], START + 6_001)
    delete(engine, "entry_id = 1 or entry_id = 7", is_vacuumed=False)
    for _ in range(2):
        stats = engine.stats(TOPIC, "s")
        assert (stats["msgBacklog"], stats["msgDelayed"]) == (6, 2)
        engine.restart(START + 6_002)
    engine.round([ON.close("A")], START + 6_003)
    found = engine.round([ON.subscribe("B", lease_ms=HOUR), ON.flow("B", 99)], START + 6_004)
    assert sorted(positions(found)) == [1, 3, 4, 5]
    assert sorted(positions(engine.round([], START + 9_000))) == [6, 7]
    engine.round([ON.ack(1), ON.ack(3, 7)], START + 9_001)
    assert engine.state(TOPIC, -1, "s")["mark_delete_position"] == 7 and kept(engine) == []


def play(root, crash: tuple[int, str, str] | None) -> tuple[set[int], dict]:
    """What is delivered, and what is left in the end, of a history in which a broker dies at a write of one round."""
    engine, delivered = new_engine(None, root), set()
    engine.create_topic(TOPIC)
    for step, (delays, requests) in enumerate(
        [
            ([1_000, None, 2_000, 9_000], join(permits=9)),
            ([500, None], [ON.ack(1)]),
            ([], [ON.ack(0), ON.negative_ack("A", 4), ON.ack(3)]),
            ([700], [ON.reschedule(2, deliver_at_ms=START + 3_500), ON.ack(5)]),
        ]
    ):
        engine.now_ms = START + 1_000 * step
        if delays:
            publish(engine, *delays, at=engine.now_ms)
        asked = [request_of(row) for row in requests]
        if crash and crash[0] == step:
            with crash_at(engine, *crash[1:]), pytest.raises(Crash):
                engine.rounds.run(asked, step + 1)
            engine.start()
            engine.rounds.take_over()
        if engine.rounds.bundle.requests_version <= step:
            engine.rounds.run(asked, step + 1)
        delivered |= set(positions(engine.committed()))
    delivered |= set(positions(engine.round([ON.ack(4)], START + 9_000)))
    return delivered, engine.state(TOPIC, -1, "s") | {"consumers": None}


@pytest.fixture(scope="module")
def uncrashed(tmp_path_factory):
    return play(tmp_path_factory.mktemp("uncrashed"), None)


@pytest.mark.default
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("number", "table"), [*((n, "ledgers") for n in (0, 1, 3)), *((n, "cursor_ledger") for n in range(4))]
)
def test_a_crash_at_any_write_changes_nothing(tmp_path, uncrashed, number, table, when):
    delivered, left = play(tmp_path, (number, table, when))
    assert delivered == {0, 1, 2, 4, 5, 6}, "not 3, which was acknowledged while it waited"
    assert (delivered, left) == uncrashed


def test_what_an_earlier_release_kept_as_rows_waits_on(engine, monkeypatch):
    """Its runs say nothing of delays, so what waits of them is a row until it is due; it goes in order with the
    rest."""

    def number_as_before(*arguments, delayed_after):
        return number_commit(*arguments)

    with monkeypatch.context() as before:
        before.setattr(numbering, "number_commit", number_as_before)
        publish(engine, 3_000, 1_000, None, 5_000)
        engine.round(join(permits=2), START)
    assert kept(engine) == [(0, 1, REPLAY)] or kept(engine) == [(0, 0, REPLAY), (1, 1, REPLAY)]
    assert cursor_of(engine).dues is None
    engine.restart(START + 1)
    publish(engine, 2_000, 4_000)
    engine.round([ON.flow("A", 9)], START + 2)
    assert engine.state(TOPIC, -1, "s")["mark_delete_position"] == -1
    found = [positions(engine.round([], START + now)) for now in (1_000, 2_000, 3_000, 4_000, 5_000)]
    assert found == [[1], [4], [0], [5], [3]]
    engine.round([ON.ack(0, 5)], START + 5_001)
    assert (kept(engine), engine.state(TOPIC, -1, "s")["mark_delete_position"]) == ([], 5)


def test_what_exclusive_handed_out_too_early_waits_again(engine):
    """In the round in which the type changes, too: nothing of it goes out before its time, and nothing else is
    forgotten."""
    publish(engine, HOUR, None, 2 * HOUR, 1_000)
    engine.round(join(permits=9), START)
    engine.round([ON.close("A"), ON.subscribe("E", "Exclusive", lease_ms=HOUR), ON.flow("E", 3)], START + 10)
    assert [status for *_, status in kept(engine)] == [PENDING]
    publish(engine, 3 * HOUR, 2_000)
    found = engine.round([ON.close("E"), *join(permits=9)], START + 20)
    assert positions(found) == [1], "the one that waits for nothing"
    assert set(engine.state(TOPIC, -1, "s")["waits"]) == {0, 2, 3, 4, 5}
    late = [positions(engine.round([], START + now)) for now in (1_000, 2_000, HOUR, 2 * HOUR, 3 * HOUR)]
    assert late == [[3], [5], [0], [2], [4]]


def test_what_is_done_ahead_of_the_read_position_is_no_backlog(engine):
    """Cancelled, or come due to who has not read so far."""
    publish(engine, None, 1_000, None, None, HOUR, 1_000, HOUR)
    engine.round(join(permits=1), START)
    result = engine.round([ON.cancel(4)], START)
    stats = engine.stats(TOPIC, "s")
    assert [reply.text for reply in result["replies"]] == ["1"]
    assert (cursor_of(engine).read_position, stats["msgBacklog"], stats["msgDelayed"]) == (1, 6, 3)
    due = engine.round([ON.flow("A", 2)], START + 1_000)
    engine.round([ON.ack(position) for position in positions(due)], START + 1_001)
    stats = engine.stats(TOPIC, "s")
    assert (positions(due), stats["msgBacklog"], stats["msgDelayed"]) == ([1, 5], 4, 1)


def test_given_back_for_later_by_several_holders_of_keys(engine):
    publish(engine, *[None, 1_000] * 20, keys=[(Key(f"k{number}"),) for number in range(40)])
    engine.round([*join(subscription_type="KeyShared"), ON.subscribe("B", "KeyShared", lease_ms=HOUR)], START - 1)
    engine.round([ON.flow("B", 99)], START)
    engine.round([], START + 1_000)
    out = engine.state(TOPIC, -1, "s")["pending"]
    assert len(out) == 40 and {holder for holder, *_ in out.values()} == {"A", "B"}
    back = [ON.negative_ack(holder, position, delay_ms=500) for position, (holder, *_) in out.items()]
    assert positions(engine.round(back, START + 1_001)) == []
    assert engine.latest.set_aside == {}
    assert sorted(positions(engine.round([], START + 1_501))) == [*range(40)]


def test_what_waits_is_counted_in_entries_as_the_backlog_is(engine):
    """Whether they wait in the index or were moved."""
    engine.publish(TOPIC, -1, [3, 3], START, deliver_at_ms=[START + HOUR] * 2)
    engine.round(join(), START)
    engine.round([ON.reschedule(1, deliver_at_ms=START + 1_000)], START)
    stats = engine.stats(TOPIC, "s")
    assert (stats["msgBacklog"], stats["msgDelayed"]) == (2, 2)
