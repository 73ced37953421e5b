"""What becomes of a delivery when some of its messages cannot be read, without Spark."""

import pytest

import pulsar_spark as pulsar
from pulsar_spark.errors import DecompressionError, UnreadableMessage
from pulsar_spark.frames import consume
from pulsar_spark.frames.consuming import call
from pulsar_spark.frames.deliveries.delivery import Acknowledged, Answer, Delivery, answer
from pulsar_spark.frames.deliveries.unreadable import NOTHING, Unreadable, answered, readable
from pulsar_spark.protocol.acknowledgement import ack_set as ack_sets
from pulsar_spark.storage.entries.slices import PositionRange

ERROR = DecompressionError("of some message")


def delivery_of(*ranges: PositionRange) -> Delivery:
    return Delivery("t", "id", "s", "c", 1, ranges)


def handled(delivery: Delivery, unreadable: Unreadable) -> tuple[list[tuple[int, int]], set[Acknowledged]]:
    """The positions that are handed over, and what is acknowledged when the function returns nothing."""
    handed_over = readable(delivery, unreadable)
    reply = answered(answer(handed_over, None), unreadable, handed_over)
    assert reply == Answer(reply.acknowledged, [])
    return [(range_.first, range_.last) for range_ in handed_over.ranges], set(reply.acknowledged)


def test_what_is_kept_is_neither_handed_over_nor_acknowledged():
    delivery = delivery_of(PositionRange(0, 0, 9), PositionRange(1, 0, 3))
    kept = {(0, 4): frozenset({0}), (1, 3): frozenset({0})}
    assert handled(delivery, Unreadable(kept, ERROR, {})) == (
        [(0, 3), (5, 9), (0, 2)],
        {Acknowledged(0, 0, 3), Acknowledged(0, 5, 9), Acknowledged(1, 0, 2)},
    )


def test_what_is_discarded_is_acknowledged_and_not_handed_over():
    discarded = {(0, 4): frozenset({0})}
    assert handled(delivery_of(PositionRange(0, 4, 5)), Unreadable({}, None, discarded)) == (
        [(5, 5)],
        {Acknowledged(0, 5, 5), Acknowledged(0, 4, 4)},
    )
    assert handled(delivery_of(PositionRange(0, 4, 4)), Unreadable({}, None, discarded)) == (
        [],
        {Acknowledged(0, 4, 4)},
    )


def test_of_a_batch_single_messages_are_kept_or_discarded():
    """Of entries of four messages; of the last one two are acknowledged already."""
    left = ack_sets.of_indexes([2, 3])
    delivery = delivery_of(PositionRange(0, 0, 2, batch_size=4), PositionRange(0, 7, 7, ack_set=left, batch_size=4))
    some = {(0, 1): frozenset({0, 2}), (0, 7): frozenset({3})}
    positions, acknowledged = handled(delivery, Unreadable(some, ERROR, {}))
    assert sorted(positions) == [(0, 0), (1, 1), (2, 2), (7, 7)]
    assert acknowledged == {
        Acknowledged(0, 0, 0),
        Acknowledged(0, 1, 1, ack_sets.of_indexes([0, 2])),
        Acknowledged(0, 2, 2),
        Acknowledged(0, 7, 7, ack_sets.of_indexes([3])),
    }
    handed_over = {(range_.first, range_.ack_set) for range_ in readable(delivery, Unreadable(some, ERROR, {})).ranges}
    assert handed_over >= {(1, ack_sets.of_indexes([1, 3])), (7, ack_sets.of_indexes([2]))}
    _, acknowledged = handled(delivery, Unreadable({}, None, some))
    assert acknowledged == {Acknowledged(0, at, at) for at in (0, 1, 2, 7)}
    both = Unreadable({(0, 7): frozenset({2})}, ERROR, {(0, 7): frozenset({3})})
    positions, acknowledged = handled(delivery, both)
    assert positions == [(0, 2)]
    assert acknowledged == {Acknowledged(0, 0, 2), Acknowledged(0, 7, 7, ack_sets.of_indexes([2]))}


@pytest.fixture
def looked(served, monkeypatch):
    """What a look at deliveries finds unreadable; of three compressed messages on the topic."""
    client = pulsar.Client(f"delta:{served.layout.root}")
    producer = client.create_producer("t", compression_type=pulsar.CompressionType.LZ4)
    for number in range(3):
        producer.send(b"%d" % number)
    client.close()
    found = [Unreadable({(-1, 1): frozenset({0})}, ERROR, {})]
    monkeypatch.setattr(call.Caller, "_look", lambda *asked: (found[-1], None))
    return found


def run_to_end(root) -> tuple[list[int], BaseException | None]:
    got: list[int] = []

    def function(messages, delivery) -> None:
        got.extend(position for _, position, _ in messages)

    return got, ended(consume(None, root, "t", "s", function, available_now=True))


def ended(consumption) -> BaseException | None:
    try:
        assert consumption.await_termination(30)
    except (UnreadableMessage, KeyError) as error:
        return error


def test_a_consumer_handles_the_rest_and_ends_with_the_error_and_the_next_one_gets_what_was_kept(served, looked):
    root = served.layout.root
    assert run_to_end(root) == ([0, 2], ERROR)
    looked.append(Unreadable({}, None, {(-1, 1): frozenset({0})}))
    assert run_to_end(root) == ([], None)
    looked.append(NOTHING)
    assert run_to_end(root) == ([], None), "what was discarded is acknowledged"


def test_what_a_function_gives_back_does_not_take_along_what_cannot_be_read(served, looked):
    def fails(messages, delivery) -> None:
        raise KeyError("of the function")

    error = ended(consume(None, served.layout.root, "t", "s", fails, available_now=True))
    assert isinstance(error, KeyError | DecompressionError)
    looked.append(NOTHING)
    assert run_to_end(served.layout.root) == ([0, 1, 2], None)
