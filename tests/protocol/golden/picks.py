"""Who is served on Shared: golden f (Pulsar's getNextConsumer), of what a broker delivers.

Pulsar picks a consumer for each entry; here a round deals out what there is, and which consumer of a level gets which
entry is our own (semantics 0.28). Binding are the levels: no entry goes to a worse one while a better has permits; and
that everybody gets what they have permits for, and no more.
"""

from collections import Counter

from tests.protocol.golden import cases
from tests.protocol.golden.lockstep import Player
from tests.support.requests import On

CASES = [
    {**case, "at_a_time": at_a_time} for case in cases("f_next_consumer") for at_a_time in ("one by one", "at once")
]
"""Each with its entries published one by one, a round each, and all at once."""


def named(case: dict) -> str:
    joined = case["input"]["consumers_in_join_order"]
    return f"{case['at_a_time']} " + " ".join(f"{each['id']}:{each['priority']}x{each['permits']}" for each in joined)


def serve(broker, case: dict, topic: str) -> Player:
    """Asserts who gets the entries, in the order of their positions, before and after everybody asks for two more."""
    joined, on = case["input"]["consumers_in_join_order"], On(topic)
    levels = {each["id"]: each["priority"] for each in joined}
    yield [on.subscribe(each["id"], priority_level=each["priority"]) for each in joined]
    yield [on.flow(each["id"], each["permits"]) for each in joined if each["permits"]]
    waiting = 0
    for more, picks in ((0, case["expected"]["picks"]), (2, case["expected"]["picks_after_refill"])):
        expected = [name for name in picks if name is not None]
        got = (yield [on.flow(each["id"], more) for each in joined]).deliveries if more else []
        entries = len(expected) - waiting + 1  # one more than anybody asks for: it waits for the refill
        for published in [1] * entries if case["at_a_time"] == "one by one" else [entries]:
            broker.publish(topic, -1, [1] * published)
            answer = yield []
            while answer.deliveries:
                got = got + answer.deliveries
                answer = yield []
        waiting = 1
        served = [delivery.consumer_id for delivery in sorted(got, key=lambda delivery: delivery.position)]
        assert [levels[name] for name in served] == [levels[name] for name in expected]
        assert Counter(served) == Counter(expected)
