"""Which deliveries of a queue are its tail, such as a first round and a first place there can name."""

from unittest.mock import Mock

import pytest

from pulsar_spark.client.receiving.delivery import Delivery
from pulsar_spark.client.receiving.delivery_queue import tail_of

NOTHING = dict.fromkeys(("chunks", "batch_size", "redelivery_count", "ack_set", "positions"))


def queue(*rows: tuple[int, int, int], taken: tuple[int, int] = (-1, -1)) -> list[Delivery]:
    """(round, first, last) of deliveries in the order they arrived."""
    subscription = Mock(taken=taken)
    return [Delivery(subscription, NOTHING | dict(zip(("delivery_round", "first", "last"), row)), 0) for row in rows]


@pytest.mark.parametrize(
    "messages, rows, taken, found",
    [
        (0, [(1, 0, 9)], (-1, -1), 0),
        (1, [(1, 0, 9)], (-1, -1), 1),
        (11, [(1, 0, 9), (1, 10, 19), (2, 20, 29)], (-1, -1), 2),
        (30, [(1, 0, 9), (1, 10, 19), (2, 20, 29)], (-1, -1), 3),
        (99, [(1, 0, 9)], (-1, -1), 1),
        (1, [(1, 10, 19)], (1, 9), 1),
        (1, [(1, 5, 19)], (1, 7), 0),  # what lies between was handed out, it cannot be told apart
        (1, [(1, 5, 19), (2, 0, 3)], (1, 7), 1),
        (20, [(1, 5, 19), (2, 0, 3)], (1, 7), 1),
        (1, [(1, 0, 9), (2, 10, 29), (2, 11, 28)], (-1, -1), 2),  # two of a round go together
        (1, [(1, 20, 29), (2, 0, 9)], (-1, -1), 1),  # what came again lies before what waits
    ],
)
def test_deliveries_go_whole_and_so_many_that_a_place_tells_them_apart(messages, rows, taken, found):
    deliveries = queue(*rows, taken=taken)
    assert tail_of(deliveries, messages) == deliveries[len(rows) - found :]


def test_what_is_taken_is_remembered_by_its_round_and_last_place():
    first, second, third = queue((1, 0, 9), (1, 3, 5), (2, 0, 10**12))
    for delivery, taken in ((first, (1, 9)), (second, (1, 9)), (third, (2, 10**12))):
        delivery.is_taken()
        assert delivery.subscription.taken == taken
