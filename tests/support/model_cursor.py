"""The reference cursor: one subscription of one topic partition, entry by entry, as dull as possible.

A dict per status and position, and one method per step of a round. Where the rules leave room (semantics 0.28) the
choices are those of the round itself: who stands where in line, how wide a turn is. Slow on purpose; nothing here is
shared with the package but the pure rules.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from pulsar_spark.protocol.acknowledgement import ack_set as ack_sets
from pulsar_spark.protocol.keys.selectors import Member
from pulsar_spark.protocol.subscriptions.failover import Consumer as Candidate
from pulsar_spark.protocol.subscriptions.failover import active_consumer
from pulsar_spark.protocol.subscriptions.shared import dispatch_order
from tests.support.model_chunks import Limits, Units
from tests.support.model_delays import Delays, DueLane
from tests.support.model_keys import KeyShared
from tests.support.model_widths import Widths

SINGLE_ACTIVE = ("Exclusive", "Failover")


class Delivery(NamedTuple):
    topic: str
    partition: int
    subscription: str
    consumer_id: str
    position: int
    redelivery_count: int
    ack_set: tuple[int, ...] | None
    chunks: tuple[int, ...] | None = None
    """Where the chunks of a chunked message lie, in their order."""


class Letter(NamedTuple):
    """A dead letter: of which message, and how often that was delivered in vain. *batch_index* is -1 outside a
    batch."""

    partition: int
    position: int
    batch_index: int
    attempts: int


@dataclass
class Consumer:
    consumer_id: str
    client_id: str
    name: str
    priority_level: int
    join_order: int
    lease_ms: int
    heard_ms: int
    permits: int = 0
    is_blocked: bool = False
    has_unacked_limits: bool = True
    ranges: tuple[tuple[int, int], ...] = ()
    limits: Limits = field(default_factory=Limits)

    def in_line(self) -> Candidate:
        return Candidate(self.consumer_id, self.name, self.priority_level, self.join_order)


@dataclass
class Pending:
    consumer_id: str
    redelivery_count: int
    due_ms: int | None = None


@dataclass
class Replay:
    redelivery_count: int
    due_ms: int | None = None


@dataclass
class Cursor:
    topic: str
    partition: int
    subscription: str
    mark_delete: int
    read_position: int
    subscription_type: str | None = None
    is_blocked: bool = False
    is_blocked_by_broker: bool = False
    active_id: str | None = None
    reads_after_ms: int = 0
    last_active_ms: int = 0
    joined: int = 0
    max_redeliver_count: int = 0
    letters: list[Letter] = field(default_factory=list)
    acknowledged: set[int] = field(default_factory=set)
    pending: dict[int, Pending] = field(default_factory=dict)
    replay: dict[int, Replay] = field(default_factory=dict)
    ack_sets: dict[int, tuple[int, ...]] = field(default_factory=dict)
    consumers: dict[str, Consumer] = field(default_factory=dict)
    hashes: list[int] = field(default_factory=list)
    """Of all entries of the topic partition, whatever the type."""
    delays: Delays = field(default_factory=Delays)
    """Likewise."""
    units: Units = field(default_factory=Units)
    has_delays: bool = True
    """Does the policy of its topic allow delays?"""
    due: DueLane | None = None
    ignored_delays: bool = False
    keys: KeyShared | None = None
    acks: list[tuple[int, int, tuple[int, ...] | None, bool]] = field(default_factory=list)
    negative_acks: list[tuple[int, int, str, int, bool]] = field(default_factory=list)
    """First and last position, consumer, delay in ms, and whether the application was shown none of them."""
    redeliver_all: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)
    out: dict[int, Pending] = field(default_factory=dict)
    """What is pending as a round begins to read: what it keeps back from a consumer is none that others wait for."""
    is_asked: bool = False
    moves: int = 0

    def is_single_active(self) -> bool:
        return self.subscription_type in SINGLE_ACTIVE

    def knows_delays(self) -> bool:
        """Exclusive and Failover do not (2.6)."""
        return self.has_delays and not self.is_single_active()

    @property
    def visible_mark_delete(self) -> int:
        """Before the first chunk of every message that is not acknowledged, be it complete or not; and nowhere behind
        where all that is no part is acknowledged."""
        return min([self.mark_delete, *(chunks[0] - 1 for chunks in self.units.unacknowledged(self.is_done))])

    def acknowledged_behind(self) -> set[int]:
        """All that is acknowledged behind the visible mark-delete; a chunk is when its message is."""
        done = {at for at in range(self.visible_mark_delete + 1, self.units.chunks.seen) if self.is_done(at)}
        return done.difference(*self.units.unacknowledged(self.is_done))

    def is_own_delayed(self, position: int) -> bool:
        """Does the entry go by its deliver time, and not by its place?"""
        return self.due is not None and self.due.has(position, self.delays)

    def undelivered(self) -> list[int]:
        """Its own delayed entries that nobody got so far, in the order in which they come due (0.21)."""
        own = [position for position in range(self.mark_delete + 1, len(self.delays.is_delayed))]
        own = [position for position in own if self.is_own_delayed(position) and not self._is_kept(position)]
        return sorted(own, key=lambda position: (self.delays.deliver_ms[position], position))

    def waits_for(self) -> dict[int, int]:
        """What it waits for, and until when: also entries met at their place before their deliver time."""
        met = {position: back.due_ms for position, back in self.replay.items() if back.due_ms is not None}
        return met | {position: self.delays.deliver_ms[position] for position in self.undelivered()}

    def _meet(self, positions: Iterable[int]) -> None:
        """The first delayed entry that is met makes it wait for all from its read position on; what is known of any of
        them by then leaves that order."""
        if not self.knows_delays() or self.due is not None:
            return
        if any(self.delays.is_delayed[position] for position in positions if not self._is_kept(position)):
            self.due = DueLane(self.delays.promoted_ms, self.read_position)
            known = {position for position in range(len(self.delays.is_delayed)) if self._is_kept(position)}
            self.due.passed |= {position for position in known if self.is_own_delayed(position)}
            self.due.apart |= self.due.passed & {*self.pending, *self.replay}

    def meet_early(self, first: int, last: int) -> None:
        """First..last are looked at before their time, and not read."""
        asked = self._acknowledged_in_this_round()
        self._meet(
            position for position in range(first, last + 1) if self._is_early(position) and position not in asked
        )

    def _acknowledged_in_this_round(self) -> set[int]:
        return {at for begin, end, left, _ in self.acks if not left for at in range(begin, end + 1)}

    def _wait_until(self, position: int, due_ms: int | None) -> None:
        """Deliver an entry that nobody got so far when that time has come."""
        if self.is_own_delayed(position):
            self.due.apart.add(position)
        self.replay[position] = Replay(0, due_ms)

    def still_waiting(self, first: int, last: int, now_ms: int) -> list[int]:
        """Which of first..last nobody got and nobody would have got at their place: also where no read has met them."""
        self.meet_early(max(first, self.read_position), last)
        asked = self._acknowledged_in_this_round()
        waiting = {position for position, back in self.replay.items() if (back.due_ms or now_ms) > now_ms}
        waiting |= set(self.undelivered())
        if self.is_single_active():
            return []
        return [position for position in range(first, last + 1) if position in waiting - asked]

    def move_deliver_times(self, positions: list[int], due_ms: int) -> None:
        """Those entries, which wait, wait for another time."""
        for position in positions:
            count = self.replay[position].redelivery_count if position in self.replay else 0
            self._wait_until(position, due_ms)
            self.replay[position].redelivery_count = count

    def pass_over(self, position: int) -> None:
        """No read has to meet the entry any more, if it goes by its deliver time."""
        if self.is_own_delayed(position):
            self.due.passed.add(position)

    def end_waiting(self) -> None:
        """Begin anew with the next delayed entry that is met. When it does so is the broker's choice, as long as
        nothing is left of what was waited for."""
        left = [at for at in range(len(self.delays.is_delayed)) if self.is_own_delayed(at) and not self.is_done(at)]
        assert not left, f"{left} are forgotten"
        self.due = None

    def settle_delays(self, *, has_delays: bool) -> None:
        """Begin to wait, or end, as the type of those who are connected and the policy of the topic say. What was
        waited for and was not delivered is to be delivered at its place; what is to come again waits where it is
        delayed, and was not moved, when those who know delays begin to."""
        self.has_delays = has_delays
        if not self.consumers:
            return
        if not self.knows_delays():
            if self.due is not None:
                self.due, self.read_position = None, self.mark_delete + 1
                self._pass_known(len(self.delays.is_delayed))
            self.ignored_delays = True
            for back in self.replay.values():
                back.due_ms = None
        elif self.ignored_delays:
            self.ignored_delays = False
            for position, held in list(self.pending.items()):
                if held.consumer_id in self.left and self._is_early(position) and not self.is_own_delayed(position):
                    self.replay[position] = Replay(self.pending.pop(position).redelivery_count)
            for position, back in self.replay.items():
                if back.due_ms is None and self._is_early(position) and not self.is_own_delayed(position):
                    back.due_ms = self.delays.deliver_ms[position]

    def join(self, consumer: Consumer, subscription_type: str, *, active_from_ms: int) -> None:
        """ConsumerAssignError, and nothing changed, where Key_Shared has no hashes for it."""
        if self.keys:
            behind_all = max(self.read_position - 1, *self.acknowledged, *self.pending, *self.replay, -1) + 1
            member = Member(consumer.consumer_id, consumer.name, consumer.ranges)
            self.keys.join(member, behind_all=behind_all, mark_delete=self.mark_delete)
        self.ignored_delays |= not self.consumers
        self.subscription_type = subscription_type
        self.consumers[consumer.consumer_id] = consumer
        self.joined += 1
        self._begin_anew(consumer.consumer_id)
        self._choose_active(active_from_ms)

    def _begin_anew(self, consumer_id: str) -> None:
        """What is not acknowledged is read again, and counted again what of it is incomplete."""
        self.units.forget(consumer_id)
        self.units.walked = min(self.units.walked, self.visible_mark_delete + 1)

    def leave(self, consumer_id: str, *, active_from_ms: int) -> None:
        """Its entries come back in this round, the count as it was; the last one to leave takes the type along (2.1,
        2.19)."""
        if consumer_id not in self.consumers:
            return
        del self.consumers[consumer_id]
        self.left.add(consumer_id)
        self._begin_anew(consumer_id)
        self._choose_active(active_from_ms)
        if self.keys:
            self.keys.leave(consumer_id, consumers_left=len(self.consumers))
        if not self.consumers:
            self.subscription_type, self.keys, self.is_blocked_by_broker = None, None, False

    def _choose_active(self, active_from_ms: int) -> None:
        """Who receives, on Exclusive and Failover. What the one before held comes back, and on Failover its successor
        waits a little (2.10, 2.11)."""
        before, self.active_id = self.active_id, None
        if self.is_single_active():
            found = active_consumer(
                [consumer.in_line() for consumer in self.consumers.values()],
                partition_index=self.partition,
                topic_name=self.topic,
            )
            self.active_id = found and found.consumer_id
        if before is not None and before != self.active_id:
            self.left.add(before)
            if self.subscription_type == "Failover":
                self.reads_after_ms = active_from_ms

    def is_done(self, position: int) -> bool:
        return position <= self.mark_delete or position in self.acknowledged

    def may_be_left(self, position: int) -> bool:
        """May some of an entry be left where the rest is acknowledged? Who says so of another asks nothing."""
        return position > self.mark_delete and not self.units.is_part(position)

    def weight(self, position: int, batches: list[int]) -> int:
        """Messages of an entry still to be acknowledged: what it costs in permits (3.21, 4.2)."""
        return ack_sets.count(self.ack_sets[position]) if position in self.ack_sets else batches[position]

    def unacked(self, batches: list[int], consumer_id: str | None = None) -> int:
        """Unacknowledged messages out at one consumer, or at all."""
        return sum(
            self.weight(position, batches)
            for position, held in self.pending.items()
            if consumer_id in (None, held.consumer_id)
        )

    def move_to(self, position: int) -> None:
        """Seek: *position* is the next to deliver, everything known about entries is forgotten, also what was asked
        earlier in this round (3.26)."""
        self.mark_delete, self.read_position, self.moves = position - 1, position, self.moves + 1
        self.acknowledged, self.pending, self.replay, self.ack_sets = set(), {}, {}, {}
        self.acks, self.negative_acks, self.redeliver_all = [], [], set()
        self.due = None
        self.units.released = set()
        self.units.withheld, self.units.walked = {}, position
        if self.keys:
            self.keys.recently_joined = {}
        self.is_blocked = False
        for consumer in self.consumers.values():
            consumer.permits, consumer.is_blocked = 0, False

    def done_up_to(self, position: int) -> None:
        """Everything up to *position* is acknowledged: cumulative acks, skip, clear, expire."""
        self.is_asked |= position > self.mark_delete
        for at in range(self.mark_delete + 1, position + 1):
            self.pass_over(at)
            self._done(at)
        self._advance()

    def apply_acks(self, now_ms: int, batches: list[int]) -> None:
        """All individual acks and batch acks of the round, wherever the entry is (3.11, 3.16-3.20, 0.20). What is left
        of one that was never delivered waits as replay; on Shared for its deliver time, which is none any more where it
        had come before the entry could wait for it (5.7)."""
        for first, last, left, is_cumulative in self.acks:
            for position in range(first, last + 1):
                if left is None:
                    self.pass_over(position)
                if self.is_done(position):
                    continue
                fold = ack_sets.replaced_by_cumulative if is_cumulative else ack_sets.intersect
                kept = fold(self.ack_sets.get(position, ack_sets.full(batches[position])), left or ())
                if ack_sets.is_empty(kept):
                    self._done(position)
                    continue
                self.ack_sets[position] = kept
                if position not in self.pending and position not in self.replay:
                    due_ms = self.delays.deliver_ms[position] if self.knows_delays() else None
                    has_come = due_ms is not None and due_ms <= now_ms and not self.is_own_delayed(position)
                    self._wait_until(position, None if has_come else due_ms)
        self._advance()

    def kept(self, position: int, batches: list[int]) -> tuple[int, ...]:
        """What is unacknowledged of an entry after the acknowledgements that this round has brought so far."""
        if self.is_done(position):
            return ()
        kept = self.ack_sets.get(position, ack_sets.full(batches[position]))
        for first, last, left, is_cumulative in self.acks:
            if first <= position <= last:
                kept = (ack_sets.replaced_by_cumulative if is_cumulative else ack_sets.intersect)(kept, left or ())
        return kept

    def _done(self, position: int) -> None:
        self.acknowledged.add(position)
        for known in (self.pending, self.replay, self.ack_sets):
            known.pop(position, None)

    def _advance(self) -> None:
        while self.mark_delete + 1 in self.acknowledged:
            self.mark_delete += 1
            self.acknowledged.remove(self.mark_delete)
        self.read_position = max(self.read_position, self.mark_delete + 1)

    def asking(self, now_ms: int) -> set[str]:
        """The consumers whose requests for redelivery arrive now, whatever comes of them (4.4): before acknowledgements
        are applied."""
        due = {held.consumer_id for held in self.pending.values() if held.due_ms is not None and held.due_ms <= now_ms}
        return (
            self.redeliver_all
            | due
            | {consumer_id for _, _, consumer_id, delay_ms, _ in self.negative_acks if delay_ms <= 0}
        )

    def apply_returns(self, now_ms: int, batches: list[int]) -> None:
        """Entries that come back become replay, or die (4.21, 4.26). What is given back unseen is not counted."""
        unseen = set()
        for consumer_id in self.redeliver_all:
            self._begin_anew(consumer_id)
        for first, last, consumer_id, delay_ms, is_unseen in self.negative_acks:
            for position, held in self.pending.items():
                if first <= position <= last and held.consumer_id == consumer_id:
                    held.due_ms = now_ms + delay_ms
                    unseen = unseen | {position} if is_unseen else unseen - {position}
        asked_for = {position for position, held in self.pending.items() if held.consumer_id in self.redeliver_all}
        due = {position for position, held in self.pending.items() if held.due_ms is not None and held.due_ms <= now_ms}
        counted = asked_for | (due - unseen)
        is_rewound = bool(asked_for | due) and self.is_single_active()
        uncounted = {
            position
            for position, held in self.pending.items()
            if position in due or is_rewound or held.consumer_id in self.left
        } - counted
        for position in counted | uncounted:
            back = Replay(self.pending.pop(position).redelivery_count + (position in counted))
            if position in counted and 0 < self.max_redeliver_count < back.redelivery_count:
                self._die(position, back.redelivery_count, batches)
            else:
                self.replay[position] = back
        self._advance()

    def _die(self, position: int, attempts: int, batches: list[int]) -> None:
        """A letter for each message of the entry that is not acknowledged; then the entry is (4.27)."""
        left = ack_sets.indexes(self.ack_sets.get(position, ack_sets.full(batches[position])))
        self.letters.extend(
            Letter(self.partition, position, index if batches[position] > 1 else -1, attempts) for index in left
        )
        self._done(position)

    def has_work(self, now_ms: int) -> bool:
        """Was anything asked about its entries or its limits, or has an entry fallen due?"""
        asked = self.acks or self.negative_acks or self.redeliver_all or self.left or self.is_asked
        return bool(asked) or any(held.due_ms is not None and held.due_ms <= now_ms for held in self.pending.values())

    def read(self, now_ms: int, *, has_work: bool, look_ahead: int = 0) -> list[int]:
        """The entries never delivered that a read meets, as many as there are permits (4.6). It passes over those that
        go by their deliver time; others that it meets before theirs do not go out, and wait for it as replay; Exclusive
        and Failover know none (2.6, 4.9). Nothing is read while all are blocked, or the subscription is, and nothing
        happens (4.5)."""
        deliver_ms, self.out = self.delays.deliver_ms, dict(self.pending)
        receivers = self._receivers(now_ms)
        self._pass_known(len(deliver_ms))
        if self.is_blocked_by_broker:
            return []
        is_held_back = self.is_blocked or all(consumer.is_blocked for consumer in receivers)
        if is_held_back and not has_work and not self.is_single_active():
            return []
        readers = receivers
        if self.keys:
            owners = {each.consumer_id for each in self.keys.owned}
            readers = [each for each in receivers if each.consumer_id in owners and (has_work or not each.is_blocked)]
        if readers:
            self._meet(range(self.read_position, len(deliver_ms)))
        permits = sum(consumer.permits for consumer in readers)
        while True:
            unknown = [at for at in range(self.read_position, len(deliver_ms)) if not self._is_known(at)]
            own = [position for position in unknown if self.is_own_delayed(position)]
            parts = [position for position in unknown if self.units.is_part(position)]
            unknown = [position for position in unknown if position not in own and position not in parts]
            met = self._read_by_key(unknown, readers, now_ms, look_ahead) if self.keys else unknown[:permits]
            left = [position for position in unknown if position not in met] if len(met) < permits else unknown[:1]
            behind = max(met[-1] if met else -1, left[0] if left else len(deliver_ms))
            if not readers or not self._drop_oldest(behind):
                break
        if readers:
            self._pass_over(own, parts, behind)
        early = [
            position
            for position in met
            if self.knows_delays() and deliver_ms[position] is not None and deliver_ms[position] > now_ms
        ]
        self.replay.update({position: Replay(0, deliver_ms[position]) for position in early})
        self._pass_known(len(deliver_ms))
        return [position for position in met if position not in early]

    @property
    def limiting(self) -> Consumer | None:
        """Of whom the limits of incomplete messages are: who receives, or of several the last one that came."""
        if self.is_single_active():
            return self.consumers.get(self.active_id)
        return max(self.consumers.values(), key=lambda consumer: consumer.join_order, default=None)

    def take_complete(self) -> None:
        """What was acknowledged or dropped before it was complete is so now."""
        for unit, chunks in self.units.chunks.messages.items():
            if chunks[0] in self.units.released:
                self._done(unit)
            elif chunks[0] in self.units.withheld and not self._goes_by_deliver_time(unit):
                self._hold(unit, self.units.withheld[chunks[0]])
        complete = {chunks[0] for chunks in self.units.chunks.messages.values()}
        self.units.released -= complete
        self.units.withheld = {at: holder for at, holder in self.units.withheld.items() if at not in complete}

    def _drop_oldest(self, behind: int) -> bool:
        """A read goes on to *behind*. Does it drop any message that is incomplete somewhere before?"""
        limiting, units = self.limiting, self.units
        dropped = units.oldest(
            behind,
            0 if limiting.consumer_id in self.redeliver_all else limiting.limits.most,
            lambda unit: self.is_done(unit) or unit in self.pending or self._goes_by_deliver_time(unit),
        )
        if limiting.limits.is_acknowledged:
            units.released |= dropped
        else:
            units.withheld |= dict.fromkeys(dropped, limiting.consumer_id)
        self.take_complete()
        units.walked = max(units.walked, behind)
        return bool(dropped)

    def _hold(self, position: int, consumer_id: str) -> None:
        """The entry is with a consumer that is not sent it."""
        if not self.is_done(position) and position not in self.pending:
            self.pending[position] = Pending(consumer_id, self.replay.pop(position, Replay(0)).redelivery_count)

    def _pass_over(self, own: list[int], parts: list[int], behind: int) -> None:
        """A read went past these, as far as they lie before *behind*."""
        if self.due is not None:
            self.due.passed |= {position for position in own if position < behind}
        self.acknowledged |= {position for position in parts if position < behind}
        self._advance()

    def _read_by_key(
        self, unknown: Iterable[int], receivers: list[Consumer], now_ms: int, look_ahead: int
    ) -> list[int]:
        """As many entries as everybody has permits for, of the hashes that are theirs; those that wait, for their hash
        or for their owner, are passed over, until they are so many as *look_ahead* says (2.31, 2.39)."""
        room = {consumer.consumer_id: consumer.permits for consumer in receivers}
        met, passed = [], 0
        for position in unknown:
            if not any(room.values()):
                break
            owner = self.keys.owner_of(self.hashes[position])
            if room.get(owner, 0) and not self.waits(position, now_ms):
                met.append(position)
                room[owner] -= 1
                continue
            passed += 1
            if passed == look_ahead:
                break
        return met

    def waits(self, position: int, now_ms: int) -> bool:
        """Has the entry to wait for others of its hash, or for a consumer that may have it? Who holds a hash that has
        moved is waited for, and later entries wait for one that was negatively acknowledged and is not due yet (0.22);
        by the rule of 3.2.3 newcomers wait for what was out before the first of them came, and nobody else does."""
        hash_code = self.hashes[position]
        owner = self.keys.owner_of(hash_code)
        if owner is None:
            return True
        if self.keys.allows_out_of_order:
            return False
        if self.keys.is_classic:
            joined = self.keys.recently_joined
            return owner in joined and position >= next(iter(joined.values()))
        of_hash = [(at, held) for at, held in self.out.items() if self.hashes[at] == hash_code]
        place = self._place(position)
        return any(
            held.consumer_id != owner or (self._place(at) < place and held.due_ms is not None) for at, held in of_hash
        )

    def _is_early(self, position: int) -> bool:
        """Is the entry delayed, and due later than all that has come due?"""
        return self.delays.is_delayed[position] and self.delays.deliver_ms[position] > self.delays.promoted_ms

    def _goes_by_deliver_time(self, position: int) -> bool:
        """Does it, or will it when a read meets it?"""
        if self.due is None:
            return self.knows_delays() and self._is_early(position)
        return self.is_own_delayed(position)

    def _place(self, position: int) -> tuple[int, int, int]:
        """On Key_Shared what goes by its deliver time has its place behind all that goes by position."""
        if not self.keys or not self.is_own_delayed(position):
            return (0, 0, position)
        return (1, self.delays.deliver_ms[position], position)

    def _due_replay(self, now_ms: int) -> list[int]:
        """What goes before anything new: by position; on Shared first what came back, then what has come due, in order
        of deliver time (0.21)."""
        if self.is_single_active():
            return sorted(self.replay)
        back = [position for position, back in self.replay.items() if back.due_ms is None]
        due = [(at, self._place(position)) for position, at in self.waits_for().items() if at <= now_ms]
        return sorted(back, key=self._place) + [place[-1] for _, place in sorted(due)]

    def _receivers(self, now_ms: int) -> list[Consumer]:
        return [
            consumer
            for consumer in self.consumers.values()
            if consumer.permits > 0 and self.reads_after_ms <= now_ms and self.active_id in (None, consumer.consumer_id)
        ]

    def _is_kept(self, position: int) -> bool:
        return self.is_done(position) or position in self.pending or position in self.replay

    def _is_known(self, position: int) -> bool:
        """Is the entry none that a read has to meet?"""
        return self._is_kept(position) or (self.due is not None and position in self.due.passed)

    def _pass_known(self, end: int) -> None:
        while self.read_position < end and self._is_known(self.read_position):
            self.read_position += 1

    def has_limits(self) -> bool:
        """Do limits of unacknowledged messages hold?"""
        return not self.is_single_active() and all(consumer.has_unacked_limits for consumer in self.consumers.values())

    def dispatch(
        self,
        batches: list[int],
        unread: list[int],
        *,
        limits: dict[str, int],
        asked: set[str],
        round_number: int,
        now_ms: int,
    ) -> list[Delivery]:
        """Hand out what is to come again and *unread*; sets the blocked flags. Positions ascend within a consumer."""
        is_unlimited = not self.has_limits()
        limit = 0 if is_unlimited else limits["max_unacked_messages_per_consumer"]
        unacked = {consumer_id: self.unacked(batches, consumer_id) for consumer_id in self.consumers}
        blocked = {
            consumer_id: limit > 0
            and (
                unacked[consumer_id] >= limit
                or (consumer.is_blocked and consumer_id not in asked and unacked[consumer_id] > limit // 2)
            )
            for consumer_id, consumer in self.consumers.items()
        }
        receivers = self._receivers(now_ms)
        subscription_limit = 0 if is_unlimited else limits["max_unacked_messages_per_subscription"]
        out = self.unacked(batches)
        is_reading_blocked = subscription_limit > 0 and (
            out >= subscription_limit or (self.is_blocked and out >= subscription_limit // 2)
        )
        deliveries = []
        for replay, new, peers in self._lines(self._due_replay(now_ms), unread, receivers, now_ms):
            in_line = sorted(replay + new) if self.is_single_active() else replay + new
            total_permits = sum(consumer.permits for consumer in receivers)
            heaviest = max((self.weight(position, batches) for position in in_line[:total_permits]), default=1)
            if is_reading_blocked:
                new = []
            elif subscription_limit > 0:
                new = new[: max(1, (subscription_limit - out) // heaviest)]
            candidates = sorted(replay + new) if self.is_single_active() else replay + new
            again, unseen = (
                [self.weight(position, batches) for position in several]
                for several in ((in_line, []) if self.is_single_active() else (replay, in_line[len(replay) :]))
            )
            single, by_key = self.is_single_active(), bool(self.keys)
            widths = Widths(again, unseen, total_permits, is_single_active=single, is_by_key=by_key)
            for consumer_id, width in self._turns(peers, blocked, unacked, limit, widths, round_number):
                for position in candidates[:width]:
                    deliveries.append(self._deliver(position, self.consumers[consumer_id], batches))
                candidates = candidates[width:]

        for consumer_id, consumer in self.consumers.items():
            consumer.is_blocked = blocked[consumer_id] or 0 < limit <= self.unacked(batches, consumer_id)
        self._pass_known(len(batches))
        self.is_blocked = is_reading_blocked or 0 < subscription_limit <= self.unacked(batches)
        self.acks, self.negative_acks, self.redeliver_all, self.left, self.is_asked = [], [], set(), set(), False
        return deliveries

    def _lines(
        self, replay: list[int], unread: list[int], receivers: list[Consumer], now_ms: int
    ) -> list[tuple[list[int], list[int], list[Consumer]]]:
        """What comes again and what is new, with those who stand in line for it: on Key_Shared each consumer stands
        alone beside what is its own and need not wait."""
        if not self.keys:
            return [(replay, unread, receivers)]
        owner_of = {position: self.keys.owner_of(self.hashes[position]) for position in replay + unread}
        ready = [position for position in replay if not self.waits(position, now_ms)]
        return [
            (
                *([at for at in several if owner_of[at] == consumer.consumer_id] for several in (ready, unread)),
                [consumer],
            )
            for consumer in receivers
        ]

    def _turns(
        self,
        receivers: list[Consumer],
        blocked: dict[str, bool],
        unacked: dict[str, int],
        limit: int,
        widths: Widths,
        round_number: int,
    ) -> list[tuple[str, int]]:
        """Who may take how many entries, in line: level by level, in a level first a fair share each, then what is left
        (2.14-2.17, 0.28)."""
        order = [candidate.consumer_id for candidate in dispatch_order([consumer.in_line() for consumer in receivers])]
        turns = []
        for level in sorted({consumer.priority_level for consumer in receivers}):
            peers = [consumer_id for consumer_id in order if self.consumers[consumer_id].priority_level == level]
            start = round_number % len(peers)
            peers = peers[start:] + peers[:start]
            entries = {}
            for consumer_id in peers:
                permits = self.consumers[consumer_id].permits
                room = min(permits, limit - unacked[consumer_id]) if limit > 0 else permits
                entries[consumer_id] = widths.of(0 if blocked[consumer_id] else room, len(peers))
            share = widths.share(len(peers))
            turns += [(consumer_id, min(entries[consumer_id], share)) for consumer_id in peers]
            turns += [(consumer_id, max(entries[consumer_id] - share, 0)) for consumer_id in peers]
        return turns

    def _deliver(self, position: int, consumer: Consumer, batches: list[int]) -> Delivery:
        back = self.replay.pop(position, Replay(0))
        self.pending[position] = Pending(consumer.consumer_id, back.redelivery_count)
        consumer.permits -= self.weight(position, batches)
        return Delivery(
            self.topic,
            self.partition,
            self.subscription,
            consumer.consumer_id,
            position,
            back.redelivery_count,
            self.ack_sets.get(position),
            self.units.chunks.messages.get(position),
        )
