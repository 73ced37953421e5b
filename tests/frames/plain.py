"""Consuming as a DataFrame consumer does, without Spark: with the positions of a delivery in the place of its frame."""


class Seconds:
    """A clock that stands still until it is told otherwise."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def positions(delivery) -> list[tuple[int, int, int]]:
    """Partition, position and redelivery count of what was delivered."""
    return [
        (range_.partition, position, range_.redelivery_count)
        for range_ in delivery.ranges
        for position in range(range_.first, range_.last + 1)
    ]
