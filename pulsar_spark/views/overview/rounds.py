"""The row of a round as a value."""

from pulsar_spark.views.overview.values import RoundState


def round_state(bundle: str, row: dict) -> RoundState:
    """The round of *row* in a bundle, given by its folder."""
    counts = dict(row.get("counters") or ())
    numbers = {name: counts.get(name) for name in RoundState._fields[6:]}
    return RoundState(
        bundle, row["round"], row["round_time"], row["broker_id"], row["epoch"], bool(row["is_snapshot"]), **numbers
    )
