"""How a message came to be acknowledged on a subscription, from its life."""

from collections.abc import Sequence

from pulsar_spark.protocol.redelivery.letters import RETRY_LETTER
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey
from pulsar_spark.views.explain.acknowledged_by import HOW, acknowledged_by
from pulsar_spark.views.explain.entry import Entry
from pulsar_spark.views.explain.letters_of import letter_of
from pulsar_spark.views.explain.life import ACKED, DEAD_LETTERED, RETRY_LETTERED, SUBSCRIBED_LATER, Event
from pulsar_spark.views.explain.reasons import Reason, Seen

_BY_CLIENTS = ("individual", "cumulative", "reconsume_later")


def done(seen: Seen, entry: Entry, key: CursorKey, events: Sequence[Event]) -> Reason:
    """Why a message is acknowledged, given the *events* of its life on the subscription."""
    waiting = _waiting_letter(seen, entry, key)
    if waiting is not None:
        return waiting
    for event in reversed(events):
        if event.event in (DEAD_LETTERED, RETRY_LETTERED):
            return _lettered(seen, entry, event)
        if event.event in (ACKED, SUBSCRIBED_LATER):
            return _acknowledged(seen, entry, event)
    return Reason("acknowledged", "it is acknowledged; the rounds that would say by whom are no longer kept")


def _waiting_letter(seen: Seen, entry: Entry, key: CursorKey) -> Reason | None:
    for row in seen.latest.waiting_letters.values():
        is_its = (row["topic_id"], row["partition"], row["subscription"]) == key
        if is_its and row["first"] <= (entry.position or 0) <= row["last"]:
            kind = "retry" if row["status"] == RETRY_LETTER else "dead"
            sentence = f"its {kind} letter waits, as it cannot be written: {row['error']}: {row['text']}"
            return Reason("letter_waits", sentence, {"error": row["error"]})
    return None


def _lettered(seen: Seen, entry: Entry, event: Event) -> Reason:
    letter, is_dead = letter_of(seen, entry, event), event.event == DEAD_LETTERED
    time = event.time and event.time.isoformat()
    facts = {"time": time, "letterTopic": letter.topic, "letterId": letter.message_id and str(letter.message_id)}
    which = f"message {letter.message_id} of" if letter.message_id else "in"
    if is_dead:
        tries = event.redelivery_count or 0
        sentence = f"it is dead since {time}, after {tries} redeliveries: its letter is {which} {letter.topic!r}"
        return Reason("dead", sentence, {**facts, "redeliveryCount": tries})
    return Reason("put_off", f"it was put off at {time}: its copy is {which} {letter.topic!r}", facts)


def _acknowledged(seen: Seen, entry: Entry, event: Event) -> Reason:
    facts = acknowledged_by(seen, entry, event)
    how, time = facts["how"], event.time and event.time.isoformat()
    name = event.consumer_name if facts.get("consumerId") in (None, event.consumer_id) else None
    rows = [row for rows in seen.latest.consumers.values() for row in rows.values()]
    name = name or next((row["consumer_name"] for row in rows if row["consumer_id"] == facts.get("consumerId")), None)
    facts = {"time": time, "consumerName": name if facts.get("consumerId") else None, **facts}
    if how in _BY_CLIENTS:
        who = f"consumer {name!r}" if name else f"consumer {facts['consumerId']!r}"
        sentence = f"{who} {HOW[how]} at {time}"
    elif "requestId" in facts:
        sentence = f"somebody {HOW[how]} at {time}"
    else:
        sentence = f"it is acknowledged since {time}: {HOW[how]}"
    return Reason("acknowledged", sentence, {name: value for name, value in facts.items() if value is not None})
