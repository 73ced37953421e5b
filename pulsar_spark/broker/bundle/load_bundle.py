"""Load a bundle when a broker starts, from the latest rows of ``cursor_ledger`` and the rows of ``ledgers``."""

import logging
from collections.abc import Callable
from functools import lru_cache

from pulsar_spark.broker.bundle.aside import Aside
from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.bundle.clock import Instant
from pulsar_spark.broker.bundle.topic_state import TopicState
from pulsar_spark.broker.chunks.chunked import Chunked
from pulsar_spark.broker.committing.facts import BUNDLE_RANGE, policy_row, waiting_request_row
from pulsar_spark.broker.cursors.consumer import Consumer
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.delays.delay_index import DelayIndex
from pulsar_spark.broker.delays.dues import Dues
from pulsar_spark.broker.key_shared.key_shared import restore
from pulsar_spark.broker.letters.waiting_letters import WaitingLetters
from pulsar_spark.broker.requests.reading import read_places
from pulsar_spark.broker.requests.request import places_of
from pulsar_spark.errors import CorruptState
from pulsar_spark.protocol.acknowledgement.packing import unpacked_stretches
from pulsar_spark.protocol.delays.instants import to_micros
from pulsar_spark.protocol.keys.key_shared import RULES
from pulsar_spark.protocol.policies.compaction import IS_READ_COMPACTED
from pulsar_spark.protocol.subscriptions.membership import lease_ms_of
from pulsar_spark.protocol.subscriptions.unacked_limit import BLOCKED_BY_BROKER
from pulsar_spark.protocol.topics.bundles import WHOLE, BundleRange, parse_range
from pulsar_spark.protocol.topics.message_id import MAX_LONG
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CURSOR_COUNTERS, CursorKey, LatestRows, read_latest
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.python_rows import uncollected
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledgers import runs_of
from pulsar_spark.storage.ledgers.needed_runs import NeededRuns
from pulsar_spark.storage.ledgers.partition_ledgers import PartitionLedgers
from pulsar_spark.storage.topics.topics import Topic
from pulsar_spark.table_specs import LEDGERS

log = logging.getLogger(__name__)


@uncollected()
def load_bundle(
    layout: Layout, delay_index: DelayIndex | None = None, part_of: Callable[[BundleRange], BundleRange] = lambda it: it
) -> Bundle:
    """The bundle after its latest round, with ledgers numbered since. *part_of* may reduce the range of topics that it
    serves."""
    latest = read_latest(layout)
    served = part_of(served_by(latest))
    bundle = Bundle(layout, delay_index, served)
    _leave_out_others(latest, served)
    if latest.round_row:
        bundle.round, bundle.version, bundle.epoch = latest.round, latest.version, latest.round_row["epoch"]
        bundle.requests_version, bundle.broker_id = latest.round_row["requests_version"], latest.round_row["broker_id"]
        wall = to_micros(latest.round_row["round_time"])
        bundle.now = Instant(to_micros(latest.round_row["due_time"]), wall)
        bundle.requests_committed = bundle.requests_version
    bundle.scan()
    bundle.set_aside = Aside(latest.set_aside)
    _keep_unreadable(bundle, latest)
    for (owner, name), value in latest.policies.items():
        if latest.owners.get(owner) in (None, bundle.topic_id(owner)):
            bundle.policies[owner, name] = value
        else:
            bundle.outlived.append(policy_row(owner, bundle.topic_id(owner), name, None))
    by_id = {state.topic.topic_id: state for state in bundle.topics.values()}
    bundle.has_lost_topics = any(topic_id not in by_id for topic_id, _ in latest.topics)
    needed = NeededRuns(layout.broker_table(LEDGERS.name), _first_needed(latest))
    bundle.ledgers_version = needed.version
    for topic_id, partition in needed.rows:
        if topic_id in by_id:
            _take_over_runs(bundle, by_id[topic_id], partition, needed)
    for (topic_id, partition), row in latest.topics.items():
        if topic_id in by_id:
            by_id[topic_id].trimmed[partition] = row["first"] or 0
            if row["due_since"] is not None:
                bundle.dues_dropped[topic_id, partition] = to_micros(row["due_since"])
            by_id[topic_id].version = max(by_id[topic_id].version, row["ledger_id"])
    bundle.delay_index.retain(by_id)
    bundle.index_new(bundle.topics.values())
    for key in latest.cursors:
        if key.topic_id in by_id:
            bundle.cursors[key] = _load_cursor(bundle, latest, key)
    bundle.waiting_letters = WaitingLetters(latest)
    _load_waiting_requests(bundle, latest)
    return bundle


def served_by(latest: LatestRows) -> BundleRange:
    """The range of topics that the latest round serves; all topics if it names none."""
    properties = dict((latest.round_row or {}).get("properties") or ())
    return parse_range(properties[BUNDLE_RANGE]) if BUNDLE_RANGE in properties else WHOLE


def _leave_out_others(latest: LatestRows, served: BundleRange) -> None:
    """Drop rows of topics outside the slice; policies of namespaces and the root stay."""
    if served.is_whole:
        return
    is_its = lru_cache(maxsize=None)(lambda topic: topic is None or "://" not in topic or served.holds(topic))
    latest.policies = {key: value for key, value in latest.policies.items() if is_its(key[0])}
    latest.set_aside = {name: entry for name, entry in latest.set_aside.items() if is_its(entry.topic)}
    latest.waiting_letters = {key: row for key, row in latest.waiting_letters.items() if is_its(row["topic"])}
    latest.letterless = {key: row for key, row in latest.letterless.items() if is_its(row["topic"])}


def _first_needed(latest: LatestRows) -> Callable[[str, int], int]:
    firsts: dict[tuple[str, int], int] = {}
    for key, row in latest.cursors.items():
        first = row["mark_delete_position"] + 1
        place = key.topic_id, key.partition
        firsts[place] = min(first, firsts.get(place, first))
    return lambda topic_id, partition: firsts.get((topic_id, partition), MAX_LONG)


def _take_over_runs(bundle: Bundle, state: TopicState, partition: int, needed: NeededRuns) -> None:
    """Take over runs that are numbered already. A gap between their positions stops the topic."""
    place = state.topic.topic_id, partition
    state.partitions[partition] = ledgers = PartitionLedgers(needed.past[place], bundle.stored_runs(*place))
    try:
        ledgers.extend(needed.rows[place])
    except CorruptState as broken:
        state.error = state.error or str(broken)
        bundle.stopped.append(state)
    state.publish_ids = needed.publish_ids[state.topic.topic_id]
    state.newly_delayed += [(partition, run) for _, _, run in runs_of(needed.delayed[place])]


def _load_waiting_requests(bundle: Bundle, latest: LatestRows) -> None:
    bundle.waiting_requests = read_places(bundle.layout.broker_table("requests"), latest.waiting_requests)
    there = {*places_of(bundle.waiting_requests)}
    for place in sorted(latest.waiting_requests.keys() - there):
        log.warning(
            "request %d of commit %d waited for the delay index and can no longer be read: try again", *reversed(place)
        )
        bundle.outlived.append(waiting_request_row(*place, is_removed=True))


def _keep_unreadable(bundle: Bundle, latest: LatestRows) -> None:
    """Stop topics whose tables cannot be read, and keep their subscriptions."""
    for topic_id, row in {topic_id: row for (topic_id, _), row in latest.topics.items()}.items():
        name, error = row["topic"], bundle.why_passed_over(row["topic"])
        if error is not None and name not in bundle.topics:
            parsed = parse_topic_name(name)
            path = bundle.layout.topic(parsed)
            partitions = sum(known == topic_id and partition >= 0 for known, partition in latest.topics)
            bundle.stop_unreadable(
                TopicState(Topic(parsed, path, topic_id, partitions), TableLog(path), None, error=error)
            )


def _load_cursor(bundle: Bundle, latest: LatestRows, key: CursorKey) -> Cursor:
    row = latest.cursors[key]
    cursor = Cursor(key, row["topic"], row["mark_delete_position"], row["read_position"], row["subscription_type"])
    cursor.is_blocked, cursor.joined = bool(row["is_blocked"]), row["join_order"] or 0
    cursor.is_blocked_by_broker = row["status"] == BLOCKED_BY_BROKER
    cursor.reads_after = to_micros(row["due_time"]) if row["due_time"] else 0
    cursor.last_active = to_micros(row["round_time"]) if row["round_time"] else None
    for name in CURSOR_COUNTERS:
        setattr(cursor, name, row[name] or 0)
    properties = dict(row["properties"] or [])
    cursor.reads_compacted = properties.pop(IS_READ_COMPACTED, None) == "true"
    cursor.dead_letters = {name: value for name, value in properties.items() if name not in RULES}
    _load_consumers(bundle, cursor, latest.consumers[key])
    restore(cursor, row, latest.consumers[key])
    if key in latest.maps:
        cursor.load_entries(latest.maps[key])
    if row["due_since"] is not None:
        watermark = max(to_micros(row["due_since"]), bundle.dues_dropped.get(key[:2], 0))
        cursor.dues = Dues(bundle.delay_index, key.topic_id, key.partition, watermark)
        cursor.dues.is_stored = True
    bundle.attach_chunks(cursor)
    if cursor.chunked:
        _load_chunked(cursor.chunked, latest, key)
    return cursor


def _load_consumers(bundle: Bundle, cursor: Cursor, consumers: dict[str, dict]) -> None:
    for consumer_id, facts in sorted(consumers.items(), key=lambda item: item[1]["join_order"]):
        properties = dict(facts["properties"] or [])
        cursor.consumers[consumer_id] = Consumer(
            consumer_id,
            facts["consumer_name"],
            facts["client_id"],
            facts["priority_level"],
            facts["join_order"],
            facts["permits"],
            bool(facts["is_blocked"]),
            facts["msg_out_counter"] or 0,
            facts["msg_redeliver_counter"] or 0,
            properties,
        )
        if facts["is_active"]:
            cursor.active_id = consumer_id
        lease_ms = lease_ms_of(properties.get("lease_ms"))
        bundle.lease_ms[facts["client_id"]] = min(lease_ms, bundle.lease_ms.get(facts["client_id"], lease_ms))


def _load_chunked(chunked: Chunked, latest: LatestRows, key: CursorKey) -> None:
    row, consumers = latest.cursors[key], latest.consumers[key]
    chunked.released = unpacked_stretches(row["chunks"])
    kept_back = {consumer_id: facts["chunks"] for consumer_id, facts in consumers.items()}
    chunked.kept_back = {each: unpacked_stretches(kept) for each, kept in kept_back.items() if kept}
    numbered = latest.topics.get((key.topic_id, key.partition))
    chunked.seen = numbered["end_position"] if numbered else 0
