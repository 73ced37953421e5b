"""When a round of a Key_Shared cursor is due: what one consumer cannot take hides nothing from another one."""

from tests.support.model_keys import Key
from tests.support.next_due import next_due
from tests.support.requests import On

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)


def keys(is_lower: bool) -> list[tuple[Key, ...]]:
    """Keys of the lower half of all slots, or of the upper one."""
    every = (Key(f"k{number}") for number in range(40))
    return [(key,) for key in every if (key.hash_code() % 65_536 < 32_768) == is_lower]


def join(consumer: str, ranges: str) -> dict:
    return ON.subscribe(consumer, "KeyShared", key_shared_mode="STICKY", hash_ranges=ranges)


def test_a_due_entry_that_its_owner_cannot_take_hides_no_later_one_of_others(engine):
    (first, second), (other,) = keys(True)[:2], keys(False)[:1]
    requests = [join("a", "0-32767"), join("b", "32768-65535"), ON.flow("a", 1), ON.flow("b", 1)]
    assert engine.round(requests, 0)["deliveries"] == []
    engine.publish(TOPIC, -1, [1, 1], keys=[first, other], deliver_at_ms=[1000, 2000])
    assert engine.round([], 0)["deliveries"] == []
    engine.publish(TOPIC, -1, [1], keys=[second])
    (at_once,) = engine.round([], 0)["deliveries"]
    assert (at_once.consumer_id, at_once.position) == ("a", 2), "its last permit"
    bundle = engine.rounds.bundle
    assert next_due(bundle, 0) == 1_000_000
    assert engine.round([], 1000)["deliveries"] == []
    assert next_due(bundle, 1_000_000) == 2_000_000
    (later,) = engine.round([], 2000)["deliveries"]
    assert (later.consumer_id, later.position) == ("b", 1)
    assert next_due(bundle, 2_000_000) == 30_000_000, "leases end"
