"""What was trimmed from a topic, for readers: as the topic's own log says it (see trimming)."""
import os
from collections.abc import Iterable

from pulsar_spark.storage.log import TRIMMED
from pulsar_spark.storage.scan import open_table


def trimmed_ledgers(table: str | os.PathLike, partitions: Iterable[int]) -> dict[int, int]:
    """The last ledger that is gone from each of *partitions*; 0 where none is."""
    delta = open_table(table)
    return {partition: delta.transaction_version(f"{TRIMMED}{partition}") or 0 for partition in partitions}
