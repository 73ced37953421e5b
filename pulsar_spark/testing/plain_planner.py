"""A planner without Spark, position by position: for tests of what lies around the plan, and the plan's twin where
histories are many.

It does what the transforms do, from the same rows, but an entry at a time and without their algebra; neighbours that
agree it says as one range.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from pulsar_spark.broker.planning.work import ConsumerOutcome, Outcome, Work
from pulsar_spark.protocol.acknowledgement import ack_set as ack_sets
from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, DEAD, PENDING, REPLAY, Range
from pulsar_spark.transforms.round_inputs import STATE
from pulsar_spark.transforms.turns import READ_BATCH, SMALLEST_SHARE

UNREAD = "unread"


class Place(NamedTuple):
    """The line an entry is offered in, and whether it is held back."""

    line: str | None
    is_held: bool


class PlainPlanner:
    """Plans a round like ``broker.planning.planner.Planner``."""

    def run(self, work: Work) -> list[Outcome]:
        rows = work.rows.to_pylist()
        return [_plan([row for row in rows if row["cursor"] == number]) for number in range(len(work.cursors))]


def by_position(ranges: Iterable[Range]) -> dict[int, Range]:
    """What is said of each position, however ranges are cut."""
    return {
        position: range_._replace(first=position, last=position)
        for range_ in ranges
        for position in range(range_.first, range_.last + 1)
    }


def _plan(rows: list[dict]) -> Outcome:
    limits = next(row for row in rows if row["kind"] == "cursor")
    entries: dict[int, Range] = {}
    for row in _of(rows, "range"):
        entry = Range(**{name: row[name] for name in STATE})
        entry = entry if entry.status == ACKNOWLEDGED else entry._replace(redelivery_count=entry.redelivery_count or 0)
        _put(entries, Range(*entry[:2], ACKNOWLEDGED) if row["is_acked"] else entry)
        if row["left_of_batch"] is not None:
            _acknowledge_batch(entries, row)
    _give_back(entries, rows, limits)
    places: defaultdict[int, Place] = defaultdict(lambda: Place(None, False))
    for row in _of(rows, "range"):
        for position in range(row["first"], row["last"] + 1):
            places[position] = Place(row.get("line"), bool(row.get("is_held")))
    consumers, is_blocked = _hand_out(entries, places, rows, limits)
    known = [
        each if each.ack_set is None else each._replace(ack_set=tuple(each.ack_set))
        for _, each in sorted(entries.items())
        if each.status != UNREAD
    ]
    return Outcome(
        _joined(known),
        is_blocked,
        sum(consumer.delivered for consumer in consumers),
        sum(consumer.redelivered for consumer in consumers),
        consumers,
    )


def _joined(ranges: list[Range]) -> list[Range]:
    """*ranges* by position, those that adjoin and agree as one."""
    found: list[Range] = []
    for each in ranges:
        if found and found[-1].last + 1 == each.first and found[-1][2:] == each[2:]:
            found[-1] = found[-1]._replace(last=each.last)
        else:
            found.append(each)
    return found


def _of(rows: list[dict], *kinds: str) -> list[dict]:
    return [row for row in rows if row["kind"] in kinds]


def _put(entries: dict[int, Range], several: Range) -> None:
    for position in range(several.first, several.last + 1):
        entries[position] = several._replace(first=position, last=position)


def _acknowledge_batch(entries: dict[int, Range], row: dict) -> None:
    entry = entries[row["first"]]
    if entry.status == ACKNOWLEDGED:
        return
    if ack_sets.is_empty(row["left_of_batch"]):
        entries[entry.first] = Range(entry.first, entry.first, ACKNOWLEDGED)
    else:
        entries[entry.first] = entry._replace(
            ack_set=tuple(row["left_of_batch"]), status=REPLAY if entry.status == UNREAD else entry.status
        )


def _give_back(entries: dict[int, Range], rows: list[dict], limits: dict) -> None:
    now, most, unseen = limits["now"], limits["max_redeliver_count"], set()
    for row in _of(rows, "range"):
        for position in range(row["first"], row["last"] + 1) if row["return_time"] is not None else ():
            entry = entries[position]
            if entry.status == PENDING:
                entries[position] = entry._replace(due_time=row["return_time"])
                unseen.update([position] if row["is_unseen"] else [])
    pending = {position: entry for position, entry in entries.items() if entry.status == PENDING}
    asked_for = {position for position, entry in pending.items() if entry.consumer_id in limits["redelivered"]}
    due = {position for position, entry in pending.items() if entry.due_time is not None and entry.due_time <= now}
    returned, counted = asked_for | due, asked_for | (due - unseen)
    for position, entry in pending.items():
        count = (entry.redelivery_count or 0) + (position in counted)
        if position in counted and 0 < most < count:
            entries[position] = entry._replace(status=DEAD, redelivery_count=count, due_time=None)
        elif position in returned or entry.consumer_id in limits["left"] or (returned and limits["is_single_active"]):
            entries[position] = entry._replace(
                status=REPLAY, redelivery_count=count, consumer_id=None, delivery_round=None, due_time=None
            )
    for position, entry in entries.items():
        if (
            entry.status == UNREAD
            and entry.due_time is not None
            and entry.due_time > limits["wall"]
            and not limits["is_single_active"]
        ):
            entries[position] = entry._replace(status=REPLAY)


def _hand_out(
    entries: dict[int, Range], places: dict[int, Place], rows: list[dict], limits: dict
) -> tuple[list[ConsumerOutcome], bool]:
    """Deals out, line by line; what becomes of the consumers, and whether the cursor is blocked."""
    out, given, again = Counter[str | None](), Counter[str](), Counter[str]()
    for entry in entries.values():
        out[entry.consumer_id] += entry.unacked_messages if entry.status == PENDING else 0
    unacked = out.total() + limits["unacked_elsewhere"]
    is_blocked = limits["limit"] > 0 and unacked >= limits["limit"] // (2 if limits["is_blocked"] else 1)
    turns = sorted(_of(rows, "consumer"), key=lambda row: row["first"])
    blocked = {row["consumer_id"]: _is_blocked(row, out[row["consumer_id"]]) for row in turns}
    for line in {row.get("line") for row in turns}:
        waiting, unread = _candidates(entries, places, line, limits)
        in_line = sorted(waiting + unread) if limits["is_single_active"] else waiting + unread
        weights = [entries[position].unacked_messages for position in in_line]
        back = len(in_line) if limits["is_single_active"] else len(waiting)
        heaviest = max(weights[: limits["permits"]], default=1)
        offered = min(len(in_line), limits["permits"])
        if limits["limit"] > 0:
            room = 0 if is_blocked else max(1, (limits["limit"] - unacked) // heaviest)
            in_line = in_line[: len(waiting) + room]
        in_turn = [
            row | {"room": _room(row, out[row["consumer_id"]] + row["unacked_elsewhere"])}
            for row in turns
            if row.get("line") == line and row["peers"] is not None and not blocked[row["consumer_id"]]
        ]
        foremost = next((row for row in in_turn if row["room"] > 0), None)
        for row in in_turn:
            width = (
                row["room"]
                if line is not None
                else _width(row, foremost, weights[:back], weights[back:], offered, limits)
            )
            share = _share(row, offered)
            width = min(width, share) if row["lap"] == 0 else max(width - share, 0)
            for position in in_line[:width]:
                entries[position] = entries[position]._replace(
                    status=PENDING, consumer_id=row["consumer_id"], delivery_round=limits["round"], due_time=None
                )
                given[row["consumer_id"]] += entries[position].unacked_messages
                again[row["consumer_id"]] += (position < limits["read_position"]) * entries[position].unacked_messages
            in_line = in_line[width:]
    consumers = [
        _consumer_outcome(row, blocked[name], out[name], given[name], again[name])
        for name, row in {row["consumer_id"]: row for row in turns}.items()
    ]
    return consumers, is_blocked or 0 < limits["limit"] <= unacked + given.total()


def _consumer_outcome(row: dict, is_blocked: bool, out: int, given: int, again: int) -> ConsumerOutcome:
    is_full = 0 < row["limit"] <= out + row["unacked_elsewhere"] + given
    return ConsumerOutcome(row["consumer_id"], row["permits"] - given, is_blocked or is_full, given, again)


def _candidates(
    entries: dict[int, Range], places: dict[int, Place], line: str | None, limits: dict
) -> tuple[list[int], list[int]]:
    """What may go out in a line: replay in its order, and unread entries."""
    free = [
        entry for position, entry in entries.items() if not places[position].is_held and places[position].line == line
    ]
    waiting = [
        entry.first
        for entry in sorted(
            free, key=lambda entry: (0 if limits["is_single_active"] else entry.due_time or 0, entry.first)
        )
        if (entry.status == REPLAY and (limits["is_single_active"] or (entry.due_time or 0) <= limits["wall"]))
        or _came_due(entry, limits)
    ]
    return waiting, sorted(entry.first for entry in free if entry.status == UNREAD and not _came_due(entry, limits))


def _came_due(entry: Range, limits: dict) -> bool:
    """Was an entry that is offered for the first time waited for?"""
    return entry.status == UNREAD and entry.due_time is not None and not limits["is_single_active"]


def _is_blocked(row: dict, out: int) -> bool:
    limit, unacked = row["limit"], out + row["unacked_elsewhere"]
    return limit > 0 and (unacked > limit // 2 if row["is_blocked"] else unacked >= limit)


def _room(row: dict, unacked: int) -> int:
    """How many messages a consumer may be given."""
    return max(0, min(row["permits"], row["limit"] - unacked) if row["limit"] > 0 else row["permits"])


def _share(row: dict, offered: int) -> int:
    return max(SMALLEST_SHARE, -(-offered // row["peers"]))


def _width(row: dict, foremost: dict | None, again: list[int], new: list[int], offered: int, limits: dict) -> int:
    """How many entries the consumer may take in its two turns together, of weights *again* and *new*."""
    room, permits = row["room"], limits["permits"]
    if room == 0 or foremost is None:
        return 0
    of_again, of_new = max(again[:permits], default=1), max(new[: max(0, permits - len(again))], default=1)
    by_heaviest = -(-room // max(of_again, of_new))
    if limits["is_single_active"]:
        return max(min(room, READ_BATCH), by_heaviest)
    is_foremost, its_share = row["consumer_id"] == foremost["consumer_id"], _share(foremost, offered)
    if sum(again) < foremost["room"] and len(again) <= its_share:
        return len(again) + -(-(room - sum(again)) // of_new) if is_foremost else -(-room // of_new)
    return max(by_heaviest, min(its_share, -(-room // of_again))) if is_foremost else by_heaviest
