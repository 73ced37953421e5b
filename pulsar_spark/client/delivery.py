"""What the broker sent to one consumer in one round: a range of positions, or of a lane.

Of the due lane (protocol.delays) it is entries that waited for their deliver time: the broker says where each lies, and
they are handed out in the order they came due, not in that of their positions.

Of a range of a lane (protocol.lanes) the entries between its ends that have the lane's hashes were sent, the others to
others. Which these are is known once their hashes were read, by whoever takes messages; how many they are the broker
says, so permits and the queue count without reading.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import count
from operator import itemgetter

import numpy as np

from pulsar_spark.protocol.lanes import LaneHashes
from pulsar_spark.protocol.numbering import Run
from pulsar_spark.protocol.packing import unpacked_pairs
from pulsar_spark.protocol.positions import ranges_of
from pulsar_spark.storage.key_hashes import sent_by_lane
from pulsar_spark.storage.ledger_index import LedgerIndex
from pulsar_spark.storage.topics import Topic


class Delivery:
    """Entries of one partition; ``bits`` are the batch indexes not yet acknowledged, None for all; ``positions`` are
    None until they are looked up, and ascend; ``read_versions`` say from which position on the rounds that sent them
    had read ``requests`` how far, where that matters; ``place`` and ``last_place`` say where they lie in what ``round``
    sent, as numbers of the due lane for what came due; ``due_order`` has those of entries that came due in the order in
    which they are handed out; ``first_chunks`` says of chunked messages, by the position of the last chunk, where they
    begin. What ``is_dead`` is given back by who reads it, and not shown."""

    __slots__ = (
        "subscription",
        "pending_acks",
        "generation",
        "read_versions",
        "round",
        "place",
        "last_place",
        "_places",
        "first",
        "last",
        "entries",
        "lane",
        "positions",
        "due_order",
        "first_chunks",
        "batch_size",
        "redelivery_count",
        "bits",
        "is_dead",
    )

    def __init__(self, subscription, row: dict, generation: int, requests_version: int = -1):
        self.subscription, self.pending_acks = subscription, subscription.tracker.pending
        self.generation, self.is_dead = generation, False
        self.read_versions, self.round = [(0, requests_version)], row["delivery_round"]
        self.first, self.last = self.place, self.last_place = row["first"], row["last"]
        self.lane: LaneHashes | None = row["lane_hashes"]
        self.entries: int = self.last - self.first + 1 if row["entries"] is None else row["entries"]
        self.positions: range | np.ndarray | None = None
        self.due_order: np.ndarray | None = row["positions"]
        if self.due_order is not None:
            self.entries, self.positions = len(self.due_order), np.sort(self.due_order)
            self.first, self.last = int(self.positions[0]), int(self.positions[-1])  # the row's are numbers of the lane
        elif self.lane is None or self.entries in (
            1,
            self.last - self.first + 1,
        ):  # a range begins at one of its entries
            self.positions = range(self.first, self.first + self.entries)
        self._places: dict[int, int] | None = None
        self.first_chunks: dict[int, int] = {last: first for first, last in unpacked_pairs(row["chunks"])}
        self.batch_size = row["batch_size"] or 1
        self.redelivery_count = row["redelivery_count"] or 0
        self.bits = (
            None
            if row["ack_set"] is None
            else sum((word & 0xFFFFFFFFFFFFFFFF) << (64 * index) for index, word in enumerate(row["ack_set"]))
        )

    def is_taken(self) -> None:
        """Note that it left the queue."""
        self.subscription.taken = self._behind(self.subscription.taken)

    def _behind(self, taken: tuple[int, int]) -> tuple[int, int]:
        """The round and last place taken, after *taken*, once this delivery is taken too."""
        return self.round, max(self.last_place, taken[1]) if taken[0] == self.round else self.last_place

    @property
    def can_be_joined(self) -> bool:
        """Whether it is read as well together with others: entries in order of which nothing else is known."""
        return not (self.batch_size > 1 or self.first_chunks or self.is_dead) and (
            self.bits is None and self.due_order is None and self.positions is not None
        )

    def is_followed_by(self, other: "Delivery") -> bool:
        """Whether another one goes on behind it, in the same generation and as often delivered before."""
        return (
            other.subscription is self.subscription
            and (other.generation, other.redelivery_count) == (self.generation, self.redelivery_count)
            and other.first > self.last
        )

    def join(self, others: "list[Delivery]") -> None:
        """Take the entries of *others* in, which lie behind its own and behind each other."""
        self.positions = np.concatenate([np.asarray(each.positions, np.int64) for each in (self, *others)])
        for each in others:
            if each.read_versions[0][1] != self.read_versions[-1][1]:
                self.read_versions.append((each.first, each.read_versions[0][1]))
        self.last, self.entries, self.lane = others[-1].last, len(self.positions), None

    def place_of(self, position: int) -> int:
        """The place of the entry at *position*."""
        if self.due_order is None:
            return position
        if self._places is None:
            self._places = dict(zip(self.due_order.tolist(), count(self.place)))
        return self._places[position]

    def read_version_at(self, position: int) -> int:
        """How far the round had read ``requests`` that sent the entry at *position*."""
        at = bisect_right(self.read_versions, position, key=itemgetter(0)) if len(self.read_versions) > 1 else 1
        return self.read_versions[at - 1][1]

    @property
    def unacked_bits(self) -> int:
        return (1 << self.batch_size) - 1 if self.bits is None else self.bits

    @property
    def is_left(self) -> np.ndarray | None:
        """By batch index, whether it is not yet acknowledged; None for all."""
        if self.bits is None:
            return None
        size = max(self.batch_size, self.bits.bit_length())
        octets = np.frombuffer(self.bits.to_bytes(-(-size // 8), "little"), np.uint8)
        return np.unpackbits(octets, bitorder="little").view(bool)

    @property
    def messages(self) -> int:
        """Messages the application is to see of it, which is what it cost in permits."""
        return self.entries * (self.batch_size if self.bits is None else self.bits.bit_count())

    def look_up(self, ledgers: LedgerIndex, topic: Topic, partition: int) -> range | np.ndarray:
        """Its positions, ascending, of what is gone all that may have been sent with it (protocol.lanes)."""
        if self.positions is None:
            place, span = (topic.topic_id, partition), (self.first, self.last)
            self.positions = sent_by_lane(ledgers, topic.path, place, span, self.lane, self.entries)
        return self.positions

    def holds(self, position: int) -> bool:
        """Whether an entry is among those that were looked up."""
        if isinstance(self.positions, range):
            return position in self.positions
        at = np.searchsorted(self.positions, position)
        return at < len(self.positions) and self.positions[at] == position

    def parts(
        self, ledgers: LedgerIndex, topic: Topic, partition: int, positions: range | np.ndarray
    ) -> Iterator[tuple[Run, list[tuple[int, int]]]]:
        """The runs that its entries, or those at some of its *positions*, lie in, each with their positions there, as
        stretches."""
        if isinstance(positions, range):
            spans = [(positions[0], positions[-1])]
        else:
            spans = ranges_of(positions)
        if spans:
            yield from ledgers.spans_of(topic.topic_id, partition, spans)


def tail_of(queue: Sequence[Delivery], messages: int) -> list[Delivery]:
    """The last deliveries of one subscription's *queue* with at least so many *messages*, if there are so many.

    Deliveries stay whole, and a round and a place name the first of them."""
    if not queue or messages <= 0:
        return []
    taken, before = queue[0].subscription.taken, []
    for delivery in queue:
        before.append(taken)
        taken = delivery._behind(taken)
    cut, first, found = len(queue), queue[-1].place, 0
    for at in reversed(range(len(queue))):
        delivery = queue[at]
        is_same_round = at + 1 < len(queue) and queue[at + 1].round == delivery.round
        first = min(first, delivery.place) if is_same_round else delivery.place
        found += 0 if delivery.is_dead else delivery.messages
        round_before, last_before = before[at]
        if round_before != delivery.round or last_before < first:
            cut = at
            if found >= messages:
                break
    return list(queue[cut:])
