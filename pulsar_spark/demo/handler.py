"""The handler of the subscription that bills flights; apart from the rest because the consumers' processes need no
Spark."""


def bill(flight: dict) -> None:
    """Charge the owner of the aircraft. ValueError for a flight that does not name it."""
    if flight.get("tailnum") is None:
        raise ValueError(f"flight {flight['id']} has no tail number")
