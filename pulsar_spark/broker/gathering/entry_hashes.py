"""The sticky-key hashes of a topic partition's entries."""

import numpy as np

from pulsar_spark.broker.gathering.entry_columns import EntryColumn
from pulsar_spark.storage.entries.key_hashes import read_hashes
from pulsar_spark.storage.ledgers.partition_ledgers import PartitionLedgers
from pulsar_spark.storage.store.store import AnyPath


class EntryHashes(EntryColumn):
    def __init__(self, table: AnyPath, ledgers: PartitionLedgers):
        super().__init__(ledgers, lambda runs: read_hashes(table, runs), np.int32)
