"""Deliveries: ranges of positions the broker sent to one consumer in one round."""


class Delivery:
    """Positions of one partition; ``bits`` are the batch indexes not yet acknowledged, None for all."""

    __slots__ = ("subscription", "generation", "first", "last", "batch_size", "redelivery_count", "bits")

    def __init__(self, subscription, row: dict, generation: int):
        self.subscription = subscription
        self.generation = generation
        self.first, self.last = row["first"], row["last"]
        self.batch_size = row["batch_size"] or 1
        self.redelivery_count = row["redelivery_count"] or 0
        self.bits = (
            None
            if row["ack_set"] is None
            else sum((word & 0xFFFFFFFFFFFFFFFF) << (64 * index) for index, word in enumerate(row["ack_set"]))
        )

    @property
    def unacked_bits(self) -> int:
        return (1 << self.batch_size) - 1 if self.bits is None else self.bits

    @property
    def messages(self) -> int:
        """Messages the application is to see of it, which is what it cost in permits."""
        return (self.last - self.first + 1) * (self.batch_size if self.bits is None else self.bits.bit_count())
