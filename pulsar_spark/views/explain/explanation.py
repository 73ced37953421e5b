"""One message explained: what it is, and why it is where it is on each subscription."""

from pulsar_spark.errors import InvalidConfiguration, InvalidMessage
from pulsar_spark.protocol.delays.instants import to_millis
from pulsar_spark.protocol.policies.policies import TOPIC_STOPPED
from pulsar_spark.protocol.suggestions import no_subscription
from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.storage.clock import now_micros
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, read_latest
from pulsar_spark.storage.delta.scan import open_table
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.bundles import layout_of
from pulsar_spark.storage.topics.topics import read_topic, resolve_partition, resolve_topic
from pulsar_spark.table_specs import CURSOR_LEDGER
from pulsar_spark.views.explain.done import done
from pulsar_spark.views.explain.entry import Entry
from pulsar_spark.views.explain.life import PUBLISHED, Event, events_of
from pulsar_spark.views.explain.reasons import Position, Reason, Seen, reason_here
from pulsar_spark.views.explain.rounds_about import RoundsAbout
from pulsar_spark.views.explain.undelivered import no_broker, set_aside, why_undelivered

_MISSING = {
    "trimmed": "it was trimmed from the topic, as all subscriptions had acknowledged it or the retention ended",
    "deleted": "it was removed from the topic's table by SQL",
    "lost": "its file is missing or damaged: see 'pulsar-spark topics lost'",
}


def explain(root: Layout, message_id: MessageId, topic: str | None = None, subscription: str | None = None) -> dict:
    """What is known of a message of *topic*, by default that of the id; under ``subscriptions`` why it is where it is
    on each of them or on *subscription* (see :class:`Reason`); and its ``life``, oldest event first."""
    entry, seen = _find(root, message_id, topic)
    keys = sorted(key for key in seen.latest.cursors if key[:2] == (entry.topic.topic_id, entry.partition))
    known = [key.subscription for key in keys]
    if subscription is not None:
        if subscription not in known:
            raise no_subscription(entry.name, subscription, known)
        keys = [key for key in keys if key.subscription == subscription]
    events = read_life(seen, entry, [key.subscription for key in keys])
    reasons = {}
    for key in keys:
        reason, own = why(seen, entry, key), [each for each in events if each.subscription == key.subscription]
        reasons[key.subscription] = _shown(done(seen, entry, key, own) if reason.word == "acknowledged" else reason)
    return {**entry.facts(), "subscriptions": reasons, "life": [_shown_event(each) for each in events]}


def read_life(seen: Seen, entry: Entry, subscriptions: list[str]) -> list[Event]:
    """The events of an entry on *subscriptions*, as far as rounds are kept; the first is its publish."""
    life = [Event(entry.published, PUBLISHED)]
    if entry.position is None or not subscriptions:
        return life
    opened, published = open_table(seen.layout.broker_table(CURSOR_LEDGER.name)), entry.published
    key = entry.topic.topic_id, entry.partition, entry.position
    since = 0 if published is None else to_millis(published)
    rounds = RoundsAbout(opened, str(entry.topic.name), *key, subscriptions, since)
    return [*life, *events_of(rounds, entry.position, entry.batch_index)]


def life_at(root: Layout, topic: str, partition: int, position: int) -> list[Event]:
    """The life of the entry at *position* of a topic's partition on its subscriptions; :class:`CorruptState` without
    such an entry."""
    found = read_topic(root, topic)
    layout = layout_of(root, found.name)
    latest, index = read_latest(layout), LedgerIndex(layout)
    (run,) = index.runs(found.topic_id, partition, position, position)
    entry = Entry(index, found, partition, MessageId(partition, run.ledger_id, run.first_entry_id))
    names = [key.subscription for key in latest.cursors if key[:2] == (found.topic_id, partition)]
    return read_life(Seen(layout, latest, index, now_micros()), entry, names)


def _shown_event(event: Event) -> dict:
    shown = {
        "time": event.time and event.time.isoformat(),
        "event": event.event,
        "subscription": event.subscription,
        "consumerName": event.consumer_name,
        "consumerId": event.consumer_id,
        "round": event.round,
        "redeliveryCount": event.redelivery_count,
        "until": event.until and event.until.isoformat(),
    }
    return {name: value for name, value in shown.items() if value is not None or name == "time"}


def _find(root: Layout, message_id: MessageId, topic: str | None) -> tuple[Entry, Seen]:
    name = topic or message_id.topic_name()
    if name is None:
        raise InvalidConfiguration(f"message id {message_id} does not name its topic: give --topic (in Python topic)")
    if message_id.partition() >= 0:
        (found, partitions), partition = resolve_topic(root, name), message_id.partition()
        if partition not in partitions:
            raise InvalidMessage(f"message id {message_id} belongs to another partition than {name!r}")
    else:
        found, partition = resolve_partition(root, name, "explain a message of")
    layout = layout_of(root, found.name)
    index = LedgerIndex(layout)
    return Entry(index, found, partition, message_id), Seen(layout, read_latest(layout), index, now_micros())


def why(seen: Seen, entry: Entry, key: CursorKey) -> Reason:
    if not entry.is_numbered:
        return _unnumbered(seen, entry, key)
    at = Position(seen, entry, key)
    if entry.missing and (not at.is_acknowledged or entry.missing == "trimmed"):
        return Reason(entry.missing, _MISSING[entry.missing])
    return reason_here(at) or why_undelivered(at)


def _unnumbered(seen: Seen, entry: Entry, key: CursorKey) -> Reason:
    stopped = seen.latest.policies.get((str(entry.topic.name), TOPIC_STOPPED))
    if entry.is_stopped or stopped:
        return Reason("stopped", f"its topic is stopped before it: {stopped or 'its log cannot be read'}")
    kept = set_aside(seen, *key) or no_broker(seen)
    return kept or Reason("not_numbered", "no broker has seen it yet: the next round does")


def _shown(reason: Reason) -> dict:
    return {"why": reason.word, "sentence": reason.sentence, **reason.facts}
