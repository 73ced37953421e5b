"""A planner without Spark, position by position, for tests of what lies around the plan: numbering, letters, maintenance, trimming.

It knows acknowledgements, returns, deaths and deliver times as the plan does, but hands out by permits alone: no fair shares, no unacknowledged limits. Who
gets what is the specification's business, which runs on the real plan.
"""
from pulsar_spark.broker.gather import Work
from pulsar_spark.protocol import ack_set as ack_sets
from pulsar_spark.protocol.cursor import ACKNOWLEDGED, DEAD, PENDING, REPLAY, Range

UNREAD = "unread"


class PlainPlanner:
    """Plans a round like ``broker.planner.Planner``."""

    def run(self, work: Work) -> list[list[Range]]:
        return [_plan([row for row in work.rows if row["cursor"] == number]) for number in range(len(work.cursors))]


def _plan(rows: list[dict]) -> list[Range]:
    limits = next(row for row in rows if row["kind"] == "cursor")
    held: dict[int, Range] = {}
    for row in _of(rows, "unread"):
        _put(held, Range(row["first"], row["last"], UNREAD, redelivery_count=0, due_time=row["due_time"], batch_size=row["batch_size"]))
    for row in _of(rows, "range"):
        _put(held, Range(**{name: row[name] for name in Range._fields}))
    for row in _of(rows, "ack"):
        _put(held, Range(row["first"], row["last"], ACKNOWLEDGED))
    for row in _of(rows, "batch_ack", "ack_set"):
        _acknowledge_batch(held, row)
    _give_back(held, rows, limits)
    _hand_out(held, rows, limits)
    return [each for _, each in sorted(held.items()) if each.status != UNREAD]


def _of(rows: list[dict], *kinds: str) -> list[dict]:
    return [row for row in rows if row["kind"] in kinds]


def _put(held: dict[int, Range], several: Range) -> None:
    for position in range(several.first, several.last + 1):
        held[position] = several._replace(first=position, last=position)


def _acknowledge_batch(held: dict[int, Range], row: dict) -> None:
    entry = held.get(row["first"])
    if entry is None or entry.status == ACKNOWLEDGED:
        return
    kept = entry.ack_set or ack_sets.full(entry.batch_size)
    left = tuple(row["ack_set"]) if row["kind"] == "ack_set" else ack_sets.intersect(kept, row["ack_set"])
    if ack_sets.is_empty(left):
        held[entry.first] = Range(entry.first, entry.first, ACKNOWLEDGED)
    else:
        held[entry.first] = entry._replace(ack_set=left, status=REPLAY if entry.status == UNREAD else entry.status)


def _give_back(held: dict[int, Range], rows: list[dict], limits: dict) -> None:
    now, most = limits["now"], limits["max_redeliver_count"]
    for row in _of(rows, "return"):
        for position, entry in held.items():
            if row["first"] <= position <= row["last"] and entry.status == PENDING and entry.consumer_id == row["consumer_id"]:
                held[position] = entry._replace(due_time=row["due_time"])
    pending = {position: entry for position, entry in held.items() if entry.status == PENDING}
    counted = {position for position, entry in pending.items()
               if entry.consumer_id in limits["redelivered"] or (entry.due_time is not None and entry.due_time <= now)}
    for position, entry in pending.items():
        count = entry.redelivery_count + (position in counted)
        if position in counted and 0 < most < count:
            held[position] = entry._replace(status=DEAD, redelivery_count=count)
        elif position in counted or entry.consumer_id in limits["left"] or (counted and limits["is_single_active"]):
            held[position] = entry._replace(status=REPLAY, redelivery_count=count, consumer_id=None, delivery_round=None, due_time=None)
    for position, entry in held.items():
        if entry.status == UNREAD and entry.due_time is not None and entry.due_time > now and not limits["is_single_active"]:
            held[position] = entry._replace(status=REPLAY)


def _hand_out(held: dict[int, Range], rows: list[dict], limits: dict) -> None:
    due = [entry for entry in held.values() if entry.status == UNREAD or (
        entry.status == REPLAY and (limits["is_single_active"] or (entry.due_time or 0) <= limits["now"]))]
    in_line = sorted(due, key=lambda entry: (entry.status == UNREAD and not limits["is_single_active"], entry.first))
    for row in _of(rows, "consumer"):
        if row["lap"] == 0:
            permits = row["permits"]
            while permits > 0 and in_line:
                entry = in_line.pop(0)
                held[entry.first] = entry._replace(status=PENDING, consumer_id=row["consumer_id"], delivery_round=limits["round"], due_time=None)
                permits -= entry.unacked_messages
