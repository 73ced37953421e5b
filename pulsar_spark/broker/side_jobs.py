"""Jobs of Spark's that are run beside rounds, by a broker or a command: with settings of their own, and so that another
thread can end them."""

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from functools import cached_property

from pyspark.sql import SparkSession

from pulsar_spark.storage.session import is_running, side_session

_OF_A_GROUP = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


class SideJobs:
    """Jobs of one *kind*, whose expressions are evaluated by generated code whatever the session of rounds does."""

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
        """The session they run in, made when it is needed: nobody else's settings are changed."""
        return side_session(self.application, self._settings)

    @contextlib.contextmanager
    def described(self, description: str) -> Iterator[SparkSession]:
        """The session, while whatever jobs this thread starts are shown by *description* and ended by
        :meth:`cancel`."""
        context = self.spark.sparkContext
        context.setJobGroup(self._group, description, interruptOnCancel=True)
        try:
            yield self.spark
        finally:
            for name in _OF_A_GROUP:  # the thread may be somebody's who goes on with jobs of his own
                context.setLocalProperty(name, None)

    def cancel(self) -> None:
        """End the job that runs, if one does, with an error."""
        if is_running(self.application):
            self.application.sparkContext.cancelJobGroup(self._group)
