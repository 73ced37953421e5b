"""A bundle in memory, after the latest round. It follows from committed tables (see load_bundle)."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter

import pyarrow as pa

from pulsar_spark.broker.bundle.aside import Aside
from pulsar_spark.broker.bundle.changed import Changed
from pulsar_spark.broker.bundle.clock import Instant
from pulsar_spark.broker.bundle.topic_state import TopicState
from pulsar_spark.broker.bundle.topics import Topics
from pulsar_spark.broker.chunks.chunked import Chunked
from pulsar_spark.broker.committing.facts import consumer_row, policy_row, waiting_request_row
from pulsar_spark.broker.cursors.consumer import Consumer
from pulsar_spark.broker.cursors.cursors import Cursors
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.delays.delay_index import DelayIndex
from pulsar_spark.broker.letters.waiting_letters import WaitingLetters
from pulsar_spark.broker.requests.request import Request, places_of
from pulsar_spark.broker.service.liveness import Liveness
from pulsar_spark.protocol.policies.policies import TOPIC_STOPPED, policy_number, policy_text
from pulsar_spark.protocol.subscriptions.membership import lease_end
from pulsar_spark.protocol.topics.bundles import WHOLE, BundleRange
from pulsar_spark.protocol.topics.message_id import MAX_LONG
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.needed_runs import stored_runs
from pulsar_spark.table_specs import LEDGERS


class Bundle(Topics):
    """All topics and subscriptions of a bundle, with policies, leases and what is set aside."""

    def __init__(self, layout: Layout, delay_index: DelayIndex | None = None, served: BundleRange = WHOLE):
        super().__init__(layout, served)
        self.cursors = Cursors()
        self.policies: dict[tuple[str, str], str] = {}
        self.outlived: list[dict] = []
        """Rows that remove policies of topics that were deleted, or deleted and created again, while no broker ran."""
        self.leases: dict[str, int] = {}
        self.lease_ms: dict[str, int] = {}
        self.liveness = Liveness(layout)
        self.round = self.version = 0
        self.epoch = 0
        self.broker_id: str | None = None
        """Who committed the latest round when the bundle was loaded."""
        self.requests_version = self.requests_committed = 0
        self.last_write_us: int | None = None
        """How long this broker wrote its latest round."""
        self.ledgers_version = 0
        self.now = Instant(0, 0)
        """The moment of the latest round."""
        self.changed = Changed()
        self.set_aside = Aside()
        self.waiting_requests: list[Request] = []
        """Requests for a later round, while the one that makes rounds fail is looked for (see recovery)."""
        self.has_lost_topics = False
        """Were topics gone when the bundle was loaded that its latest rows still name?"""
        self.maintenance_due: int | None = None
        self.waiting_letters = WaitingLetters()
        self.delay_index = delay_index or DelayIndex(layout)
        self.dues_dropped: dict[tuple[str, int], int] = {}
        """By topic partition: entries due until then are no longer in the delay index."""

    def keep_waiting(self, requests: Sequence[Request]) -> list[dict]:
        """Keep *requests* for a later round; returns rows that add and remove those stored in a commit."""
        waited, waits = ({*places_of(each)} for each in (self.waiting_requests, requests))
        self.waiting_requests = list(requests)
        rows = [waiting_request_row(*place, is_removed=True) for place in sorted(waited - waits)]
        return rows + [waiting_request_row(*place) for place in sorted(waits - waited)]

    def set_policy(self, owner: str, name: str, value: str | None) -> dict:
        """Set a policy, or remove it; returns its row."""
        self.policies.pop((owner, name), None)
        if value is not None:
            self.policies[owner, name] = value
        self.cursors.wake_all()
        return policy_row(owner, self.topic_id(owner), name, value)

    def stopped_rows(self, state: TopicState) -> list[dict]:
        """The row that says whether and why a topic is stopped, unless the latest row agrees."""
        name = str(state.topic.name)
        if self.policies.get((name, TOPIC_STOPPED)) == state.error:
            return []
        return [self.set_policy(name, TOPIC_STOPPED, state.error)]

    def policy(self, topic: str, name: str) -> int:
        """A numeric policy: of the topic, else its namespace, else the root, else the default."""
        return policy_number(name, self.policy_text(topic, name))

    def policy_text(self, topic: str, name: str) -> str:
        return policy_text(self.policies, topic, name)

    def cursors_at_work(self) -> list[Cursor]:
        """The cursors that neither rest nor are set aside."""
        return [cursor for cursor in self.cursors.awake() if not self.set_aside.has(cursor)]

    def batch_size(self, cursor: Cursor, position: int) -> int:
        """Messages in a numbered entry; 1 if no longer known."""
        run = next(self.topics[cursor.topic].ledgers(cursor.key.partition).overlapping(position, position), None)
        return run.batch_size if run else 1

    def attach_chunks(self, cursor: Cursor) -> None:
        state, partition = self.topics[cursor.topic], cursor.key.partition
        if cursor.chunked is None and state.ledgers(partition).last_chunk_position >= 0:
            cursor.chunked = Chunked(cursor, state.chunks(partition))

    def forget_chunks(self, topics: Iterable[str]) -> None:
        for state in (self.topics[name] for name in topics if name in self.topics):
            for partition, groups in state.chunk_groups.items():
                if not groups.is_large:
                    continue
                cursors = self.cursors.of_topic(state.topic.topic_id)
                firsts = (each.mark_delete + 1 for each in cursors if each.key.partition == partition)
                groups.forget_before(min(firsts, default=groups.last_position + 1))

    def forget_runs(self) -> None:
        for state in self.topics.values():
            firsts = dict.fromkeys(state.partitions, MAX_LONG)
            for cursor in self.cursors.of_topic(state.topic.topic_id):
                first = cursor.mark_delete + 1
                partition = cursor.key.partition
                firsts[partition] = min(first, firsts.get(partition, first))
            for partition, ledgers in state.partitions.items():
                ledgers.drop_before(firsts[partition], self.stored_runs(state.topic.topic_id, partition))
                state.drop_before(partition, firsts[partition])

    def stored_runs(self, topic_id: str, partition: int) -> Callable[[int], pa.Table]:
        return partial(stored_runs, self.layout.broker_table(LEDGERS.name), topic_id, partition)

    # Delayed entries
    def delayed_after(self, wall: int, topic_id: str, partition: int) -> int:
        """The instant after which entries numbered at *wall* wait; never before what is dropped from the delay
        index."""
        return max(wall, self.dues_dropped.get((topic_id, partition), wall))

    def note_watermarks(self) -> None:
        """Note until when due entries are no longer needed, to drop them from the delay index after the commit."""
        found: dict[tuple[str, int], int] = {}
        for key, cursor in self.cursors.items():
            if cursor.dues is not None:
                cursor.dues.advance_watermark(cursor.entries, self.now.wall)
                place = key.topic_id, key.partition
                found[place] = min(cursor.dues.watermark, found.get(place, cursor.dues.watermark))
        for place, watermark in found.items():
            self.dues_dropped[place] = max(watermark, self.dues_dropped.get(place, watermark))

    def index_new(self, states: Iterable[TopicState]) -> None:
        for state in states:
            for partition, runs in groupby(state.newly_delayed, key=itemgetter(0)):
                self.delay_index.add(state, partition, [run for _, run in runs])
            state.newly_delayed = []

    def drop_dues(self) -> None:
        """Drop due entries that no cursor needs from the delay index, after the commit of the round that noted them."""
        for place, until in self.dues_dropped.items():
            self.delay_index.drop(*place, until)

    def forget_delayed(self, topic_id: str) -> None:
        self.delay_index.forget(topic_id)
        self.dues_dropped = {place: until for place, until in self.dues_dropped.items() if place[0] != topic_id}

    # Leases

    def renew_lease(self, client_id: str, now: int) -> None:
        """Extend the lease of a client heard at *now* (the broker's own clock)."""
        self.leases[client_id] = lease_end(now, self.lease_ms[client_id])

    def hear(self, now: int) -> list[str]:
        """Renew leases by signs of life; returns clients known to be gone."""
        gone = self.liveness.gone(self.leases)
        for client_id in self.liveness.take_heard():
            if client_id in self.leases:
                self.renew_lease(client_id, now)
        return gone

    def consumer_row(self, cursor: Cursor, consumer: Consumer, *, with_hash_ranges: bool) -> dict:
        """The row of a connected consumer (see facts); its lease ends by the machine's clock."""
        until = self.leases.get(consumer.client_id)
        return consumer_row(
            cursor,
            consumer,
            lease_time=None if until is None else until - self.now.own + self.now.wall,
            with_hash_ranges=with_hash_ranges,
        )
