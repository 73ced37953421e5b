"""Split a bundle: topics with higher hashes become a bundle of their own.

The new bundle is a clone of the tables, so deliveries and round numbers are kept. Writes in order, and what a crash
after each leaves:

1. A round of the whole, which fences its broker: nothing else.
2. The clone, its first round, and requests that close its consumers: a folder that the next split removes.
3. The round of the lower part, which **decides**, unless another was committed since 1.
4. The root's file of bundles. A start of the lower part, or the same split again, writes it.

Consumers of the upper part subscribe again, and get again, uncounted, what they had not acknowledged.
"""

import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.bundle.load_bundle import load_bundle, served_by
from pulsar_spark.broker.bundle.other_bundles import append_requests
from pulsar_spark.broker.committing.facts import removed_consumer_row
from pulsar_spark.broker.delays.delay_index import DelayIndex
from pulsar_spark.broker.requests.executor import SENT_ON
from pulsar_spark.broker.requests.reading import read_request_batch
from pulsar_spark.broker.requests.request import Request, new_request
from pulsar_spark.broker.round.rounds import Rounds
from pulsar_spark.broker.service.backoff import Waits
from pulsar_spark.broker.service.lease_keeper import LeaseKeeper, new_broker_id
from pulsar_spark.errors import NotAllowedError
from pulsar_spark.protocol.delays.durations import shown_seconds
from pulsar_spark.protocol.topics.bundles import BundleRange
from pulsar_spark.storage.clock import now_micros
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.delta.table_lock import lock_where_there_is_one
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes.lease import BundleLease, Holder
from pulsar_spark.storage.store.durability import is_durable, sync_tree
from pulsar_spark.storage.topics.announcements import announcements_folder
from pulsar_spark.storage.topics.bundles import add_bundle, bundles_of
from pulsar_spark.table_specs import BROKER_TABLES, LATER_TABLES, REQUESTS

UNLOADED = "unloaded"
HAND_OVER_SECONDS, LOOK_SECONDS = 60.0, 0.2
"""How long to wait for the serving broker, and the pause between two looks at its lease."""


def split_bundle(
    layout: Layout, at: int | None = None, now: Callable[[], int] = now_micros
) -> tuple[BundleRange, BundleRange]:
    """Split the bundle of *layout* at hash *at*, or in the middle; returns both slices.

    :class:`NotAllowedError` if a broker does not hand it over, or an unfinished split was another.
    """
    bundles_of(layout).range_of(layout.bundle).split(at)  # refuse before the broker is disturbed
    stopping = threading.Event()
    broker_id = new_broker_id("split-")
    lease_keeper = LeaseKeeper(layout, broker_id, stopping, Waits(broker_id), lambda fenced: stopping.set())
    lease = BundleLease(layout, broker_id)
    lease_keeper.go_on_with(lease)
    if (holder := lease.sure_holder()) is not None:
        _have_it_given(layout, lease, holder)
    if not lease_keeper.begin(standby_seconds=0):
        raise _refused(layout, lease.holder(), "took it meanwhile")
    try:
        return _split(layout, at, broker_id, now)
    finally:
        stopping.set()
        lease_keeper.end()


def _have_it_given(layout: Layout, lease: BundleLease, holder: Holder) -> None:
    """Ask the serving broker for the bundle, and wait for its round; :class:`NotAllowedError` if it refuses."""
    until = time.monotonic() + HAND_OVER_SECONDS
    if not lease.request():
        if (other := lease.holder()) is not None:
            raise _refused(layout, other, "already hands it over for another split")
        return
    while (other := lease.holder()) is not None and other.broker_id != lease.broker_id:
        if other.broker_id != holder.broker_id or not lease.has_requested(other):
            raise _refused(layout, other, "does not hand it over")
        if time.monotonic() > until:
            lease.withdraw()
            raise _refused(layout, other, f"did not hand it over within {shown_seconds(HAND_OVER_SECONDS)}")
        time.sleep(LOOK_SECONDS)


def _refused(layout: Layout, holder: Holder | None, why: str) -> NotAllowedError:
    return NotAllowedError(
        f"bundle {layout.bundle} is served by {holder.broker_id if holder else 'a broker'}, which {why}: stop the "
        "brokers of the root, split, and start them again"
    )


def _split(layout: Layout, at: int | None, broker_id: str, now: Callable[[], int]) -> tuple[BundleRange, BundleRange]:
    def rounds_of(place: Layout, served: BundleRange | None = None) -> Rounds:
        index = DelayIndex(place, is_attended=True)
        bundle = load_bundle(place, index, lambda whole: served or whole)
        return Rounds(bundle, lambda work: [], now, broker_id)

    lower, upper = (before := bundles_of(layout).range_of(layout.bundle)).split(at)
    decided = served_by(read_latest(layout))
    if (rest := add_bundle(layout, decided)) is not None:
        if (decided, rest) != (lower, upper):
            raise NotAllowedError(
                f"bundle {before} was split into {decided} and {rest} by an interrupted split, which is "
                "completed now: see 'pulsar-spark bundles list', and split one of these"
            )
        return lower, upper
    whole = rounds_of(layout)
    whole.take_over()
    append_requests(layout, whole.take_own_requests())
    connected = [
        (cursor, consumer)
        for cursor in whole.bundle.cursors.values()
        for consumer in cursor.consumers.values()
        if upper.holds(cursor.topic)
    ]
    other = Layout(layout.root, str(upper))
    _clone(layout, other)
    rounds = rounds_of(other, upper)
    left = _pass_over(rounds.bundle)
    rounds.begin()
    closing = [_close(cursor, consumer, broker_id) for cursor, consumer in connected]
    append_requests(other, [each._replace(request_id=_request_id(broker_id)) for each in left] + closing)
    gone = [removed_consumer_row(cursor, consumer, UNLOADED) for cursor, consumer in connected]
    rounds_of(layout, lower).begin(gone)
    add_bundle(layout, lower)
    return lower, upper


def _clone(layout: Layout, other: Layout) -> None:
    layout.store.remove_folder(other.bundle_folder())  # left by an interrupted split
    for spec in (*BROKER_TABLES, *LATER_TABLES):
        path = layout.broker_table(spec.name)
        if path.exists():
            with lock_where_there_is_one(path):
                layout.store.clone_folder(path, other.broker_table(spec.name))
    layout.store.make_folder(announcements_folder(other))
    folder = other.bundle_folder()
    if isinstance(folder, Path) and is_durable(other.broker_table(REQUESTS.name)):
        sync_tree(folder)


def _pass_over(bundle: Bundle) -> list[Request]:
    """Leave unanswered requests to the lower part; returns those that the upper part needs too: without a topic, or
    safe to repeat and not repeated by clients."""
    batch = read_request_batch(bundle.layout.broker_table(REQUESTS.name), after=bundle.requests_version)
    bundle.requests_version = bundle.requests_committed = batch.version

    def is_kept(request: Request) -> bool:
        return request.topic is None or (request.kind in SENT_ON and bundle.served.holds(request.topic))

    bundle.waiting_requests = [each for each in bundle.waiting_requests if is_kept(each)]
    return [each for each in batch.requests if is_kept(each)]


def _request_id(broker_id: str) -> str:
    return f"{broker_id}-{uuid.uuid4().hex}"


def _close(cursor, consumer, broker_id: str) -> Request:
    return new_request(
        _request_id(broker_id),
        "close",
        properties={},
        client_id=consumer.client_id,
        consumer_id=consumer.consumer_id,
        topic=cursor.topic,
        partition=cursor.key.partition,
        subscription=cursor.key.subscription,
    )
