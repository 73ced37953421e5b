"""When entries were published, by statistics of their runs, or by rows if these are not enough."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.entries.entries import EntryReader
from pulsar_spark.storage.entries.missing import Missing
from pulsar_spark.storage.ledgers.partition_ledgers import PartitionLedgers
from pulsar_spark.storage.store.store import AnyPath

_STATISTICS_UNIT = timedelta(milliseconds=1)


def first_published_at(table: AnyPath, ledgers: PartitionLedgers, instant: datetime, first: int = 0) -> int:
    """Position of the first entry, from the run of *first* on, published at or after *instant*; else the end."""
    runs = ledgers.overlapping(first, ledgers.end_position - 1)
    found = (first_of_run_published_at(table, run, instant) for run in runs)
    return next((position for position in found if position is not None), ledgers.end_position)


def first_of_run_published_at(table: AnyPath, run: Run, instant: datetime) -> int | None:
    """Position of the first entry of *run* published at or after *instant*; else None."""
    if run.max_publish_time is None or run.max_publish_time + _STATISTICS_UNIT < instant:
        return None
    return min((position for position, published in _publish_times(table, run) if published >= instant), default=None)


def last_published_before(table: AnyPath, ledgers: PartitionLedgers, instant: datetime, after: int = -1) -> int:
    """Position of the last entry after *after* published before *instant*; else -1."""
    for run in reversed(ledgers.runs):
        if run.last_position <= after:
            return -1
        if run.max_publish_time is not None and run.max_publish_time + _STATISTICS_UNIT <= instant:
            return run.last_position
        if run.min_publish_time is not None and run.min_publish_time < instant:
            early = [position for position, published in _publish_times(table, run) if published < instant]
            if early:
                return max(early)
    return -1


def is_published_before(table: AnyPath, ledgers: PartitionLedgers, position: int, instant: datetime) -> bool:
    run = ledgers.runs[ledgers.index_of(position)]
    if run.max_publish_time is not None and run.max_publish_time + _STATISTICS_UNIT <= instant:
        return True
    return (
        run.min_publish_time is not None
        and run.min_publish_time < instant
        and any(published < instant for _, published in _publish_times(table, run.part(position, position)))
    )


def _publish_times(table: AnyPath, run: Run) -> Iterator[tuple[int, datetime]]:
    """(position, publish time) of the run's entries; the run's latest for lost ones."""
    latest = run.max_publish_time
    for rows in EntryReader().read(table, run, columns=["publish_time"]):
        if isinstance(rows, Missing):
            if rows.is_lost and latest is not None:
                yield from ((entry_id + run.to_position, latest) for stretch in rows.whole for entry_id in stretch)
            continue
        for position, published in zip(rows["position"].to_pylist(), rows["publish_time"].to_pylist()):
            if published is not None:
                yield position, published
