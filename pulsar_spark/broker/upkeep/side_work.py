"""What a broker does beside its rounds, each on a thread of its own: the delay index, housekeeping, samples of
activity, compaction."""

import threading
from collections.abc import Callable

from pyspark.sql import SparkSession

from pulsar_spark.broker.compaction.compaction_job import SparkCompaction
from pulsar_spark.broker.compaction.compaction_upkeep import CompactionUpkeep
from pulsar_spark.broker.delays.delay_build import SparkBuild
from pulsar_spark.broker.delays.delay_index import DelayIndex
from pulsar_spark.broker.delays.delay_upkeep import DelayUpkeep
from pulsar_spark.broker.round.rounds import Rounds
from pulsar_spark.broker.upkeep.activity import ActivityUpkeep
from pulsar_spark.broker.upkeep.housekeeping import Housekeeping
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.spark.spark_root import can_read


class SideWork:
    def __init__(self, layout: Layout, spark: SparkSession | None, broker_id: str):
        self._layout, self._spark, self._broker_id = layout, spark, broker_id
        self.delays: DelayUpkeep | None = None
        self.housekeeping: Housekeeping | None = None
        self.activity: ActivityUpkeep | None = None
        self._compaction: CompactionUpkeep | None = None

    def index_delays(self, index: DelayIndex, most_buckets: int) -> None:
        """Begin to keep *index*, in at most *most_buckets* buckets."""
        spark = self._session()
        build = None if spark is None else SparkBuild(spark, index.table, index.places)
        self.delays = DelayUpkeep(index, build, most_buckets)
        self.delays.start()

    def keep_house(self, note: Callable[[str, str, int], None]) -> None:
        """Begin housekeeping; *note* gets table, kind and count of what was done."""
        self.housekeeping = Housekeeping(self._layout, self._broker_id, note)
        self.housekeeping.start()

    def sample(self, rounds: Rounds, lock: threading.Lock) -> None:
        """Begin to sample the activity of *rounds*, which run under *lock*."""
        self.activity = ActivityUpkeep(self._layout, rounds, lock)
        self.activity.start()

    def compact(self) -> None:
        """Begin to compact topics by policy or on demand."""
        spark = self._session()
        job = None if spark is None else SparkCompaction(spark)
        self._compaction = CompactionUpkeep(self._layout, job, job.cancel if job else lambda: None)
        self._compaction.start()

    def close(self) -> None:
        for work in (self.delays, self.housekeeping, self.activity, self._compaction):
            if work is not None:
                work.close()

    def _session(self) -> SparkSession | None:
        return self._spark if self._spark is not None and can_read(self._spark, self._layout.root) else None
