"""Splitting a bundle: its topics with the higher hashes become a bundle of their own. A broker that serves it is asked
for it, ends its round, and takes what there is behind the split; meanwhile nobody serves the bundle.

Nothing of a topic moves. The new bundle begins as a clone of the tables, which are files that nobody changes in place
(second names of them, in an object store copies), so that what was delivered and when, and the numbers of rounds, by
which DataFrame consumers write once, are as they were; then each of the two commits a round that says the slice it
serves and all there is of it, and no more of the other's. What is asked and not answered the lower part takes (see
_pass_over). The writes, in order, and what a crash behind each leaves:

1. the layout of its tables, which says to releases that know one bundle only that the root is not for them; a round of
   the whole, by which a broker that had the bundle before is fenced: nothing else;
2. the clone, on the disk where the root wants that, its first round, and requests that let go of its consumers: a
   folder that nobody knows, which the next split removes;
3. the round of the lower part, which **decides**: from now on the bundle serves it alone. It comes only if nobody has
   committed a round since 1, and says to the consumers of the other part that they are let go of;
4. the root's file of bundles, without which nobody looks for the upper part: who starts a broker of the lower part, or
   asks for the same split again, which is done by that, writes it (storage.bundles.add_bundle).

Consumers of the upper part subscribe again by themselves, as when a topic is unloaded; what they had not acknowledged
comes again, uncounted.
"""

import threading
import time
import uuid
from collections.abc import Callable

from pulsar_spark.broker.bundle import Bundle
from pulsar_spark.broker.delay_index import DelayIndex
from pulsar_spark.broker.drafts import Request
from pulsar_spark.broker.facts import removed_consumer_row
from pulsar_spark.broker.load_bundle import load_bundle, served_by
from pulsar_spark.broker.other_bundles import append_requests
from pulsar_spark.broker.patience import Waits
from pulsar_spark.broker.reading import read_asked
from pulsar_spark.broker.requests import SENT_ON
from pulsar_spark.broker.rounds import Rounds
from pulsar_spark.broker.tenure import Tenure, new_broker_id
from pulsar_spark.errors import NotAllowedError
from pulsar_spark.protocol.bundles import BundleRange
from pulsar_spark.protocol.durations import shown_seconds
from pulsar_spark.storage.announcements import announcements_folder
from pulsar_spark.storage.bundles import add_bundle, bundles_of
from pulsar_spark.storage.commits import now_micros
from pulsar_spark.storage.cursor_ledger import read_latest
from pulsar_spark.storage.durability import is_durable, sync_tree
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.lease import BundleLease, Holder
from pulsar_spark.storage.migrations import migrate_at_start, raise_layout
from pulsar_spark.storage.table_lock import lock_where_there_is_one
from pulsar_spark.table_specs import BROKER_TABLES, DELAY_INDEX, REQUESTS, SPLIT_LAYOUT_VERSION

UNLOADED = "unloaded"
HAND_OVER_SECONDS, LOOK_SECONDS = 60.0, 0.2
"""How long a broker is waited for that serves the bundle, and between two looks whether it does still."""


def split_bundle(
    layout: Layout, at: int | None = None, now: Callable[[], int] = now_micros
) -> tuple[BundleRange, BundleRange]:
    """Split the bundle of *layout* at a hash, or in the middle; the two slices. :class:`NotAllowedError` where a broker
    serves it and does not hand it over, and where a split that came to no end turns out to have been another;
    :class:`InvalidConfiguration` for a hash that is not inside."""
    bundles_of(layout).range_of(layout.bundle).split(at)  # nobody is disturbed for what cannot be
    stopping = threading.Event()
    broker_id = new_broker_id("split-")
    tenure = Tenure(layout, broker_id, stopping, Waits(broker_id), lambda fenced: stopping.set())
    lease = BundleLease(layout, broker_id)
    tenure.go_on_with(lease)
    if (holder := lease.sure_holder()) is not None:
        _have_it_given(layout, lease, holder)
    if not tenure.begin(standby_seconds=0):
        raise _refused(layout, lease.holder(), "took it meanwhile")
    try:
        migrate_at_start(layout, broker_id)
        return _split(layout, at, broker_id, now)
    finally:
        stopping.set()
        tenure.end()


def _have_it_given(layout: Layout, lease: BundleLease, holder: Holder) -> None:
    """Ask the broker that serves the bundle for it, and wait for the end of its round; :class:`NotAllowedError` where
    it does not hand it over, as one that a program started for itself, or where another asked before."""
    until = time.monotonic() + HAND_OVER_SECONDS
    if not lease.ask():
        if (other := lease.holder()) is not None:
            raise _refused(layout, other, "already hands it over for another split")
        return
    while (said := lease.holder()) is not None and said.broker_id != lease.broker_id:
        if said.broker_id != holder.broker_id or not lease.is_asked(said):
            raise _refused(layout, said, "does not hand it over")
        if time.monotonic() > until:
            lease.withdraw()
            raise _refused(layout, said, f"did not hand it over within {shown_seconds(HAND_OVER_SECONDS)}")
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
    raise_layout(layout, SPLIT_LAYOUT_VERSION)
    whole = rounds_of(layout)
    whole.take_over()
    append_requests(layout, whole.take_waiting())
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
    layout.store.remove_folder(other.bundle_folder())  # of a split that came to no end
    for spec in (*BROKER_TABLES, DELAY_INDEX):
        path = layout.broker_table(spec.name)
        if path.exists():
            with lock_where_there_is_one(path):
                layout.store.clone_folder(path, other.broker_table(spec.name))
    layout.store.make_folder(announcements_folder(other))
    if is_durable(other.broker_table(REQUESTS.name)):
        sync_tree(other.bundle_folder())


def _pass_over(bundle: Bundle) -> list[Request]:
    """Leave what is asked and not answered to the lower part, which refuses what is about the upper one's topics, so
    that it is asked again: else it would be done twice. Given is what has to be asked of the upper part, too: what
    names no topic, and what nobody asks again, which counts once however often it is said."""
    asked = read_asked(bundle.layout.broker_table(REQUESTS.name), after=bundle.requests_version)
    bundle.requests_version = bundle.requests_committed = asked.version

    def is_kept(request: Request) -> bool:
        return request.topic is None or (request.kind in SENT_ON and bundle.served.holds(request.topic))

    bundle.waiting_requests = [each for each in bundle.waiting_requests if is_kept(each)]
    return [each for each in asked.requests if is_kept(each)]


def _request_id(broker_id: str) -> str:
    return f"{broker_id}-{uuid.uuid4().hex}"


def _close(cursor, consumer, broker_id: str) -> Request:
    return Request(
        **dict.fromkeys(Request._fields)
        | dict(
            request_id=_request_id(broker_id),
            kind="close",
            client_id=consumer.client_id,
            consumer_id=consumer.consumer_id,
            topic=cursor.topic,
            partition=cursor.key.partition,
            subscription=cursor.key.subscription,
        )
    )
