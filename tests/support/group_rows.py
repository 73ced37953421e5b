"""Ranges of a round's inputs made from rows that say one thing each: what is known, unread, acknowledged, given back.

So drawings and random rows may overlap as they like. Rows that nothing is known of but an acknowledgement are unread.
"""

from collections.abc import Iterable

from pulsar_spark.protocol.acknowledgement.cursor import PENDING, UNREAD

SAYS = ("range", "unread", "ack", "ack_set", "return")


def grouped(rows: Iterable[dict]) -> list[dict]:
    """*rows* with those of :data:`SAYS` as ranges that do not overlap."""
    rows = list(rows)
    others = [row for row in rows if row["kind"] not in SAYS]
    for cursor in dict.fromkeys(row["cursor"] for row in rows):
        others += _ranges([row for row in rows if row["cursor"] == cursor and row["kind"] in SAYS])
    return others


def _ranges(rows: list[dict]) -> Iterable[dict]:
    cuts = sorted({end for row in rows for end in (row["first"], row["last"] + 1)})
    for first, behind in zip(cuts, cuts[1:]):
        over = {row["kind"]: row for row in rows if row["first"] <= first <= row["last"]}
        known = over.get("range") or over.get("unread") and over["unread"] | {"status": UNREAD}
        if known is None and "ack" not in over:
            continue
        row = (known or {"cursor": rows[0]["cursor"], "status": UNREAD}) | {
            "kind": "range",
            "first": first,
            "last": behind - 1,
        }
        back = over.get("return")
        if back and row["status"] == PENDING and back["consumer_id"] == row["consumer_id"]:
            row |= {"return_time": back["due_time"], "is_unseen": back.get("is_unseen")}
        if "ack" in over:
            row["is_acked"] = True
        if "ack_set" in over:
            row["left_of_batch"] = over["ack_set"]["ack_set"]
        yield row
