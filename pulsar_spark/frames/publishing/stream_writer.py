"""The stream writer of ``publish_stream``: it warns if its query starts without a checkpoint."""

import logging
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

_OPTION, _SETTING = "checkpointLocation", "spark.sql.streaming.checkpointLocation"
log = logging.getLogger(__name__)


class TopicWriter(DataStreamWriter):
    """Writes the stream *frame* to *topic*; of Spark's classes only the one without Spark Connect."""

    def __init__(self, frame: DataFrame, topic: str):
        super().__init__(frame)
        self._topic, self._has_checkpoint = topic, False

    def option(self, key: str, value: Any) -> DataStreamWriter:
        self._has_checkpoint |= key.lower() == _OPTION.lower()
        return super().option(key, value)

    def options(self, **options: Any) -> DataStreamWriter:
        self._has_checkpoint |= _OPTION.lower() in map(str.lower, options)
        return super().options(**options)

    def start(self, *arguments: Any, **options: Any) -> StreamingQuery:
        is_given = self._has_checkpoint or _OPTION.lower() in map(str.lower, options)
        if not is_given and not self._spark.conf.get(_SETTING, None):
            log.warning(
                "the stream into topic %r has no checkpoint: started again, it publishes its rows again, or with an "
                "app_id leaves out as many micro-batches as it published before; give .option(%r, <folder>)",
                self._topic,
                _OPTION,
            )
        return super().start(*arguments, **options)
