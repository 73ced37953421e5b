"""Calling a consumer's function with a delivery: the frame it gets, and what its return or its error means."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.frames.delivery import Answer, Delivery, answer
from pulsar_spark.frames.letters import FrameLetters
from pulsar_spark.storage.ledger_index import LedgerIndex
from pulsar_spark.storage.slices import find_pieces, read_pieces
from pulsar_spark.storage.topics import Topic

ConsumeFunction = Callable[[DataFrame, Delivery], object]


class Called(NamedTuple):
    """What to tell the broker, the requests that put messages off, and the error, if the function raised one: then all
    is given back."""

    reply: Answer
    letters: list[dict]
    error: BaseException | None


class Caller:
    """Calls *function* with deliveries of *topic*: with *columns* of the messages (all for None), with their payload or
    without."""

    def __init__(
        self,
        spark: SparkSession,
        topic: Topic,
        ledgers: LedgerIndex,
        function: ConsumeFunction,
        columns: Sequence[str] | None,
        *,
        with_payload: bool,
    ):
        self._spark, self._topic, self._ledgers, self._function = spark, topic, ledgers, function
        self._columns, self._with_payload = columns, with_payload

    def call(self, delivery: Delivery, letters: FrameLetters | None, make: Callable[..., dict]) -> Called:
        """Hand a delivery over; *letters* are the consumer's, ``make(kind, partition, **columns)`` makes a request."""
        try:
            reply = answer(delivery, self._function(self._read(delivery), delivery))
            if not reply.put_off:
                return Called(reply, [], None)
            if letters is None or not letters.is_retry_enabled:
                raise InvalidConfiguration("the outcomes put messages off: consume with retry_enable=True")
            return Called(reply, letters.rows(reply.put_off, make), None)
        except BaseException as error:  # SystemExit, too, is the function's own failure, and ends no thread in silence
            return Called(Answer([], list(delivery.ranges)), [], error)

    def _read(self, delivery: Delivery) -> DataFrame:
        return read_pieces(
            self._spark,
            self._topic,
            find_pieces(self._ledgers, self._topic, delivery.ranges),
            self._columns,
            self._with_payload,
            without=self._ledgers.foreign_files(self._topic.topic_id),
        )
