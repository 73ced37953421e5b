"""The row of a round as a value."""

from pulsar_spark.views.overview.values import RoundState

_COUNTS = ("published", "requests", "delivered", "redelivered", "acknowledged", "dead", "returned")
_STEPS = ("number_us", "requests_us", "gather_us", "plan_us", "write_us")


def round_state(bundle: str, row: dict) -> RoundState:
    """The round of *row* in a bundle, given by its folder."""
    counts: dict[str, int] = dict(row["counts"] or ())
    steps = (counts[name] / 1000 if name in counts else None for name in _STEPS)
    is_snapshot = bool(row["is_snapshot"])
    of_row = bundle, row["round"], row["round_time"], row["broker_id"], row["epoch"], is_snapshot
    return RoundState(*of_row, *map(counts.get, _COUNTS), *steps)
