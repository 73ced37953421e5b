"""Playing the cases of a file on an engine, all in one history, and comparing what happened with what their tables
say."""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from pulsar_spark.protocol.acknowledgement import ack_set
from tests.spec.table import ADMIN, Case, Entry, Place

REPLIED = {
    "subscribe",
    "seek",
    "unsubscribe",
    "create_subscription",
    "skip",
    "clear_backlog",
    "expire",
    "unload",
    "policy",
    "reschedule",
}
STATE_COLUMNS = (
    "mark-delete",
    "read",
    "acked",
    "pending",
    "replay",
    "due",
    "waits",
    "letters",
    "later",
    "permits",
    "unacked",
    "blocked",
    "active",
    "type",
    "backlog",
    "delayed",
)
STATS = {"backlog": "msgBacklog", "delayed": "msgDelayed"}
"""Columns that are what statistics say."""


class Happened(NamedTuple):
    """One case, one round: the case's own deliveries, replies and states (by partition, of subscription ``s``; None
    where there is none)."""

    requests: list[dict]
    deliveries: list
    replies: list
    states: dict[int, dict | None]


def play(engine, cases: list[Case]) -> dict[str, list[Happened]]:
    """The rounds of every case that happen at one second in one round of the engine; what comes unasked at a second
    that a case leaves out is an error."""
    for case in cases:
        engine.create_topic(case.topic, case.partitions)
    played = defaultdict(list)
    for number, rows in _rounds(cases):
        running = [case for case in cases if case.name in rows]
        asked = {}
        for case in running:
            for partition in case.all_partitions:
                entries = case.published(rows[case.name])
                if entries:
                    publish(engine, case.topic, partition, entries, 1000 * number)
            asked[case.name] = case.requests(rows[case.name])
        result = engine.round([request for requests in asked.values() for request in requests], 1000 * number)
        for case in running:
            ids = {request["request_id"] for request in asked[case.name]}
            replies = [
                reply
                for reply in result["replies"]
                if reply.request_id in ids
                or (reply.request_id is None and case.consumer(reply.consumer_id) != reply.consumer_id)
            ]
            deliveries = [delivery for delivery in result["deliveries"] if delivery[0] == case.topic]
            states = {partition: _state(engine, case, partition) for partition in case.all_partitions}
            played[case.name].append(Happened(asked[case.name], deliveries, replies, states))
        silent = {case.topic for case in cases if case.name not in rows and number < max(case.seconds)}
        assert not [delivery for delivery in result["deliveries"] if delivery[0] in silent], (
            f"deliveries at second {number}, which their case leaves out"
        )
    return played


def _rounds(cases: list[Case]) -> Iterator[tuple[int, dict[str, dict[str, str]]]]:
    """The rounds of cases, each with its second and the rows of the cases that have one there. In a history of its own
    a case may set the clock back."""
    if len(cases) == 1:
        yield from ((second, {cases[0].name: row}) for second, row in zip(cases[0].seconds, cases[0].rows))
        return
    for number in sorted({second for case in cases for second in case.by_second}):
        yield number, {case.name: case.by_second[number] for case in cases if number in case.by_second}


def publish(engine, topic: str, partition: int, entries: list[Entry], now_ms: int) -> None:
    sizes, deliver_at_ms, keys, chunks = map(list, zip(*entries))
    engine.publish(
        topic, partition, sizes, publish_time_ms=now_ms, deliver_at_ms=deliver_at_ms, keys=keys, chunks=chunks
    )


def _state(engine, case: Case, partition: int) -> dict | None:
    if "s" not in engine.subscriptions(case.topic):
        return None
    letters = {"letters": engine.letters, "later": engine.letters_put_off}
    asked = {
        column: read(case.topic, "s") for column, read in letters.items() if any(column in row for row in case.rows)
    }
    if any(column in row for row in case.rows for column in STATS):
        stats = engine.stats(case.topic, "s")
        asked |= {column: stats[name] for column, name in STATS.items()}
    return engine.state(case.topic, partition, "s") | asked


def check(case: Case, history: list[Happened]) -> None:
    """Every cell of the case's table against what happened, a round at a time."""
    for row, happened in zip(case.rows, history, strict=True):
        expected, found = _expected(case, row), _found(case, row, happened)
        wrong = [
            f"{column}: {found[column]} instead of {expected[column]}"
            for column in expected
            if found[column] != expected[column]
        ]
        assert not wrong, (
            f"{case.name} ({case.source}), second {row['s']}:\n" + "\n".join(wrong) + f"\nThe rule: {case.says.strip()}"
        )


def _expected(case: Case, row: dict[str, str]) -> dict:
    cells = {
        column: _state_cell(case, column, cell) for column, cell in row.items() if column in STATE_COLUMNS and cell
    }
    refused = sorted(tuple(text.split()) for text in row.get("refused", "").split(";") if text.strip())
    delivered = {names: case.places(places) for names, places in case.by_consumer(row.get("delivered", "")).items()}
    return {
        "delivered": delivered,
        "refused": refused,
        "reset": sorted(row.get("reset", "").split()),
        "unanswered": [],
        **({"meant": [int(cell) for cell in row["meant"].split()]} if row.get("meant") else {}),
        **cells,
    }


def _found(case: Case, row: dict[str, str], happened: Happened) -> dict:
    groups = list(case.by_consumer(row.get("delivered", "")))
    delivered: dict[tuple[str, ...], set[Place]] = {group: set() for group in groups}
    for _, partition, subscription, consumer_id, position, count, left, chunks in happened.deliveries:
        name = case.consumer(consumer_id) if subscription == "s" else f"{subscription}/{case.consumer(consumer_id)}"
        group = next((group for group in groups if name in group), (name,))
        delivered.setdefault(group, set()).add(
            Place(partition, position, count, None if left is None else ack_set.indexes(left), chunks)
        )
    refused = [(_who(case, reply), reply.error) for reply in happened.replies if reply.error]
    resets = {
        case.consumer(reply.consumer_id)
        for reply in happened.replies
        if reply.request_id is None and reply.text == "reset"
    }
    meant = [int(reply.text) for reply in happened.replies if reply.text is not None and reply.text.isdecimal()]
    answered = [reply.request_id for reply in happened.replies]
    unanswered = [
        request["kind"]
        for request in happened.requests
        if request["kind"] in REPLIED and answered.count(request["request_id"]) != 1
    ]
    cells = {
        column: _state_found(case, column, row[column], happened.states) for column in STATE_COLUMNS if row.get(column)
    }
    return {
        "delivered": delivered,
        "refused": sorted(refused),
        "reset": sorted(resets),
        "unanswered": unanswered,
        **({"meant": meant} if row.get("meant") else {}),
        **cells,
    }


def _who(case: Case, reply) -> str:
    return case.consumer(reply.consumer_id) if reply.consumer_id else ADMIN


def _state_cell(case: Case, column: str, cell: str):
    """A cell of the subscription's state as a value to compare."""
    if column in ("mark-delete", "read", *STATS):
        return int(cell)
    if column in ("acked", "replay", "letters", "later"):
        return set() if cell == "none" else case.places(cell)
    if column == "pending":
        return {names: case.places(places) for names, places in case.by_consumer(cell).items()}
    if column in ("permits", "unacked"):
        return {names: int(number) for names, number in case.by_consumer(cell).items()}
    words = [] if cell == "none" else cell.split()
    return words if column in ("active", "type") else set(words)


def _state_found(case: Case, column: str, cell: str, states: dict[int, dict | None]):
    state, partition = states[case.all_partitions[0]], case.all_partitions[0]
    if column == "type":
        return [state["subscription_type"]] if state["subscription_type"] else []
    if column == "active":
        return [
            case.consumer(name)
            for each in states.values()
            for name, consumer in each["consumers"].items()
            if consumer["is_active"]
        ]
    if column in ("mark-delete", "read"):
        return state["mark_delete_position" if column == "mark-delete" else "read_position"]
    if column == "acked":
        return {
            Place(partition, position) for first, last in state["acknowledged"] for position in range(first, last + 1)
        }
    if column in STATS:
        return state[column]
    if column == "due":
        return {f"{position}@{held[2] // 1000}" for position, held in state["pending"].items() if held[2] is not None}
    if column == "waits":
        return {f"{position}@{due // 1000}" for position, due in state["waits"].items()}
    if column in ("letters", "later"):
        return _letters(state[column])
    if column == "replay":
        return {_place(state, partition, position, count) for position, count in state["replay"].items()}
    if column == "blocked":
        names = {case.consumer(name) for name, consumer in state["consumers"].items() if consumer["is_blocked"]}
        return (
            names
            | ({"subscription"} if state["is_blocked"] else set())
            | ({"broker"} if state["is_blocked_by_broker"] else set())
        )
    groups = list(case.by_consumer(cell))
    if column == "pending":
        held: dict[tuple[str, ...], set[Place]] = {group: set() for group in groups}
        for position, (consumer_id, count, _) in state["pending"].items():
            name = case.consumer(consumer_id)
            held.setdefault(next((group for group in groups if name in group), (name,)), set()).add(
                _place(state, partition, position, count)
            )
        return held
    numbers = {case.consumer(name): consumer[column] for name, consumer in state["consumers"].items()}
    return {group: sum(numbers[name] for name in group) for group in groups}


def _letters(letters: list) -> set[Place] | list:
    """The entries that have letters, with attempts as count; the letters themselves where one is there twice."""
    if len(set(letters)) < len(letters):
        return letters
    entries: dict[tuple[int, int, int], list[int]] = {}
    for partition, position, batch_index, attempts in letters:
        entries.setdefault((partition, position, attempts), []).append(batch_index)
    return {Place(*entry, None if indexes == [-1] else tuple(indexes)) for entry, indexes in entries.items()}


def _place(state: dict, partition: int, position: int, count: int) -> Place:
    left = state["ack_sets"].get(position)
    return Place(partition, position, count, None if left is None else ack_set.indexes(left))
