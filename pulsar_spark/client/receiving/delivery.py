"""A delivery: entries that the broker sent to one consumer in one round."""

from bisect import bisect_right
from collections.abc import Iterator
from operator import itemgetter

import numpy as np

from pulsar_spark.link.inbox import is_by_due_time
from pulsar_spark.protocol.acknowledgement.packing import unpacked_pairs
from pulsar_spark.protocol.acknowledgement.positions import ranges_of
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.topics import Topic


class Delivery:
    """Entries of one partition.

    - ``bits``: the unacknowledged batch indexes, None for all.
    - ``positions``: ascending.
    - ``read_versions``: pairs of a first position and the version of ``requests`` that its round had read.
    - ``place``, ``last_place``: where it begins and ends within ``round``, by position.
    - ``due_order``: the positions of due entries (protocol.delays) in the order of handing out.
    - ``first_chunks``: the first position of each chunked message by its last.
    """

    __slots__ = (
        "subscription",
        "pending_acks",
        "generation",
        "read_versions",
        "round",
        "place",
        "last_place",
        "first",
        "last",
        "entries",
        "positions",
        "due_order",
        "first_chunks",
        "batch_size",
        "redelivery_count",
        "bits",
    )

    def __init__(self, subscription, row: dict, generation: int, requests_version: int = -1):
        self.subscription, self.pending_acks = subscription, subscription.tracker.pending
        self.generation = generation
        self.read_versions, self.round = [(0, requests_version)], row["delivery_round"]
        self.first, self.last = self.place, self.last_place = row["first"], row["last"]
        self.positions: range | np.ndarray = range(self.first, self.last + 1)
        named = row["positions"]
        is_due = named is not None and is_by_due_time(row)
        self.due_order: np.ndarray | None = named if is_due else None
        if named is not None:
            self.positions = np.sort(named) if is_due else named
            self.first, self.last = int(self.positions[0]), int(self.positions[-1])
        self.entries = len(self.positions)
        self.first_chunks: dict[int, int] = {last: first for first, last in unpacked_pairs(row["chunks"])}
        self.batch_size = row["batch_size"] or 1
        self.redelivery_count = row["redelivery_count"] or 0
        self.bits = (
            None
            if row["ack_set"] is None
            else sum((word & 0xFFFFFFFFFFFFFFFF) << (64 * index) for index, word in enumerate(row["ack_set"]))
        )

    def is_taken(self) -> None:
        self.subscription.taken = self.taken_after(self.subscription.taken)

    def taken_after(self, taken: tuple[int, int]) -> tuple[int, int]:
        """The round and last place taken, from *taken*, once this delivery is taken too."""
        return self.round, max(self.last_place, taken[1]) if taken[0] == self.round else self.last_place

    @property
    def can_be_joined(self) -> bool:
        """Whether it may be read together with others: plain entries in order."""
        return not (self.batch_size > 1 or self.first_chunks) and (self.bits is None and self.due_order is None)

    def is_followed_by(self, other: "Delivery") -> bool:
        """Whether *other* continues it, with the same generation and redelivery count."""
        return (
            other.subscription is self.subscription
            and (other.generation, other.redelivery_count) == (self.generation, self.redelivery_count)
            and other.first > self.last
        )

    def join(self, others: "list[Delivery]") -> None:
        """Append *others*, which follow in order."""
        self.positions = np.concatenate([np.asarray(each.positions, np.int64) for each in (self, *others)])
        for each in others:
            if each.read_versions[0][1] != self.read_versions[-1][1]:
                self.read_versions.append((each.first, each.read_versions[0][1]))
        self.last, self.entries = others[-1].last, len(self.positions)

    def read_version_at(self, position: int) -> int:
        """The version of ``requests`` read by the round that sent the entry at *position*."""
        at = bisect_right(self.read_versions, position, key=itemgetter(0)) if len(self.read_versions) > 1 else 1
        return self.read_versions[at - 1][1]

    @property
    def unacked_bits(self) -> int:
        return (1 << self.batch_size) - 1 if self.bits is None else self.bits

    @property
    def is_left(self) -> np.ndarray | None:
        """Which batch indexes are unacknowledged; None for all."""
        if self.bits is None:
            return None
        size = max(self.batch_size, self.bits.bit_length())
        octets = np.frombuffer(self.bits.to_bytes(-(-size // 8), "little"), np.uint8)
        return np.unpackbits(octets, bitorder="little").view(bool)

    @property
    def messages(self) -> int:
        """The number of messages for the application, which is their cost in permits."""
        return self.entries * (self.batch_size if self.bits is None else self.bits.bit_count())

    def parts(
        self, ledgers: LedgerIndex, topic: Topic, partition: int, positions: range | np.ndarray
    ) -> Iterator[tuple[Run, list[tuple[int, int]]]]:
        """The runs of its entries at *positions*, each with its stretches of positions."""
        if isinstance(positions, range):
            spans = [(positions[0], positions[-1])]
        else:
            spans = ranges_of(positions)
        if spans:
            yield from ledgers.spans_of(topic.topic_id, partition, spans)
