"""A broker compacts topics above their ``compaction_threshold`` in the background, one at a time. Rule:
PersistentTopic.checkCompaction. After a failure, the next publish causes another try."""

import logging
from collections.abc import Callable

from pulsar_spark.broker.compaction.compaction import compact, uncompacted_bytes
from pulsar_spark.broker.compaction.compaction_plan import Write
from pulsar_spark.broker.upkeep.background import Background, Rotation
from pulsar_spark.protocol.policies.compaction import is_wanted
from pulsar_spark.storage.compaction.compaction_policies import compaction_thresholds
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import Topic, read_topic
from pulsar_spark.table_specs import CURSOR_LEDGER

LOOK_SECONDS = 60.0
TOPICS_A_LOOK = 20
"""Topics of a root in an object store looked at each time: a few calls a second."""
log = logging.getLogger(__name__)


class CompactionUpkeep:
    """The background compaction of one broker. *by_spark* writes large views, if there is a session; *cancel* ends such
    a write."""

    def __init__(self, layout: Layout, by_spark: Write | None = None, cancel: Callable[[], None] = lambda: None):
        self._layout, self._by_spark, self._cancel = layout, by_spark, cancel
        self._background = Background("compaction")
        self._looked_at: dict[str, int] = {}
        """By topic id: the version of its table."""
        self._thresholds: dict[str, int] = {}
        """By topic: those that are not 0."""
        self._found_at = -1
        self._rotation = Rotation(None if layout.store.is_local else TOPICS_A_LOOK)

    def start(self) -> None:
        self._background.start(self._run)

    def close(self) -> None:
        self._background.close(self._cancel)

    def _run(self) -> None:
        while not self._background.stopping.wait(LOOK_SECONDS):
            self.look()

    def look(self) -> None:
        """Compact the topics above their threshold. A failure, of any type, ends only that topic's compaction."""
        try:
            self._find()
        except Exception as failed:  # see above
            log.warning("topics to compact could not be determined; the broker tries again: %s", failed)
            return
        for name, threshold in self._rotation.some(list(self._thresholds.items())):
            if self._background.stopping.is_set():
                return
            try:
                self._look_at(read_topic(self._layout, name), threshold)
            except Exception as failed:  # see above
                if not self._background.stopping.is_set():
                    log.warning("topic %s was not compacted: %s: %.300s", name, type(failed).__name__, failed)

    def _find(self) -> None:
        version = TableLog(self._layout.broker_table(CURSOR_LEDGER.name)).latest(self._found_at)
        if version == self._found_at:
            return
        thresholds = compaction_thresholds(self._layout)
        self._looked_at = {} if thresholds != self._thresholds else self._looked_at
        self._thresholds, self._found_at = thresholds, version

    def _look_at(self, topic: Topic, threshold: int) -> None:
        version = TableLog(topic.path).latest()
        if self._looked_at.get(topic.topic_id) == version:
            return
        self._looked_at[topic.topic_id] = version
        if is_wanted(threshold, uncompacted_bytes(self._layout, topic)):
            compact(self._layout, topic, topic.partition_indexes, self._by_spark)
            log.info("compacted topic %s, which had more than %d uncompacted bytes", topic.name, threshold)
