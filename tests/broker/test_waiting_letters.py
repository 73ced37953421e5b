"""Letters that cannot be written: refused when they are asked for where that is known, else they wait, hold back
nobody, and are written once."""

import errno
import logging
import os
import random
import shutil
from collections import Counter
from pathlib import Path

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from pulsar_spark.broker.committing import snapshots
from pulsar_spark.broker.cursors import subscribe_requests
from pulsar_spark.broker.letters import letter_orders, letter_rows
from pulsar_spark.broker.letters import letters as letters_module
from pulsar_spark.broker.round import pipeline
from pulsar_spark.protocol.redelivery.letters import dead_letter_topic, retry_letter_topic
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.entries.entries import EntryReader
from pulsar_spark.storage.entries.missing import Missing
from tests.support.crashes import Crash, crash_at
from tests.support.model_cursor import Letter
from tests.support.next_due import next_due
from tests.support.requests import On
from tests.support.spark_engine import SparkEngine, new_engine

RANDOM_RUNS = int(os.environ.get("PULSAR_SPARK_LETTER_RUNS", "10"))
"""Runs of random failures and crashes: few in the suite, hundreds by hand."""
TOPIC = "persistent://public/default/t"
LONG = "persistent://public/default/" + "t" * 20
LONG_SUBSCRIPTION = "s" * 190
ON = On(TOPIC)
CAPITALS = "A" * 84


def die(engine: SparkEngine, on: On, second: int, *positions: int) -> None:
    """Entries that A was delivered are given back until they die, in two rounds from *second* on."""
    for number in range(2):
        engine.round([on.negative_ack("A", position) for position in positions], 1000 * (second + number))


def subscribe(engine: SparkEngine, on: On, **policy) -> list:
    return engine.round(
        [on.subscribe("A", max_redeliver_count=1, lease_ms=86_400_000, **policy), on.flow("A", 99)], 1000
    )["replies"]


def waiting(engine: SparkEngine) -> list[dict]:
    """The rows of letters that wait, as committed."""
    engine.committed()
    return list(engine.latest.waiting_letters.values())


def settle(engine: SparkEngine, second: int) -> None:
    """Rounds until nothing is left to do now."""
    engine.now_ms = 1000 * second
    while engine.rounds.run([], engine.rounds.bundle.requests_version).is_committed:
        pass


@pytest.fixture
def accepting(monkeypatch):
    """A broker of an older release, which accepts every policy."""
    monkeypatch.setattr(subscribe_requests, "check_letter_topic", lambda *_, **__: None)


# Names.


@pytest.mark.parametrize(
    "subscription, policy, too_many",
    [
        (LONG_SUBSCRIPTION, {}, 15),
        ("s", {"dead_letter_topic": CAPITALS}, 5),
        ("S" * 76, {}, 12),
        ("s", {"dead_letter_topic": "é" * 42}, 5),
    ],
)
def test_a_policy_whose_letters_could_have_no_topic_is_refused(engine, subscription, policy, too_many):
    engine.create_topic(LONG)
    on = On(LONG, subscription=subscription)
    (reply,) = subscribe(engine, on, **policy)
    assert reply.error == "InvalidTopicName"
    for said in (f"{too_many} too many", repr(subscription), "dead_letter_topic"):
        assert said in reply.text
    assert engine.subscriptions(LONG) == []
    (reply,) = subscribe(engine, on, dead_letter_topic="graves")
    assert reply.error is None, "what the message says helps"


def test_putting_off_to_a_topic_that_cannot_be_is_refused(engine):
    engine.publish(TOPIC, -1, [1])
    replies = engine.round(
        [ON.create_subscription("Earliest"), ON.reconsume_later(0, letter_topic=CAPITALS, receipt=True)], 1
    )["replies"]
    assert [reply.error for reply in replies] == [None, "InvalidTopicName"]
    assert engine.state(TOPIC, -1, "s")["mark_delete_position"] == -1


@pytest.mark.parametrize(
    "on, policy", [(On(LONG, subscription=LONG_SUBSCRIPTION), {}), (On(LONG), {"dead_letter_topic": CAPITALS})]
)
def test_a_root_that_accepted_such_a_policy_serves(tmp_path, accepting, monkeypatch, on, policy):
    """And one whose broker died of it: its letters wait, and everybody else's are written in the same round."""
    engine = new_engine(None, tmp_path)
    for topic in (TOPIC, LONG):
        engine.create_topic(topic)
        engine.publish(topic, -1, [1, 3, 1])
    subscribe(engine, on, **policy)
    subscribe(engine, ON)
    engine.round([each.negative_ack("A", 0, 1) for each in (on, ON)], 2000)
    with monkeypatch.context() as older:
        older.setattr(pipeline, "write_projections", lambda *_: (_ for _ in ()).throw(Crash()))
        with pytest.raises(Crash):
            engine.round([each.negative_ack("A", 0, 1) for each in (on, ON)], 3000)
    for _ in range(2):
        engine.restart(4000)
        settle(engine, 4)
        assert engine.letters(TOPIC, "s") == [Letter(-1, 0, -1, 2), *(Letter(-1, 1, index, 2) for index in range(3))]
        found = [
            (row["topic"], row["subscription"], row["first"], row["last"], row["error"], row["status"])
            for row in waiting(engine)
        ]
        assert found == [
            (LONG, on.where["subscription"], position, position, "InvalidTopicName", "dead") for position in (0, 1)
        ]
    assert engine.round([on.flow("A", 9), on.ack(2)], 5000)["deliveries"] == []
    assert engine.state(LONG, -1, on.where["subscription"])["mark_delete_position"] == 2


# What waits, and how long.

GRAVES = dead_letter_topic(TOPIC, "s")
OTHER = On(TOPIC, subscription="other")


def in_the_way(engine: SparkEngine, topic: str = GRAVES) -> Path:
    """Something else lies where the topic's table would."""
    place = engine.layout.topic(parse_topic_name(topic))
    place.write_text("a file")
    return place


def test_a_letter_waits_is_tried_at_growing_intervals_and_is_written_once(engine, caplog):
    engine.publish(TOPIC, -1, [1, 2, 1], payload=b"secret")
    subscribe(engine, ON)
    subscribe(engine, OTHER)
    place = in_the_way(engine)
    with caplog.at_level(logging.WARNING, "pulsar_spark"):
        engine.round([each.negative_ack("A", position) for each in (ON, OTHER) for position in (0, 1)], 2000)
        engine.round([each.negative_ack("A", position) for each in (ON, OTHER) for position in (0, 1)], 3000)
    assert [(record.levelname, record.exc_info is not None) for record in caplog.records] == [("ERROR", True)]
    assert "subscription 's'" in caplog.text and "secret" not in caplog.text
    assert len(engine.letters(TOPIC, "other")) == 3, "another subscription's letters of the same round"
    tries = []
    for second in range(3, 40):
        settle(engine, second)
        tries.append(waiting(engine)[0]["msg_out_counter"])
    assert Counter(tries) == {1: 1, 2: 2, 3: 4, 4: 8, 5: 16, 6: 6}
    due = next_due(engine.rounds.bundle, engine.rounds.bundle.now.own)
    assert due == 1_000_000 * (34 + 32), "the broker's loop knows when"
    assert engine.state(TOPIC, -1, "s")["mark_delete_position"] == 1, "the round is not held back"
    place.unlink()
    settle(engine, 65)
    assert engine.letters(TOPIC, "s") == []
    settle(engine, 66)
    assert engine.letters(TOPIC, "s") == [Letter(-1, 0, -1, 2), Letter(-1, 1, 0, 2), Letter(-1, 1, 1, 2)]
    assert waiting(engine) == []
    before = engine.number
    settle(engine, 1000)
    assert engine.number == before, "and nothing is left to do"


def test_letters_put_off_wait_too(engine):
    engine.publish(TOPIC, -1, [1, 1])
    engine.round([ON.create_subscription("Earliest"), ON.reconsume_later(1)], 1000)
    retries = retry_letter_topic(TOPIC, "s")
    place, resolve = engine.layout.topic(parse_topic_name(retries)), letter_orders.resolve_topic

    def replaced_meanwhile(*arguments, **named):
        if place.is_dir():
            shutil.rmtree(place)
            in_the_way(engine, retries)
        return resolve(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(letter_orders, "resolve_topic", replaced_meanwhile)
        engine.round([ON.reconsume_later(0, deliver_at_ms=9000)], 2000)
    settle(engine, 2)
    assert [(row["status"], row["first"], row["error"]) for row in waiting(engine)] == [
        ("retry", 0, "NotADirectoryError")
    ]
    place.unlink()
    settle(engine, 4)
    (letter,) = engine.rows(retries)
    assert (letter["properties"]["PLACE"], letter["deliver_at_time"].timestamp()) == ("-1,0,-1", 9.0)
    assert waiting(engine) == []


def lose_file(engine: SparkEngine, ledger: int) -> tuple[Path, bytes]:
    """Take away the file of a publish commit; where it was, and what it held."""
    path = engine.tables[TOPIC].path
    name = engine.rounds.bundle.topic(TOPIC).log.commit(ledger).added[0].path
    file = Path(path) / name
    content = file.read_bytes()
    file.unlink()
    return file, content


def test_the_file_of_a_message_that_dies_is_gone(engine):
    """Its letters wait; those of other files, of a range across both, and of the other subscription do not."""
    for _ in range(3):
        engine.publish(TOPIC, -1, [1, 1])
    subscribe(engine, ON)
    engine.round([ON.redeliver_all("A")], 2000)
    file, content = lose_file(engine, 2)
    engine.round([ON.redeliver_all("A")], 3000)
    settle(engine, 3)
    assert [letter.position for letter in engine.letters(TOPIC, "s")] == [0, 1, 4, 5]
    assert [(row["first"], row["last"]) for row in waiting(engine)] == [(2, 3)]
    assert waiting(engine)[0]["error"] == "MessagesLost"
    file.write_bytes(content)
    settle(engine, 5)
    assert [letter.position for letter in engine.letters(TOPIC, "s")] == list(range(6))
    assert waiting(engine) == []


def test_one_letter_that_cannot_be_made_waits_alone(engine, monkeypatch):
    engine.publish(TOPIC, -1, [1, 3, 1])
    subscribe(engine, ON)
    made = letter_rows._properties

    def fails_for_one(order, properties, message_id):
        if (message_id.entry_id(), message_id.batch_index()) == (1, 1):
            raise ValueError("no such letter")
        return made(order, properties, message_id)

    with monkeypatch.context() as patch:
        patch.setattr(letter_rows, "_properties", fails_for_one)
        die(engine, ON, 2, 0, 1, 2)
        settle(engine, 3)
    assert engine.letters(TOPIC, "s") == [
        Letter(-1, 0, -1, 2),
        Letter(-1, 1, 0, 2),
        Letter(-1, 1, 2, 2),
        Letter(-1, 2, -1, 2),
    ]
    (row,) = waiting(engine)
    assert (row["first"], row["last"], row["ack_set"], row["error"], row["text"]) == (
        1,
        1,
        [0b010],
        "ValueError",
        "no such letter",
    )
    settle(engine, 5)
    assert engine.letters(TOPIC, "s") == [
        Letter(-1, 0, -1, 2),
        *(Letter(-1, 1, index, 2) for index in range(3)),
        Letter(-1, 2, -1, 2),
    ]


def test_one_letter_that_no_table_takes_waits_alone(engine, monkeypatch):
    engine.publish(TOPIC, -1, [1] * 4)
    subscribe(engine, ON)
    made = letter_rows._properties

    def broken_for_one(order, properties, message_id):
        return made(order, properties, message_id) + ([("number", 5)] if message_id.entry_id() == 2 else [])

    with monkeypatch.context() as patch:
        patch.setattr(letter_rows, "_properties", broken_for_one)
        die(engine, ON, 2, 0, 1, 2, 3)
        settle(engine, 3)
    assert [letter.position for letter in engine.letters(TOPIC, "s")] == [0, 1, 3]
    assert [(row["first"], row["last"], row["error"]) for row in waiting(engine)] == [(2, 2, "ArrowTypeError")]


def test_bad_letters_among_many_are_found_by_halves(engine, monkeypatch):
    """A commit may hold thousands: trying each by itself would take half a minute."""
    engine.publish(TOPIC, -1, [1] * 48)
    subscribe(engine, ON)
    made, make_rows, tried = letter_rows._properties, letters_module.rows_of, []

    def broken_for_two(order, properties, message_id):
        return made(order, properties, message_id) + ([("number", 5)] if message_id.entry_id() in (5, 40) else [])

    def counted(blocks, *rest):
        tried.append(sum(block.number for block in blocks))
        return make_rows(blocks, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(letter_rows, "_properties", broken_for_two)
        patch.setattr(letters_module, "rows_of", counted)
        engine.round([ON.redeliver_all("A")], 2000)
        engine.round([ON.redeliver_all("A")], 3000)
        settle(engine, 3)
    assert tried[:3] == [48, 48, 24] and len(tried) < 30
    assert [(row["first"], row["last"], row["error"]) for row in waiting(engine)] == [
        (5, 5, "ArrowTypeError"),
        (40, 40, "ArrowTypeError"),
    ]
    settle(engine, 5)
    assert [letter.position for letter in engine.letters(TOPIC, "s")] == list(range(48))
    assert waiting(engine) == []


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_fault_of_the_whole_root_is_no_letters_fault(engine, monkeypatch, fault):
    """The broker does not go on to another round without them."""
    engine.publish(TOPIC, -1, [1, 1])
    subscribe(engine, ON)
    engine.round([ON.negative_ack("A", 0)], 2000)

    def fails(*_):
        raise OSError(fault, "fault")

    with monkeypatch.context() as patch:
        patch.setattr(AppendTable, "append_once", fails)
        for request in (ON.negative_ack("A", 0), ON.ack(1)):
            with pytest.raises(OSError, match="fault"):
                engine.round([request], 3000)
    assert waiting(engine) == []
    engine.round([ON.ack(1)], 4000)
    assert engine.letters(TOPIC, "s") == [Letter(-1, 0, -1, 2)]
    assert waiting(engine) == []


def test_messages_deleted_before_their_letter_was_written_are_counted(engine, caplog):
    engine.publish(TOPIC, -1, [1, 3, 1])
    subscribe(engine, ON)
    engine.round([ON.negative_ack("A", 0, 2)], 2000)
    table = DeltaTable(str(engine.tables[TOPIC].path))
    table.delete("entry_id = 1 and batch_index < 2")
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    with caplog.at_level(logging.WARNING, "pulsar_spark"):
        engine.round([ON.negative_ack("A", 0, 2)], 3000)
    settle(engine, 3)
    assert engine.letters(TOPIC, "s") == [Letter(-1, 0, -1, 2), Letter(-1, 1, 2, 2), Letter(-1, 2, -1, 2)]
    assert "2 messages were deleted or trimmed before" in caplog.text
    for _ in range(2):
        counted = {
            key.subscription: messages for key, messages in engine.rounds.bundle.waiting_letters.letterless.items()
        }
        assert counted == {"s": 2}
        engine.restart(4000)
    assert waiting(engine) == []


def test_what_waits_is_carried_by_snapshots_and_survives_the_subscription(engine, monkeypatch):
    monkeypatch.setattr(snapshots, "SNAPSHOT_EVERY", 1)
    engine.publish(TOPIC, -1, [1, 1])
    subscribe(engine, ON)
    place = in_the_way(engine)
    die(engine, ON, 2, 0)
    engine.round([ON.unsubscribe(force=True)], 3500)
    for second in range(4, 9):
        engine.restart(1000 * second)
        settle(engine, second)
        assert [(row["first"], row["subscription"]) for row in waiting(engine)] == [(0, "s")]
    place.unlink()
    engine.restart(2_000_000)
    settle(engine, 2000)
    assert engine.letters(TOPIC, "s") == [Letter(-1, 0, -1, 2)]


def test_trimming_leaves_messages_whose_letters_wait(engine):
    from datetime import datetime, timezone

    from pulsar_spark.storage.topics.topics import read_topic
    from pulsar_spark.storage.upkeep.trimming import trim_topic

    for _ in range(3):
        engine.publish(TOPIC, -1, [1])
    subscribe(engine, ON)
    place = in_the_way(engine)
    die(engine, ON, 2, 1)
    engine.round([ON.ack(0), ON.ack(2)], 4000)
    settle(engine, 4)
    topic = read_topic(engine.layout, TOPIC)
    (trimmed,) = trim_topic(engine.layout, topic, [-1], now=datetime.now(timezone.utc))
    assert trimmed.trim.first_position == 1
    assert "letters to be written" in trimmed.trim.kept_by
    place.unlink()
    settle(engine, 9)
    assert engine.letters(TOPIC, "s") == [Letter(-1, 1, -1, 2)]
    (trimmed,) = trim_topic(engine.layout, topic, [-1], now=datetime.now(timezone.utc))
    assert trimmed.trim.first_position == 2


def test_letters_of_a_topic_that_was_deleted_are_not_waited_for(engine):
    from pulsar_spark.storage.topics.topics import delete_topic

    engine.publish(TOPIC, -1, [1])
    subscribe(engine, ON)
    in_the_way(engine)
    die(engine, ON, 2, 0)
    settle(engine, 3)
    delete_topic(engine.layout, TOPIC)
    settle(engine, 1000)
    assert waiting(engine) == []


# On demand.


def ask(engine: SparkEngine, kind: str, second: int, properties: dict | None = None, **where):
    from tests.support.requests import request

    (reply,) = engine.round([request(kind, client="admin", properties=properties, **where)], 1000 * second)["replies"]
    settle(engine, second)
    return reply


def two_waiting(engine: SparkEngine) -> Path:
    engine.publish(TOPIC, -1, [1, 2])
    subscribe(engine, ON)
    place = in_the_way(engine)
    die(engine, ON, 2, 0, 1)
    settle(engine, 63)
    return place


def test_letters_are_tried_again_when_asked(engine):
    place = two_waiting(engine)
    place.unlink()
    assert ask(engine, "retry_waiting_letters", 64, topic=TOPIC, subscription="other").text == "0"
    assert len(waiting(engine)) == 2
    name = "-".join(str(waiting(engine)[1][column]) for column in ("delivery_round", "join_order"))
    assert ask(engine, "retry_waiting_letters", 64, {"letter": name}).text == "2"
    assert [letter.position for letter in engine.letters(TOPIC, "s")] == [1, 1]
    assert ask(engine, "retry_waiting_letters", 64).text == "1"
    assert [letter.position for letter in engine.letters(TOPIC, "s")] == [0, 1, 1]
    assert waiting(engine) == []
    assert ask(engine, "retry_waiting_letters", 64, {"letter": name}).error == "InvalidMessage"


def test_letters_are_dropped_when_asked(engine):
    place = two_waiting(engine)
    assert ask(engine, "drop_waiting_letters", 64).error == "InvalidConfiguration"
    assert len(waiting(engine)) == 2
    assert ask(engine, "drop_waiting_letters", 64, {"all": "true"}).text == "3"
    assert waiting(engine) == []
    place.unlink()
    engine.restart(10**7)
    settle(engine, 10**4)
    assert engine.letters(TOPIC, "s") == []


# Once, whatever crashes when and whatever can be read when.


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("table", ["cursor_ledger", "letters"])
@pytest.mark.parametrize("at", range(4))
def test_a_crash_at_any_write_of_a_letter_that_waits(engine, table, when, at):
    """The round it dies in, the one that says that it waits, the one that tries it, the one that says it is written."""
    for _ in range(2):
        engine.publish(TOPIC, -1, [1, 1])
    subscribe(engine, ON)
    engine.round([ON.redeliver_all("A")], 2000)
    file, content = lose_file(engine, 2)
    asked = [ON.redeliver_all("A")]
    for number in range(5):
        if number == 2:
            file.write_bytes(content)
        second = 3 + 2 * number
        try:
            with crash_at(engine, table, when if number == at else "never"):
                engine.run(asked, 1000 * second)
                settle(engine, second)
            asked = []
        except Crash:
            engine.restart(1000 * second)
            asked = asked if engine.rounds.bundle.cursors[next(iter(engine.rounds.bundle.cursors))].unacked else []
        settle(engine, second)
    assert engine.letters(TOPIC, "s") == [Letter(-1, position, -1, 2) for position in range(4)]
    assert waiting(engine) == []


@pytest.mark.parametrize("seed", range(RANDOM_RUNS))
def test_random_failures_and_crashes_lose_nothing_and_write_nothing_twice(tmp_path, monkeypatch, seed):
    """Files that come and go, letters that fail now and then, commits of two letters, and brokers that die at any
    write."""
    drawn = random.Random(seed)
    monkeypatch.setattr(letters_module, "LETTERS_A_COMMIT", 2)
    monkeypatch.setattr(snapshots, "SNAPSHOT_EVERY", 4)
    engine = new_engine(None, tmp_path)
    engine.create_topic(TOPIC)
    sizes = [drawn.choice([1, 1, 3]) for _ in range(12)]
    for first in range(0, 12, 2):
        engine.publish(TOPIC, -1, sizes[first : first + 2])
    subscribe(engine, ON)
    engine.round([ON.redeliver_all("A")], 2000)
    read, made, append = EntryReader.read, letter_rows._properties, AppendTable.append_once
    broken, damaged, is_over = {drawn.randrange(1, 7) for _ in range(2)}, seed % 2, False

    def read_or_fail(self, path, run, spans):
        if run.ledger_id in broken and damaged:
            lost = run.last_entry_id
            for rows in read(self, path, run, spans):
                yield rows.filter(pc.not_equal(rows["entry_id"], lost))
            yield Missing(run.batch_size, [(lost, lost)], {}, run.path)
        elif run.ledger_id in broken:
            raise FileNotFoundError(errno.ENOENT, "gone", run.path)
        else:
            yield from read(self, path, run, spans)

    def make_or_fail(order, properties, message_id):
        if not is_over and drawn.random() < 0.1:
            raise ValueError("not now")
        return made(order, properties, message_id)

    def append_or_fail(self, *arguments):
        if not is_over and drawn.random() < 0.15:
            raise drawn.choice([PermissionError(errno.EACCES, "no"), Crash(), OSError(errno.ENOSPC, "full")])
        version = append(self, *arguments)
        if not is_over and drawn.random() < 0.15:
            raise Crash
        return version

    monkeypatch.setattr(EntryReader, "read", read_or_fail)
    monkeypatch.setattr(letter_rows, "_properties", make_or_fail)
    monkeypatch.setattr(AppendTable, "append_once", append_or_fail)
    asked = [ON.redeliver_all("A")]
    for second in range(3, 20):
        broken = {drawn.randrange(1, 7) for _ in range(drawn.choice([0, 1, 2]))}
        try:
            with crash_at(engine, "cursor_ledger", drawn.choice(["never", "never", "before", "after"])):
                engine.run(asked, 1000 * second)
            asked = []
            settle(engine, second)
        except Crash:
            while True:
                try:
                    engine.restart(1000 * second)
                    break
                except (Crash, OSError):
                    continue
            asked = asked if any(cursor.unacked for cursor in engine.rounds.bundle.cursors.values()) else []
        except OSError:
            asked = asked if engine.number == 3 else []
    broken, is_over = set(), True
    engine.run(asked, 20_000)
    for second in (1000, 2000, 3000):
        settle(engine, second)
    assert waiting(engine) == []
    expected = [
        Letter(-1, position, index, 2)
        for position, size in enumerate(sizes)
        for index in ([-1] if size == 1 else range(size))
    ]
    assert engine.letters(TOPIC, "s") == expected


def test_a_message_outside_a_batch_that_was_acknowledged_in_part_has_its_letter(engine):
    engine.publish(TOPIC, -1, [1])
    subscribe(engine, ON)
    engine.round([ON.ack(0, ack_set=[1])], 1500)
    die(engine, ON, 2, 0)
    assert engine.letters(TOPIC, "s") == [Letter(-1, 0, -1, 2)]
