"""What keeps an entry from a consumer that a round could deliver."""

from pulsar_spark.protocol.delays.instants import to_micros
from pulsar_spark.protocol.keys.hash_ranges import owner
from pulsar_spark.protocol.subscriptions.membership import KEY_SHARED, SINGLE_ACTIVE
from pulsar_spark.protocol.subscriptions.unacked_limit import BLOCKED_BY_BROKER
from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.storage.cursor_ledger.set_aside import REQUEST, SUBSCRIPTION, SetAside
from pulsar_spark.storage.entries.key_hashes import hashes_of
from pulsar_spark.storage.processes.lease import BundleLease
from pulsar_spark.views.draining import DrainingHash
from pulsar_spark.views.explain.reasons import Position, Reason, Seen
from pulsar_spark.views.key_shared import read_key_shared


def set_aside(seen: Seen, topic_id: str, partition: int, subscription: str | None) -> Reason | None:
    """The topic or the subscription is set aside."""
    place = topic_id, partition, subscription
    for entry in seen.latest.set_aside.values():
        is_subscription = entry.status == SUBSCRIPTION
        here = place if is_subscription else place[:1]
        if entry.status != REQUEST and (entry.topic_id, entry.partition, entry.subscription)[: len(here)] == here:
            return _set_aside(entry)
    return None


def _set_aside(entry: SetAside) -> Reason:
    sentence = f"the broker failed on its {entry.status} and set that aside: {entry.error}: {entry.text}"
    retry = f"'pulsar-spark set-aside retry {entry.id}' tries again"
    return Reason("set_aside", f"{sentence}; {retry}", {"setAside": entry.id, "error": entry.error})


def no_broker(seen: Seen) -> Reason | None:
    """Nobody serves the bundle."""
    if BundleLease(seen.layout, "").holder() is not None:
        return None
    return Reason("no_broker", "no broker serves its topic: start one with 'pulsar-spark broker'")


def why_undelivered(at: Position) -> Reason:
    """Why no consumer has an entry that nothing in its own state keeps back."""
    takers = set_aside(at.seen, *at.key) or no_broker(at.seen) or _takers(at)
    if isinstance(takers, Reason):
        return takers
    before, again = at.before(), "to be delivered again" if at.is_again else "unread"
    without = [row["consumer_name"] for row in takers if (row["permits"] or 0) <= 0]
    has_room = len(without) < len(takers)
    facts = {"entriesBefore": before, "consumerNames": [row["consumer_name"] for row in takers]}
    if before:
        entries = f"{before} entries come" if before > 1 else "1 entry comes"
        room = "" if has_room else f"; {_named(without)} no permits"
        return Reason("unread", f"it is {again}, and {entries} before it{room}", facts)
    if not has_room:
        return Reason("no_permits", f"it is {again}, and {_named(without)} no permits", facts)
    return Reason("next_round", f"it is {again}, and nothing keeps it back: the next round delivers it", facts)


def _takers(at: Position) -> list[dict] | Reason:
    """The rows of the consumers that it may go to; else what keeps it back, whatever comes before it."""
    cursor = at.cursor
    if not at.consumers:
        return Reason("no_consumers", "it waits for a consumer: none is connected")
    if cursor["subscription_type"] in SINGLE_ACTIVE:
        return _active(at)
    if not at.is_again and cursor["status"] == BLOCKED_BY_BROKER:
        return _limit("broker", "the broker's limit of unacknowledged messages holds its subscription back")
    if not at.is_again and cursor["is_blocked"]:
        return _limit("subscription", "its subscription has too many unacknowledged messages")
    found = _owner(at) if cursor["subscription_type"] == KEY_SHARED else at.consumers
    if isinstance(found, Reason):
        return found
    blocked = [row["consumer_name"] for row in found if row["is_blocked"]]
    if len(blocked) == len(found):
        sentence = f"{_named(blocked)} too many unacknowledged messages"
        return _limit("consumer", sentence, consumerNames=blocked)
    return [row for row in found if not row["is_blocked"]]


def _limit(whose: str, sentence: str, **facts: object) -> Reason:
    return Reason("unacked_limit", sentence, {"limitOf": whose, **facts})


def _active(at: Position) -> list[dict] | Reason:
    active = [row for row in at.consumers if row["is_active"]]
    if not active:
        return Reason("no_consumers", "it waits for a consumer: none is active")
    begins = at.cursor["due_time"] and to_micros(at.cursor["due_time"])
    if not begins or begins <= at.seen.own_now:
        return active
    until, words = at.seen.until(begins, is_own=True)
    name = active[0]["consumer_name"]
    sentence = f"consumer {name!r} has become active, and receives from {words}"
    return Reason("activating", sentence, {"consumerName": name, "until": until})


def _named(names: list[str]) -> str:
    """The subject and verb of a sentence.

    >>> _named(["a"]), _named(["a", "b", "c", "d", "e"])
    ("consumer 'a' has", "consumers 'a', 'b', 'c' and 2 more have")
    """
    if len(names) == 1:
        return f"consumer {names[0]!r} has"
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"consumers {', '.join(map(repr, names[:3]))}{more} have"


def _owner(at: Position) -> list[dict] | Reason:
    table = at.entry.topic.path
    keyed = read_key_shared(at.seen.layout, table, at.seen.latest, at.key)
    if keyed is None:
        return at.consumers
    span = at.position, at.position
    hash_code = int(hashes_of(at.seen.ledgers, table, at.key.topic_id, at.key.partition, [span])[0])
    owner_id = owner(keyed.owned, keyed.axis, hash_code)
    takes = next((row for row in at.consumers if row["consumer_id"] == owner_id), None)
    if takes is None:
        return Reason("no_owner", "no consumer owns the hash of its key", {"stickyKeyHash": hash_code})
    facts = {"stickyKeyHash": hash_code, "ownerName": takes["consumer_name"]}
    for one in keyed.waiting:
        if one.hash == hash_code and (one.is_draining or one.first < at.position):
            return _after_key(at, one, facts)
    limits = [row["read_position"] for row in at.consumers if row["read_position"] is not None]
    if keyed.rules.is_classic and takes["read_position"] is not None and at.position >= limits[0]:
        sentence = f"consumer {takes['consumer_name']!r} gets it once all before position {limits[0]} is acknowledged"
        return Reason("recently_joined", sentence, {**facts, "readPosition": limits[0]})
    return [takes]


def _after_key(at: Position, one: DrainingHash, facts: dict) -> Reason:
    holder = at.name_of(one.consumer_id) or one.consumer_id
    facts = {**facts, "consumerName": holder, "waitsFor": str(_id_at(at, one.first)), "entriesBefore": one.entries}
    if one.is_draining:
        messages = f"{one.messages} message{'s' * (one.messages != 1)}"
        sentence = f"its key drains: consumer {holder!r} still has {messages} of it, first"
        return Reason("key_drains", f"{sentence} {facts['waitsFor']}", facts)
    when = {}
    sentence = f"message {facts['waitsFor']} of its key comes first: consumer {holder!r} gave that back"
    if one.due_time is not None:
        until, words = at.seen.until(one.due_time, is_own=True)
        when, sentence = {"until": until}, f"{sentence}, and it comes again at {words}"
    return Reason("key_waits", sentence, {**facts, **when})


def _id_at(at: Position, position: int) -> MessageId:
    (run,) = at.seen.ledgers.runs(at.key.topic_id, at.key.partition, position, position)
    return MessageId(at.key.partition, run.ledger_id, run.first_entry_id)
