"""Calling a consumer's function with a delivery: the frame it gets, and what its return or its error means."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.frames.chunk_deliveries import ChunkedMessage, apart, read_chunked
from pulsar_spark.frames.delivery import Answer, Delivery, answer
from pulsar_spark.frames.lane_deliveries import LaneRange, exact
from pulsar_spark.frames.lane_frames import MOST_LANES, by_lane, read_lane
from pulsar_spark.frames.letters import FrameLetters
from pulsar_spark.frames.payloads import Decoding, plain_or_refused
from pulsar_spark.frames.unreadable import NOTHING, Unreadable, answered, find_unreadable, has_encoded, readable
from pulsar_spark.payloads.encoding import ENCODING_COLUMNS
from pulsar_spark.storage.ledger_index import LedgerIndex
from pulsar_spark.storage.slices import DELIVERED, PositionRange, find_pieces, read_pieces
from pulsar_spark.storage.topics import Topic
from pulsar_spark.table_specs import KEY_FLAGS
from pulsar_spark.transforms.sticky_keys import HASH, KEY_COLUMNS, by_key, with_hash

ConsumeFunction = Callable[[DataFrame, Delivery], object]


class Called(NamedTuple):
    """What to tell the broker, the requests that put messages off, and the error, if the function raised one: then all
    is given back but for what cannot be read, which the function did not get."""

    reply: Answer
    letters: list[dict]
    error: BaseException | None
    unreadable: Unreadable = NOTHING


class Caller:
    """Calls *function* with deliveries of *topic*: with *columns* of the messages (all for None, with *has_hash* the
    hash of the sticky key and whether keys are base64, too), with their payload, plain as *decoding* makes it, or
    without, *sorted_by_key* or in no order."""

    def __init__(
        self,
        spark: SparkSession,
        topic: Topic,
        ledgers: LedgerIndex,
        function: ConsumeFunction,
        columns: Sequence[str] | None,
        *,
        with_payload: bool,
        has_hash: bool = False,
        sorted_by_key: bool = False,
        decoding: Decoding,
    ):
        self._spark, self._topic, self.ledgers, self.function = spark, topic, ledgers, function
        has_keys = has_hash or sorted_by_key
        wanted = [*DELIVERED, *KEY_FLAGS, HASH] if columns is None and has_keys else columns
        self._columns, self._with_payload, self._sorted_by_key = wanted, with_payload, sorted_by_key
        self._decoding = decoding

    def call(self, delivery: Delivery, letters: FrameLetters | None, make: Callable[..., dict]) -> Called:
        """Hand a delivery over; *letters* are the consumer's, ``make(kind, partition, **columns)`` makes a request."""
        unreadable = NOTHING
        try:
            unreadable, delivery = self._readable(delivery)
            result = self.function(self._read(delivery), delivery) if delivery.ranges else None
            reply = answered(answer(delivery, result, self.exact), unreadable, delivery)
            if not reply.put_off:
                return Called(reply, [], None, unreadable)
            if letters is None or not letters.is_retry_enabled:
                raise InvalidConfiguration("the outcomes put messages off: consume with retry_enable=True")
            return Called(reply, letters.rows(reply.put_off, make), None, unreadable)
        except BaseException as error:  # SystemExit, too, is the function's own failure, and ends no thread in silence
            reply = Answer([], list(self.exact(delivery).ranges))
            return Called(answered(reply, unreadable, delivery), [], error, unreadable)

    def _readable(self, delivery: Delivery) -> tuple[Unreadable, Delivery]:
        """What of a delivery cannot be read, and the rest of it."""
        if not self._is_decoded(delivery, self._columns):
            return NOTHING, delivery
        messages = self._stored(delivery, ["batch_index", "payload", *ENCODING_COLUMNS])
        unreadable = find_unreadable(messages, self._decoding, self._topic)
        if not unreadable.places:
            return NOTHING, delivery
        return unreadable, readable(self.exact(delivery), unreadable)

    def _is_decoded(self, delivery: Delivery, columns: Sequence[str] | None) -> bool:
        """Does the function get payloads of the delivery that may be stored otherwise than as they are?"""
        is_asked = self._with_payload and "payload" in (columns or DELIVERED)
        return is_asked and has_encoded(self._topic, self.ledgers, delivery)

    def exact(self, delivery: Delivery, is_asked: Callable[[LaneRange], bool] = lambda held: True) -> Delivery:
        """The delivery without ranges of lanes, or without those that are asked for."""
        return delivery._replace(ranges=exact(self._topic, self.ledgers, delivery.ranges, is_asked))

    def _read(self, delivery: Delivery) -> DataFrame:
        if not self._sorted_by_key and HASH not in (self._columns or ()):
            return self._located(delivery, self._columns)
        needed = [*self._columns, HASH, *KEY_COLUMNS, *(["batch_index"] if self._sorted_by_key else [])]
        messages = with_hash(self._located(delivery, list(dict.fromkeys(needed))))
        if self._sorted_by_key:
            messages = by_key(messages)
        return messages.drop(*(set(needed) - set(self._columns)))

    def _located(self, delivery: Delivery, columns: Sequence[str] | None) -> DataFrame:
        if not self._is_decoded(delivery, columns):
            return self._stored(delivery, columns)
        stored = self._stored(delivery, list(dict.fromkeys([*(columns or DELIVERED), *ENCODING_COLUMNS])))
        messages = plain_or_refused(self._decoding.decoded(stored))
        return messages.drop(*set(ENCODING_COLUMNS).difference(columns or DELIVERED))

    def _stored(self, delivery: Delivery, columns: Sequence[str] | None) -> DataFrame:
        if delivery.chunked:
            delivery, chunked = apart(self.exact(delivery))
            found = [] if not chunked else [self._chunked(chunked, columns)]
            found += [] if chunked and not delivery.ranges else [self._stored(delivery, columns)]
            return reduce(DataFrame.unionByName, found)
        lanes = by_lane([held for held in delivery.ranges if isinstance(held, LaneRange)])
        if len(lanes) > MOST_LANES:
            delivery, lanes = self.exact(delivery), {}
        found = [
            read_lane(self._spark, self._topic, self.ledgers, *of_lane, columns, self._with_payload)
            for of_lane in lanes.items()
        ]
        positions = [held for held in delivery.ranges if not isinstance(held, LaneRange)]
        if positions or not found:
            found.append(self._at(positions, columns))
        return reduce(DataFrame.unionByName, found)

    def _chunked(self, messages: Sequence[ChunkedMessage], columns: Sequence[str] | None) -> DataFrame:
        if self._with_payload and "payload" in (columns or DELIVERED):
            return read_chunked(self._spark, self._topic, self.ledgers, messages, columns)
        lasts = [PositionRange(each.partition, each.last, each.last, each.redelivery_count) for each in messages]
        return self._read_pieces(lasts, columns, with_chunks=True)

    def _at(self, positions: Sequence[PositionRange], columns: Sequence[str] | None) -> DataFrame:
        """The messages in one piece; a chunk that was delivered all the same, as of a message that is no longer whole,
        is none."""
        partitions = {held.partition for held in positions}
        ledgers = (self.ledgers.ledgers(self._topic.topic_id, partition) for partition in partitions)
        return self._read_pieces(positions, columns, with_chunks=all(each.last_chunk_position < 0 for each in ledgers))

    def _read_pieces(
        self, positions: Sequence[PositionRange], columns: Sequence[str] | None, *, with_chunks: bool
    ) -> DataFrame:
        return read_pieces(
            self._spark,
            self._topic,
            find_pieces(self.ledgers, self._topic, positions),
            columns,
            self._with_payload,
            without=self.ledgers.foreign_files(self._topic.topic_id),
            with_chunks=with_chunks,
        )
