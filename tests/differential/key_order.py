"""What Key_Shared promises, asked of every round of a history: order per key, at most one holder, and progress.

The promises are worked out from what was delivered and what the reference cursor says of each entry, which the real
one is compared with round by round; they know nothing of how either comes to it. Which entries they cannot be asked of:
delayed ones, which hold back nobody; those acknowledged in part before anybody got them, which go out before their
turn; and those handed out while the subscription had another type, or no order.
"""

from dataclasses import dataclass, field

from tests.differential.duel import Duel, same
from tests.differential.strategies import Turn
from tests.support.model_cursor import Cursor, Delivery
from tests.support.model_keys import KeyShared

ENOUGH_ROUNDS = 8
"""So many rounds after everybody who answers has acknowledged all, nothing of theirs is left: what a holder gives up
comes in the next one, and is acknowledged in the one after that."""

STUCK = "a"
"""Who does nothing at the end of a history, where it is there; everybody else answers."""

UNLIMITED = (
    "max_unacked_messages_per_consumer",
    "max_unacked_messages_per_subscription",
    "key_shared_look_ahead_msg_in_replay_threshold_per_consumer",
    "key_shared_look_ahead_msg_in_replay_threshold_per_subscription",
)


@dataclass
class Watched:
    """A cursor while it is one of Key_Shared, and was not moved: what it has delivered, how far the first deliveries of
    each hash have come, and of which entries nothing is asked."""

    keys: KeyShared
    moves: int
    exempt: set[int]
    delivered: set[int] = field(default_factory=set)
    reached: dict[int, int] = field(default_factory=dict)


class KeyOrder:
    """Watches the cursors of a reference broker."""

    def __init__(self, model):
        self.model = model
        self.watched: dict[int, Watched] = {}
        self.known: dict[int, set[int]] = {}

    def watch(self, deliveries: list[Delivery]) -> None:
        """After each round, with what it delivered."""
        for place, cursor in self.model.cursors.items():
            if cursor.keys and not cursor.keys.allows_out_of_order and not cursor.keys.is_classic:
                self._check(cursor, [delivery for delivery in deliveries if delivery[:3] == place])
            self.known[id(cursor)] = set(cursor.replay) | set(cursor.pending)

    def _check(self, cursor: Cursor, deliveries: list[Delivery]) -> None:
        watched = self.watched.get(id(cursor))
        if watched is None or watched.keys is not cursor.keys or watched.moves != cursor.moves:
            watched = self.watched[id(cursor)] = Watched(cursor.keys, cursor.moves, self.known.get(id(cursor), set()))
        deliver_ms = cursor.delays.deliver_ms
        unasked = {each.position for each in deliveries if each.ack_set is not None} | set(cursor.replay)
        watched.exempt |= unasked - watched.delivered
        watched.exempt |= {position for position, at in enumerate(deliver_ms) if at is not None}
        for delivery in sorted(deliveries, key=lambda each: each.position):
            self._check_delivery(cursor, watched, delivery)
        watched.delivered |= {delivery.position for delivery in deliveries}
        holders: dict[int, set[str]] = {}
        for position, held in cursor.pending.items():
            if position in watched.delivered:
                holders.setdefault(cursor.hashes[position], set()).add(held.consumer_id)
        assert all(len(several) == 1 for several in holders.values()), f"a hash has two holders: {holders}"

    def _check_delivery(self, cursor: Cursor, watched: Watched, delivery: Delivery) -> None:
        position, hash_code = delivery.position, cursor.hashes[delivery.position]
        assert delivery.consumer_id == cursor.keys.owner_of(hash_code), f"not the owner's: {delivery}"
        if position in watched.exempt:
            return
        if position not in watched.delivered:
            before = watched.reached.get(hash_code, -1)
            assert position > before, f"{position} is delivered for the first time after {before} of its key"
            watched.reached[hash_code] = position
        earlier = [at for at in watched.delivered - watched.exempt if at < position and cursor.hashes[at] == hash_code]
        overtaken = [at for at in earlier if at in cursor.replay]
        overtaken += [at for at in earlier if at in cursor.pending and cursor.pending[at].due_ms is not None]
        assert not overtaken, f"{position} is delivered before {overtaken} of its key, which are to come again"


class KeyedDuel(Duel):
    """A duel whose every round is watched, and at whose end everybody but one answers: what is left then is that
    one's."""

    def __init__(self, spark, root, **options):
        super().__init__(spark, root, **options)
        self.has_limit = any(options.values())
        self.order = KeyOrder(self.model)

    def play(self, turns: list[Turn]) -> None:
        super().play([*turns, Turn(30_000, self._lift_limits())])
        for number in range(ENOUGH_ROUNDS):
            self._play(Turn(1_000, self._answers()), f"in round {number} of the end")
        if not self.has_limit:
            for cursor in self.model.cursors.values():
                same(f"what is left of {cursor.subscription} at the end", self._left(cursor), [])

    def _compare(self, found: dict, expected: dict, where: str) -> None:
        super()._compare(found, expected, where)
        try:
            self.order.watch(found["deliveries"])
        except AssertionError as broken:
            raise AssertionError(f"{where}: {broken}") from broken

    def _lift_limits(self) -> list[str]:
        alive = [f"t/keys: {consumer} alive" for consumer in "abcd"]
        return [*alive, *(f"{place}: policy {name} 0" for place in ("t/keys", "p0/keys") for name in UNLIMITED)]

    def _answers(self) -> list[str]:
        steps = []
        for place, cursor in self._places().items():
            for consumer in sorted(cursor.consumers):
                held = [position for position, each in cursor.pending.items() if each.consumer_id == consumer]
                if consumer != STUCK:
                    steps += [f"{place}: {consumer} ack {position}" for position in held]
                    steps.append(f"{place}: {consumer} flow 50")
        return steps

    def _left(self, cursor: Cursor) -> list[int]:
        """Entries that nobody who answers has acknowledged, though none of their hash is stuck."""
        if cursor.keys is None or (cursor.keys.is_classic and STUCK in cursor.consumers):
            return []
        stuck = {cursor.hashes[position] for position, held in cursor.pending.items() if held.consumer_id == STUCK}
        entries = len(self.model.batches[cursor.topic, cursor.partition])
        return [
            position
            for position in range(entries)
            if not cursor.is_done(position)
            and cursor.keys.owner_of(cursor.hashes[position]) not in (None, STUCK)
            and cursor.hashes[position] not in stuck
        ]
