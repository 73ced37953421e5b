"""What was trimmed from a topic, for readers: as the topic's own log says it (see trimming)."""

import os
from collections.abc import Iterable

from deltalake.exceptions import DeltaError, TableNotFoundError

from pulsar_spark.errors import CorruptState, TopicNotFound
from pulsar_spark.storage.actions import TRIMMED
from pulsar_spark.storage.scan import open_as_far_as_it_goes


def trimmed_ledgers(table: str | os.PathLike, partitions: Iterable[int]) -> dict[int, int]:
    """The last ledger that is gone from each of *partitions*; 0 where none is."""
    try:
        delta = open_as_far_as_it_goes(table)
    except TableNotFoundError as gone:
        raise TopicNotFound(f"the topic at {str(table)!r} was deleted") from gone
    except DeltaError as broken:
        raise CorruptState(f"{str(table)!r}: the table cannot be opened ({broken})") from broken
    return {partition: delta.transaction_version(f"{TRIMMED}{partition}") or 0 for partition in partitions}
