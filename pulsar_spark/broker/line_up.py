"""Whose turns a round plans: theirs who may be given something, and theirs whose standing may change.

A turn is a row, which is a millisecond of an interpreted plan; of a hundred consumers one gets a message. So the turns
of consumers that nothing is left for are left out, where it is sure that nothing is: what is on offer is counted by
line, and a consumer that is not blocked and has permits takes one entry at least. Who is given nothing keeps permits,
and is blocked no more and no less, as long as it is below its limit; so do those without permits. What the plan says
of the others is the same with and without these rows (``tests/broker/test_turns_in_line.py``).
"""

from collections import Counter
from collections.abc import Sequence

from pulsar_spark.broker.drafts import CursorDraft
from pulsar_spark.broker.state import Consumer
from pulsar_spark.broker.unread_slices import UnreadRun
from pulsar_spark.protocol.cursor import ACKNOWLEDGED, Range
from pulsar_spark.protocol.shared import Turn, in_reach, turns

MOST_COUNTED = 500
"""Rows up to which it is counted what is on offer: more are planned by compiled plans, to which turns are nothing."""


def on_offer(rows: Sequence[tuple[Range | UnreadRun, str | None]]) -> Counter | None:
    """How many entries may be on offer, at most, by line, of ranges and unread runs with their lines; None where that
    is not counted."""
    if len(rows) > MOST_COUNTED:
        return None
    found: Counter = Counter()
    for each, line in rows:
        if isinstance(each, UnreadRun) or each.status != ACKNOWLEDGED:
            found[line] += each.last - each.first + 1
    return found


def turns_in_line(
    asked: CursorDraft, takers: list[Consumer], entries: Counter | None, *, limit: int, start: int
) -> list[Turn]:
    """Turns in order of service, from the *start*-th taker on; behind them, without peers, who may be given nothing.
    *entries* are those that :func:`on_offer` says; what is acknowledged in part, and never was delivered, comes to
    them. *limit* is each consumer's of unacknowledged messages, 0 for none."""
    cursor = asked.cursor

    def has_room(consumer: Consumer) -> bool:
        return not consumer.is_blocked and (not limit or cursor.unacked[consumer.consumer_id] < limit)

    # On Key_Shared each one stands alone in a line of its own.
    lines = {taker.consumer_id: [taker] for taker in takers} if cursor.is_key_shared else {None: takers}
    served: list[Turn] = []
    for name, line in lines.items():
        found = turns(line, start=start)
        served += found if entries is None else in_reach(found, entries[name] + len(asked.ack_sets), has_room)
    in_line = {consumer.consumer_id for consumer in takers}
    rest = [each for each in cursor.consumers.values() if each.consumer_id not in in_line]
    return served + [Turn(each, 0, None) for each in rest if entries is None or not has_room(each)]
