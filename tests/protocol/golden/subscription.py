"""The broker side of one subscription: golden k1 (Shared), golden k3 (Exclusive and Failover), one operation at a
time, settled.

Compared after every operation: refusals, mark-delete, acknowledged ranges, active consumer; and, but where
:data:`DEVIATIONS` says why not, what was delivered with which count, what is pending, unacknowledged messages, permits,
blocked flags. Numbers are summed over consumers and entries are not asked for their consumer: who gets what on Shared
is each one's own choice (semantics 0.28).

**Chunks** (1.17): Pulsar delivers each of them as an entry, which its client puts together; here the last one stands
for all, and nobody is sent the others. So what was recorded is read in units (:func:`in_units`).
"""

from pulsar_spark.protocol.acknowledgement import ack_set
from tests.protocol.golden import cases, named
from tests.protocol.golden.lockstep import Player
from tests.support.model import as_ranges
from tests.support.model_chunks import Chunk, Chunks
from tests.support.requests import On

ALL = frozenset(("delivered", "pending", "unacked", "permits", "blocked", "is_blocked"))
AFTER = "4.4 as in 4.0.8: unblocked by what is unacknowledged after the ack, not before, so more goes out, and earlier"
DEVIATIONS: dict[str, tuple[frozenset, str]] = {
    "consumer leaves: its entries go to the others, count not raised": (
        frozenset(("delivered", "pending")),
        "0.28: the leaving one held other entries",
    ),
    "last consumer leaves: counts are cleared": (frozenset(("delivered",)), "0.20: the count stays 1"),
    "batch index ack resets the redelivery count of the entry": (
        frozenset(("delivered",)),
        "0.20: the count goes on to 3",
    ),
    "consumer blocked at max unacked, unblocked at half": (ALL - {"blocked", "is_blocked"}, AFTER),
    "subscription blocked at max unacked, unblocked below half": (
        ALL - {"blocked", "is_blocked"},
        "0.29: no read overshoots the limit",
    ),
    "random 0": (ALL - {"blocked", "is_blocked"}, AFTER),
    "random 4": (ALL - {"blocked", "is_blocked"}, "0.28: a batch took another consumer's permits below zero"),
    "random 6": (ALL - {"is_blocked"}, AFTER),
    "random 12": (ALL - {"is_blocked"}, AFTER),
    "exclusive": (frozenset(("counts",)), "0.20: counts also on Exclusive, and they outlive the consumer"),
}
"""Case -> fields in which it differs, and the decision. The reference broker is checked to differ in each,
so that none stays here for nothing."""


TYPES = {"Key_Shared": "KeyShared"}
"""As the client's enumeration writes it."""


def options_of(settings: dict) -> dict:
    """What a consumer asks for beside its type."""
    found = {"priority_level": settings.get("priority", 0)}
    if settings.get("allow_out_of_order"):
        found["allow_out_of_order_delivery"] = "true"
    if settings.get("mode"):
        found["key_shared_mode"] = settings["mode"].upper()
        found["hash_ranges"] = ",".join(f"{start}-{end}" for start, end in settings["ranges"])
    return found


def asked(on: On, name: str, arguments: list) -> list[dict]:
    """The requests of one recorded operation."""
    consumer = arguments[0] if arguments else None
    if name == "subscribe":
        settings = arguments[1]
        return [on.subscribe(consumer, TYPES.get(settings["type"], settings["type"]), **options_of(settings))]
    return {
        "flow": lambda permits: [on.flow(consumer, permits)],
        "ack": lambda *places: [on.ack(entry, consumer=consumer) for _, entry in places],
        "ack_batch": lambda place, left: [on.ack(place[1], ack_set=list(ack_set.of_indexes(left)), consumer=consumer)],
        "cumulative": lambda place: [on.cumulative_ack(place[1], consumer=consumer)],
        "redeliver": lambda *places: [on.negative_ack(consumer, entry) for _, entry in places],
        "redeliver_all": lambda: [on.redeliver_all(consumer)],
        "close": lambda: [on.close(consumer)],
    }[name](*arguments[1:])


def ours(state: dict, deliveries: list, refusals: list[str]) -> dict:
    consumers = state["consumers"]
    return {
        "refusals": refusals,
        "mark_delete": state["mark_delete_position"],
        "acknowledged": state["acknowledged"],
        "active": next((name for name, consumer in consumers.items() if consumer["is_active"]), None),
        "delivered": sorted(delivery.position for delivery in deliveries),
        "counts": sorted((delivery.position, delivery.redelivery_count) for delivery in deliveries),
        "pending": sorted(state["pending"]),
        "unacked": sum(consumer["unacked"] for consumer in consumers.values()),
        "permits": sum(consumer["permits"] for consumer in consumers.values()),
        "blocked": {name: consumer["is_blocked"] for name, consumer in consumers.items()},
        "is_blocked": state["is_blocked"],
    }


def theirs(expected: dict) -> dict:
    state, result = expected["state"], expected.get("result")
    consumers = state["consumers"]
    delivered = [entry for entries in expected["delivered"].values() for entry in entries]
    return {
        "refusals": [result.removeprefix("refused: ").removesuffix("Exception")] if isinstance(result, str) else [],
        "mark_delete": state["mark_delete"][1],
        "acknowledged": [(lower[1] + 1, upper[1]) for lower, upper in state["acked_ranges"]],
        "active": state.get("active"),
        "delivered": sorted(entry["pos"][1] for entry in delivered),
        "counts": sorted((entry["pos"][1], entry["redelivery_count"]) for entry in delivered),
        "pending": sorted(place[1] for consumer in consumers.values() for place in consumer.get("pending", [])),
        "unacked": sum(consumer["unacked"] for consumer in consumers.values()),
        "permits": sum(consumer["permits"] for consumer in consumers.values()),
        "blocked": {name: consumer["blocked"] for name, consumer in consumers.items()},
        "is_blocked": state.get("dispatcher_blocked", False),
    }


def in_units(recorded: dict, expected: dict, chunks: Chunks, parts_sent: int) -> dict:
    """What was recorded, where the last chunk stands for a message: the others were not delivered, so none of them is
    out, and *parts_sent* permits were not used. Chunks that are of no message wait for their first one there; here
    they are acknowledged as soon as they are read (1.13)."""
    entries = {position for first, last in recorded["acknowledged"] for position in range(first, last + 1)}
    read = range(recorded["mark_delete"] + 1, expected["state"]["read_position"][1])
    entries |= {
        part for part in chunks.parts if part in read and chunks.unit_of(part) is None and not chunks.is_of_open(part)
    }
    mark_delete = recorded["mark_delete"]
    while mark_delete + 1 in entries:
        mark_delete += 1
    return recorded | {
        "mark_delete": mark_delete,
        "acknowledged": as_ranges({position for position in entries if position > mark_delete}),
        "delivered": [position for position in recorded["delivered"] if position not in chunks.parts],
        "counts": [each for each in recorded["counts"] if each[0] not in chunks.parts],
        "pending": [position for position in recorded["pending"] if position not in chunks.parts],
        "unacked": recorded["unacked"]
        - len([position for position in recorded["pending"] if position in chunks.parts]),
        "permits": recorded["permits"] + parts_sent,
    }


def differences(broker, case: dict, topic: str) -> Player:
    """(number of the operation, operation, field, ours, theirs), of all fields that differ."""
    config, found, on = case["input"]["config"], [], On(topic)
    chunks, parts_sent = Chunks(), 0
    # Settled is what delivers nothing in a round; where entries are delayed, a round may have met such alone.
    settled_after = 1 + sum("deliver_at" in each for op in case["input"]["ops"] for each in op if type(each) is dict)
    yield [
        on.policy("max_unacked_messages_per_consumer", config.get("max_unacked_consumer", 50_000)),
        on.policy("max_unacked_messages_per_subscription", config.get("max_unacked_subscription", 200_000)),
        on.policy("active_consumer_failover_delay_ms", 0),
    ]
    for number, ((name, *arguments), expected) in enumerate(
        zip(case["input"]["ops"], case["expected"]["after_each_op"], strict=True)
    ):
        if name == "publish":
            sizes = [entry.get("batch", 1) for entry in arguments]
            due, said = [entry.get("deliver_at") for entry in arguments], [_chunk(entry) for entry in arguments]
            broker.publish(topic, -1, sizes, deliver_at_ms=due, chunks=said)
            chunks.entries += said
            chunks.see()
        if name == "clock":
            answer = yield arguments[0]
        else:
            answer = yield [] if name == "publish" else asked(on, name, arguments)
        deliveries, quiet = answer.deliveries, 0 if answer.deliveries else 1
        while quiet < settled_after:
            more = (yield []).deliveries
            deliveries, quiet = deliveries + more, 0 if more else quiet + 1
        mine, recorded = ours(broker.state(topic, -1, "s"), deliveries, answer.refusals), theirs(expected)
        parts_sent += len([position for position in recorded["delivered"] if position in chunks.parts])
        recorded = in_units(recorded, expected, chunks, parts_sent)
        found += [
            (number, name, field, mine[field], recorded[field]) for field in mine if mine[field] != recorded[field]
        ]
    return found


def _chunk(entry: dict) -> Chunk | None:
    return Chunk(entry["uuid"], entry["chunk"], entry["chunks"]) if "uuid" in entry else None


def of_shared(*, delayed: bool) -> list[dict]:
    """The cases of golden k1, those with delayed entries or all others."""
    return [case for case in cases("k1_shared_broker") if named(case).startswith("delayed") is delayed]


CASES = [*of_shared(delayed=False), *cases("k3_single_active_broker")]
DELAYED_CASES = of_shared(delayed=True)
"""Each with a clock of its own."""
ALWAYS = frozenset(("refusals", "mark_delete", "acknowledged"))
ON_SHARED = ALWAYS | ALL | {"counts"}
ON_SINGLE_ACTIVE = ALWAYS | {"active", "delivered", "counts", "permits"}
"""Pulsar tracks no pending acks on Exclusive and Failover, so these have none to compare."""


def check(case: dict, found: list[tuple]) -> None:
    """Fail where a case differs in a field that is binding."""
    binding, _ = _fields(case)
    assert [difference for difference in found if difference[2] in binding] == []


def check_deviation(case: dict, found: list[tuple]) -> None:
    """Fail where a case does not differ though it is said to."""
    _, left_out = _fields(case)
    assert not left_out or any(difference[2] in left_out for difference in found)


def _fields(case: dict) -> tuple[frozenset, frozenset]:
    """Those that are binding, and those in which the case is said to differ."""
    is_shared = any(case == each for each in cases("k1_shared_broker"))
    left_out = DEVIATIONS.get(named(case), (frozenset(), ""))[0]
    left_out |= {"counts"} if "delivered" in left_out else set()
    return (ON_SHARED if is_shared else ON_SINGLE_ACTIVE) - left_out, left_out
