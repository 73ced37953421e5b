"""A consumer that subscribes again and loses what it has, or gets more than it asked for, is found here."""

from tests.support.requests import On

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)


def pending(engine) -> set[int]:
    return set(engine.state(TOPIC, -1, "s")["pending"])


def test_it_keeps_its_entries_and_its_permits_begin_anew(engine):
    engine.round([ON.subscribe("a", "Shared"), ON.flow("a", 5)], 0)
    engine.publish(TOPIC, -1, [1] * 3)
    engine.round([], 0)
    engine.round([ON.subscribe("a", "Shared")], 0)
    engine.publish(TOPIC, -1, [1] * 3)
    engine.round([], 0)
    assert pending(engine) == {0, 1, 2}
    engine.restart(0)
    engine.round([], 0)
    assert pending(engine) == {0, 1, 2}
    engine.round([ON.flow("a", 1)], 0)
    assert pending(engine) == {0, 1, 2, 3}


def test_one_that_was_removed_has_nothing(engine):
    engine.round([ON.subscribe("a", "Exclusive"), ON.flow("a", 5)], 0)
    engine.publish(TOPIC, -1, [1] * 3)
    engine.round([], 0)
    engine.round([ON.close("a")], 0)
    engine.round([ON.subscribe("a", "Exclusive")], 0)
    assert not pending(engine)
