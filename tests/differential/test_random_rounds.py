"""Random rows of a round, the shipped plan against its twin: also what no history brings about in a while, such as
consumers in several lines with a limit, held entries that come back, and batches half acknowledged before their owner
changed.

``PULSAR_SPARK_HISTORIES=n`` plans n cursors, ``PULSAR_SPARK_SEED=s`` others than usual.
"""

import os
from itertools import groupby
from random import Random

import pyarrow as pa

from pulsar_spark.broker.planning.work import Outcome, Work
from pulsar_spark.protocol.acknowledgement import ack_set as ack_sets
from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, PENDING, REPLAY
from pulsar_spark.testing.plain_planner import UNREAD, PlainPlanner
from pulsar_spark.transforms.round import only_acknowledges
from pulsar_spark.transforms.round_inputs import SCHEMA
from tests.differential.twins import assert_spark_plans
from tests.support.group_rows import grouped
from tests.transforms import rows as drawn

SEED = int(os.environ.get("PULSAR_SPARK_SEED", 1))
CURSORS = int(os.environ.get("PULSAR_SPARK_HISTORIES", 0)) or 450
POSITIONS, WHOLE_BATCH = 24, 5
SHARED, KEY_SHARED, EXCLUSIVE = "Shared", "Key_Shared", "Exclusive"


def test_spark_plans_random_rounds_as_its_twin_does(spark):
    planned = [planned_without_spark(Random(f"{SEED} {number}")) for number in range(CURSORS)]
    assert_spark_plans(spark, planned)


def test_spark_plans_random_rounds_that_only_acknowledge_as_its_twin_does(spark):
    planned = [planned_without_spark(Random(f"{SEED} {number}"), is_still=True) for number in range(CURSORS)]
    assert any(each.ranges for _, each in planned)
    assert_spark_plans(spark, planned)


def test_on_key_shared_nobody_is_given_an_entry_of_another_line_or_one_that_is_held():
    for number in range(CURSORS):
        rows, outcome = planned_without_spark(Random(f"{SEED} {number}"), KEY_SHARED)
        offered_to = {
            at: None if row.get("is_held") else row.get("line")
            for row in rows
            if row["kind"] == "range"
            for at in range(row["first"], row["last"] + 1)
        }
        for each in outcome.ranges:
            if each.delivery_round == drawn.ROUND:
                assert {offered_to[at] for at in range(each.first, each.last + 1)} == {each.consumer_id}


def planned_without_spark(
    dice: Random, subscription_type: str | None = None, *, is_still: bool = False
) -> tuple[list[dict], Outcome]:
    """The rows of a random cursor, without what could come back or go out if it *is_still*, and what the twin makes of
    them."""
    rows = rows_of_cursor(dice, subscription_type or dice.choice([SHARED, KEY_SHARED, KEY_SHARED, EXCLUSIVE]))
    if is_still:
        nobody = dict(left=[], redelivered=[], due_time=None)
        rows = [
            row | {name: value for name, value in nobody.items() if name in row}
            for row in rows
            if row["kind"] not in ("unread", "return") and row.get("status") in (None, PENDING, ACKNOWLEDGED)
        ]
    rows = grouped(rows)
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    assert only_acknowledges(table) or not is_still
    return rows, PlainPlanner().run(Work(table, [None], []))[0]


def rows_of_cursor(dice: Random, subscription_type: str) -> list[dict]:
    """On Exclusive nothing is limited."""
    consumers = "a" if subscription_type == EXCLUSIVE else "abc"[: dice.randint(1, 3)]
    entries = [entry_at(dice, at, consumers, subscription_type) for at in range(POSITIONS)]
    turns = turns_of(dice, consumers, subscription_type)
    limits = drawn.limits(
        0,
        is_single_active=subscription_type == EXCLUSIVE,
        limit=0 if subscription_type == EXCLUSIVE else dice.choice([0, 0, 5, 15, 40]),
        unacked_elsewhere=dice.choice([0, 0, 3]),
        is_blocked=dice.random() < 0.2,
        permits=sum(row["permits"] for row in turns if row["peers"] and row["lap"] == 0),
        max_redeliver_count=dice.choice([0, 0, 1, 2]),
        left=[name for name in "xabc" if dice.random() < 0.15],
        redelivered=[name for name in "abc" if dice.random() < 0.15],
        read_position=dice.randrange(POSITIONS),
        wall=drawn.NOW + dice.choice([-1, 0, 1]),
    )
    return [limits, *turns, *ranges_of(dice, entries), *requests_of(dice, entries)]


def turns_of(dice: Random, consumers: str, subscription_type: str) -> list[dict]:
    """Of each consumer two turns, or one that may be given nothing."""
    is_keyed = subscription_type == KEY_SHARED
    permits = {name: dice.choice([0, 1, 2, 7, 30]) for name in consumers}
    takers = [name for name in consumers if permits[name]]
    laps = [(name, lap, 1 if is_keyed else len(takers)) for lap in (0, 1) for name in takers]
    laps += [(name, 0, None) for name in consumers if not permits[name]]
    says = {
        name: dict(
            consumer_id=name,
            permits=permits[name],
            limit=0 if subscription_type == EXCLUSIVE else dice.choice([0, 0, 4, 12]),
            unacked_elsewhere=dice.choice([0, 0, 2]),
            is_blocked=dice.random() < 0.15,
            line=name if is_keyed else None,
        )
        for name in consumers
    }
    return [
        dict(cursor=0, kind="consumer", first=place, last=place, lap=lap, peers=peers, **says[name])
        for place, (name, lap, peers) in enumerate(laps)
    ]


def entry_at(dice: Random, at: int, consumers: str, subscription_type: str) -> dict | None:
    """A row of one entry, whose neighbours often agree with it; None where nothing is known of it."""
    status = dice.choice([PENDING, REPLAY, UNREAD, UNREAD, ACKNOWLEDGED, None])
    line = dice.choice([*consumers, *consumers, None]) if subscription_type == KEY_SHARED else None
    is_held = subscription_type == KEY_SHARED and (line is None or dice.random() < 0.2)
    offered_as = dict(line=line, is_held=is_held or dice.choice([None, False]))
    size, due = dice.choice([1, 1, WHOLE_BATCH]), drawn.NOW + dice.randint(-2, 2) if dice.random() < 0.3 else None
    if status is None:
        return None
    if status == ACKNOWLEDGED:
        return drawn.held(0, at, at, ACKNOWLEDGED, batch_size=None, redelivery_count=None) | offered_as
    if status == UNREAD:
        return drawn.unread(0, at, at, batch_size=size, due_time=due) | offered_as
    kept = left_of(dice) if size > 1 and dice.random() < 0.3 else None
    attributes = dict(batch_size=size, due_time=due, redelivery_count=dice.randint(0, 2), ack_set=kept, **offered_as)
    if status == REPLAY:
        return drawn.held(0, at, at, REPLAY, **attributes)
    return drawn.pending(0, at, at, dice.choice([*consumers, "x"]), **attributes)


def left_of(dice: Random) -> list[int]:
    return list(ack_sets.of_indexes(dice.sample(range(WHOLE_BATCH), dice.randint(1, WHOLE_BATCH - 1))))


def ranges_of(dice: Random, entries: list[dict | None]) -> list[dict]:
    """The rows of entries, those that adjoin and agree mostly as one."""
    together, rows = 0, []

    def alike(entry: dict) -> tuple:
        nonlocal together
        together += dice.random() < 0.2
        return together, str({name: value for name, value in entry.items() if name not in ("first", "last")})

    known = [entry for entry in entries if entry]
    number = {entry["first"]: place for place, entry in enumerate(known)}
    for _, same in groupby(known, key=lambda entry: (entry["first"] - number[entry["first"]], alike(entry))):
        several = list(same)
        rows.append(several[0] | {"last": several[-1]["last"]})
    return rows


def requests_of(dice: Random, entries: list[dict | None]) -> list[dict]:
    """Acknowledgements wherever they meet an entry, and returns of what is pending, by its holder or somebody else."""
    rows = [drawn.ack(0, at, at + dice.randint(0, 3)) for at in range(POSITIONS) if dice.random() < 0.06]
    for entry in filter(None, entries):
        if entry["batch_size"] == WHOLE_BATCH and not entry.get("ack_set") and dice.random() < 0.15:
            rows.append(drawn.left_of_batch(0, entry["first"], *dice.choice([[], left_of(dice)])))
    for at, entry in enumerate(entries):
        if entry and entry.get("status") == PENDING and dice.random() < 0.3:
            due = drawn.NOW + dice.choice([-1, 0, 3])
            is_unseen = due <= drawn.NOW and dice.choice([None, False, True])
            rows.append(drawn.returned(0, at, at, dice.choice([entry["consumer_id"], "a"]), due, is_unseen=is_unseen))
    return rows
