"""Spark jobs beside rounds, with settings of their own, that another thread can cancel."""

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from functools import cached_property

from pyspark.sql import SparkSession

from pulsar_spark.storage.session import is_running, side_session

_OF_A_GROUP = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


class SideJobs:
    """Jobs of one *kind*, with generated code."""

    def __init__(self, spark: SparkSession, kind: str, settings: Mapping[str, str]):
        self.application = spark
        self._group = f"{kind}-{uuid.uuid4()}"
        self._settings = {
            "spark.sql.codegen.factoryMode": "FALLBACK",
            "spark.sql.codegen.wholeStage": "true",
            **settings,
        }

    @cached_property
    def spark(self) -> SparkSession:
        """A session of their own, made when needed."""
        return side_session(self.application, self._settings)

    @contextlib.contextmanager
    def described(self, description: str) -> Iterator[SparkSession]:
        """The session; this thread's jobs show *description* and can be cancelled."""
        context = self.spark.sparkContext
        context.setJobGroup(self._group, description, interruptOnCancel=True)
        try:
            yield self.spark
        finally:
            for name in _OF_A_GROUP:  # the caller's thread may run other jobs later
                context.setLocalProperty(name, None)  # type: ignore[arg-type]  # removes it

    def cancel(self) -> None:
        """Cancel the running job, if any; it raises an error."""
        if is_running(self.application):
            self.application.sparkContext.cancelJobGroup(self._group)
