"""The broker side of a Key_Shared subscription: golden k2, one operation at a time, settled.

Pulsar 3.2.3 recorded it, so the cases are played by its rule of recently joined consumers (2.32-2.34), and once more by
the rule that holds by default, draining hashes (0.22). Each owner's keys are binding, so everything is compared
consumer by consumer: what it was delivered and with which count, what is pending there, its unacknowledged messages and
permits, whether it is blocked; and of the subscription refusals, mark-delete, acknowledged ranges and, by the rule that
knows them, who has joined recently and where. Where a case differs, :data:`DEVIATIONS` say from which operation on, in
which field, and why.

Two fields of the recording have no counterpart: Pulsar reads past entries that it cannot send and puts them into
replay, here they stay unread, before the read position. Which entries those are together follows from the rest. Where a
newcomer joined is, for that reason, the first place behind everything that was handed out, not what has been read.
"""

from bisect import bisect_left, bisect_right

from tests.protocol.golden import cases, named
from tests.protocol.golden.lockstep import Player
from tests.protocol.golden.subscription import asked, options_of
from tests.support.model_keys import KEY_SHARED, Key
from tests.support.requests import On

CASES = cases("k2_key_shared_broker")

WAITED = "0.22: what is not pending at the consumer that had the hash need not wait for mark-delete"
REFUSED = "2.4 as in 4.0.8: who asks for another mode or order is refused while others are connected"
READ_SIZE = (
    "issue 10, progress: 4.6 reads as many entries of replay as there are permits, whoever they are for, and so leaves "
    "out one that stands behind another consumer's; here everybody gets what is theirs"
)
STUCK = "issue 10, progress: the only consumer has permits and its entries wait; recorded, it gets none of them"
DEVIATIONS: dict[str, dict[int, tuple[int, str, str]]] = {
    "classic": {10: (11, "delivered", READ_SIZE), 15: (22, "delivered", STUCK)},
    "draining": {
        1: (5, "delivered", WAITED),
        2: (9, "delivered", WAITED),
        5: (5, "delivered", WAITED),
        6: (9, "delivered", WAITED),
        8: (6, "refusals", REFUSED),
        9: (1, "refusals", REFUSED),
        10: (11, "delivered", READ_SIZE),
        11: (6, "delivered", WAITED),
        13: (8, "delivered", WAITED),
        15: (22, "delivered", STUCK),
    },
}
"""Rule -> case -> the first operation after which it differs, a field in which it does, and why. The reference broker
is checked to differ there, so that none stays here for nothing."""


def titled(number: int) -> str:
    """Cases of one description differ in how hashes are owned."""
    way = "ring" if CASES[number]["input"]["config"]["consistent_hashing"] else "auto split"
    return f"{named(CASES[number])}, {way}"


class Positions:
    """Recorded places, [ledger, entry], as numbers in the order in which they were published."""

    def __init__(self):
        self.places: list[tuple[int, ...]] = []

    def add(self, places: list[list[int]]) -> None:
        self.places += map(tuple, places)

    def number(self, place: list[int]) -> int:
        return bisect_left(self.places, tuple(place))

    def upper(self, place: list[int]) -> int:
        """The last one at or before a place, which need not be an entry."""
        return bisect_right(self.places, tuple(place)) - 1


def requests_of(on: On, positions: Positions, name: str, arguments: list) -> list[dict]:
    if name == "subscribe":
        consumer, settings = arguments
        return [on.subscribe(consumer, KEY_SHARED, **options_of(settings))]
    if name in ("ack", "redeliver"):
        consumer, *places = arguments
        arguments = [consumer, *([0, positions.number(place)] for place in places)]
    return asked(on, name, arguments)


def ours(state: dict, deliveries: list, refusals: list[str]) -> dict:
    delivered, pending = {}, {name: [] for name in state["consumers"]}
    for each in deliveries:
        delivered.setdefault(each.consumer_id, set()).add((each.position, each.redelivery_count))
    for position, (consumer_id, _, _) in state["pending"].items():
        pending[consumer_id].append(position)
    return {
        "refusals": refusals,
        "mark_delete": state["mark_delete_position"],
        "acknowledged": {at for first, last in state["acknowledged"] for at in range(first, last + 1)},
        "delivered": delivered,
        "pending": pending,
        "unacked": {name: consumer["unacked"] for name, consumer in state["consumers"].items()},
        "permits": {name: consumer["permits"] for name, consumer in state["consumers"].items()},
        "blocked": {name: consumer["is_blocked"] for name, consumer in state["consumers"].items()},
        "recently_joined": state.get("recently_joined"),
    }


def theirs(expected: dict, positions: Positions) -> dict:
    state, result = expected["state"], expected.get("result")
    consumers = state["consumers"]
    return {
        "refusals": [result.removeprefix("refused: ").removesuffix("Exception")] if isinstance(result, str) else [],
        "mark_delete": positions.upper(state["mark_delete"]),
        "acknowledged": {
            at
            for lower, upper in state["acked_ranges"]
            for at in range(positions.upper(lower) + 1, positions.upper(upper) + 1)
        },
        "delivered": {
            name: {(positions.number(entry["pos"]), entry["redelivery_count"]) for entry in entries}
            for name, entries in expected["delivered"].items()
        },
        "pending": {
            name: [positions.number(place) for place in consumer["pending"]] for name, consumer in consumers.items()
        },
        "unacked": {name: consumer["unacked"] for name, consumer in consumers.items()},
        "permits": {name: consumer["permits"] for name, consumer in consumers.items()},
        "blocked": {name: consumer["blocked"] for name, consumer in consumers.items()},
        "recently_joined": {name: positions.number(place) for name, place in state.get("recently_joined", [])},
    }


def _differences(broker, case: dict, topic: str, *, is_classic: bool) -> Player:
    on, positions, found = On(topic), Positions(), []
    yield [
        on.policy("subscription_key_shared_use_consistent_hashing", int(case["input"]["config"]["consistent_hashing"])),
        on.policy("subscription_key_shared_use_classic_persistent_implementation", int(is_classic)),
    ]
    for number, ((name, *arguments), expected) in enumerate(
        zip(case["input"]["ops"], case["expected"]["after_each_op"], strict=True)
    ):
        if name == "publish":
            positions.add(expected["result"])
            broker.publish(topic, -1, [1] * len(arguments), keys=[(Key(entry.get("key")),) for entry in arguments])
        answer = yield [] if name == "publish" else requests_of(on, positions, name, arguments)
        deliveries, last = answer.deliveries, answer
        while last.deliveries or last is answer:
            last = yield []
            deliveries = deliveries + last.deliveries
        mine, recorded = ours(broker.state(topic, -1, "s"), deliveries, answer.refusals), theirs(expected, positions)
        fields = [field for field in mine if is_classic or field != "recently_joined"]
        found += [
            (number, name, field, mine[field], recorded[field]) for field in fields if mine[field] != recorded[field]
        ]
    return found


def classic(broker, case: dict, topic: str) -> Player:
    """(number of the operation, operation, field, ours, theirs), of all fields that differ by the rule of 3.2.3."""
    return _differences(broker, case, topic, is_classic=True)


def draining(broker, case: dict, topic: str) -> Player:
    """The same by the rule that holds by default."""
    return _differences(broker, case, topic, is_classic=False)


PLAYERS = {"classic": classic, "draining": draining}


def check(rule: str, number: int, found: list[tuple]) -> None:
    """Fail where a case differs before the operation from which on it is said to."""
    first, _, _ = DEVIATIONS[rule].get(number, (len(CASES[number]["input"]["ops"]), "", ""))
    assert [difference for difference in found if difference[0] < first] == []


def check_deviation(rule: str, number: int, found: list[tuple]) -> None:
    """Fail where a case does not differ though it is said to."""
    if number in DEVIATIONS[rule]:
        first, field, _ = DEVIATIONS[rule][number]
        assert (first, field) in {difference[0:3:2] for difference in found}
