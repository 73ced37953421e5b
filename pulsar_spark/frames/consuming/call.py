"""Call a consumer's function with a delivery, and turn its return value or error into a reply."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.frames.consuming.letters import FrameLetters
from pulsar_spark.frames.deliveries.chunk_deliveries import ChunkedMessage, across, apart, read_chunked
from pulsar_spark.frames.deliveries.delivery import Answer, Delivery, answer
from pulsar_spark.frames.deliveries.named_entries import exact
from pulsar_spark.frames.deliveries.published_files import read_published
from pulsar_spark.frames.deliveries.scattered_reads import (
    MOST_KINDS,
    Scattered,
    are_scattered,
    only,
    scans_of,
    scattered,
)
from pulsar_spark.frames.deliveries.unreadable import (
    NOTHING,
    Unreadable,
    answered,
    find_unreadable,
    has_encoded,
    readable,
    stored_bytes,
    uncompressed_bytes,
)
from pulsar_spark.frames.given_frames import function_name
from pulsar_spark.frames.reading.chunk_payloads import Parts
from pulsar_spark.frames.reading.payloads import Decoding, plain_or_refused
from pulsar_spark.payloads.encoding import ENCODING_COLUMNS
from pulsar_spark.storage.entries.key_hashes import unhashed_keys
from pulsar_spark.storage.entries.slices import Piece, PositionRange, find_pieces, read_pieces
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.session import has_context
from pulsar_spark.storage.topics.topics import Topic
from pulsar_spark.table_specs import DELIVERED, HASH, KEY_COLUMNS, KEY_FLAGS
from pulsar_spark.transforms.sticky_keys import by_key, with_hash

ConsumeFunction = Callable[[DataFrame, Delivery], object]
_KEPT_BYTES, _KEPT_MESSAGE_BYTES = 256 << 20, 8 << 20
"""Spark keeps a decoded delivery until it is answered if the delivery and its largest message are at most this large,
stored and decompressed; each action decodes larger ones again. Spark holds several copies in memory, so larger limits
can end a small JVM."""


class Called(NamedTuple):
    """The reply to the broker, the requests that put messages off, and the function's error, after which everything is
    given back except unreadable messages."""

    reply: Answer
    letters: list[dict]
    error: BaseException | None
    unreadable: Unreadable = NOTHING


class Caller:
    """Calls *function* with deliveries of *topic*.

    The frame has *columns* (None: all, with *has_hash* also the sticky-key hash and the key flags), payloads as
    *decoding* says or none without *with_payload*, and with *sorted_by_key* rows in order of keys."""

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
        self._decoding, self._needed = decoding, wanted
        if wanted is not None and (sorted_by_key or HASH in wanted):  # each row needs its hash
            self._needed = list(dict.fromkeys([*wanted, HASH, *KEY_COLUMNS, *["batch_index"] * sorted_by_key]))

    def call(
        self, delivery: Delivery, letters: FrameLetters | None, make: Callable[..., dict], parts: Sequence[Parts] = ()
    ) -> Called:
        """Call the function with a delivery.

        *letters* are the consumer's, *parts* the chunks of its chunked messages. ``make(kind, partition, **columns)``
        makes a request."""
        unreadable, decoded = NOTHING, None
        try:
            if self._is_decoded(delivery):
                unreadable, decoded = self._look(delivery, parts)
            if unreadable.places:
                delivery = readable(delivery, unreadable)
            result = None
            if delivery.ranges:
                result = self.function(self._read(delivery, parts, None if unreadable.places else decoded), delivery)
            reply = answered(answer(delivery, result), unreadable, delivery)
            if not reply.put_off:
                return Called(reply, [], None, unreadable)
            if letters is None or not letters.is_retry_enabled:
                raise InvalidConfiguration("the outcomes put messages off: consume with retry_enable=True")
            return Called(reply, letters.rows(reply.put_off, make), None, unreadable)
        except BaseException as error:  # SystemExit, too: it must not end the thread silently
            error.add_note(f"raised by {function_name(self.function)} in round {delivery.round}")
            reply = Answer([], exact(delivery.ranges))
            return Called(answered(reply, unreadable, delivery), [], error, unreadable)
        finally:
            if decoded is not None:
                decoded.unpersist()

    def _look(self, delivery: Delivery, parts: Sequence[Parts]) -> tuple[Unreadable, DataFrame | None]:
        """Decode a delivery: its unreadable messages, and the decoded frame if it is kept."""
        is_kept = has_context(self._spark) and self._is_small(delivery)
        wanted = (self._needed or DELIVERED) if is_kept else ("payload",)
        columns = list(dict.fromkeys([*wanted, *ENCODING_COLUMNS, "batch_index"]))
        decoded = self._decoding.decoded(self._stored(delivery, parts, columns))
        kept = decoded.persist() if is_kept else None
        try:
            return find_unreadable(decoded, self._decoding, self._topic), kept
        except BaseException:
            if kept is not None:
                kept.unpersist()
            raise

    def _is_small(self, delivery: Delivery) -> bool:
        if stored_bytes(self._topic, self.ledgers, delivery) > _KEPT_BYTES:
            return False
        all_bytes, largest = uncompressed_bytes(self._topic, self.ledgers, delivery)
        return all_bytes <= _KEPT_BYTES and largest <= _KEPT_MESSAGE_BYTES

    def _is_decoded(self, delivery: Delivery) -> bool:
        is_wanted = self._with_payload and "payload" in (self._columns or DELIVERED)
        return is_wanted and has_encoded(self._topic, self.ledgers, delivery)

    def _read(self, delivery: Delivery, parts: Sequence[Parts], decoded: DataFrame | None) -> DataFrame:
        needed = self._needed
        messages = self._located(delivery, parts, needed) if decoded is None else self._plain(decoded, needed)
        if self._sorted_by_key:
            messages = by_key(messages)
        added = set(needed or ()).difference(self._columns or ())
        return messages.drop(*added) if added else messages

    def _located(self, delivery: Delivery, parts: Sequence[Parts], columns: Sequence[str] | None) -> DataFrame:
        if not self._is_decoded(delivery):
            return self._stored(delivery, parts, columns)
        stored = self._stored(delivery, parts, list(dict.fromkeys([*(columns or DELIVERED), *ENCODING_COLUMNS])))
        return self._plain(self._decoding.decoded(stored), columns)

    def _plain(self, decoded: DataFrame, columns: Sequence[str] | None) -> DataFrame:
        added = {*ENCODING_COLUMNS, "batch_index"}.difference(columns or DELIVERED)
        return plain_or_refused(decoded).drop(*added)

    def _stored(self, delivery: Delivery, parts: Sequence[Parts], columns: Sequence[str] | None) -> DataFrame:
        if delivery.chunked:
            delivery, chunked = apart(delivery)
            found = [] if not chunked else [self._chunked(chunked, parts, columns)]
            delivery = replace(delivery, ranges=across(exact(delivery.ranges), parts))
            found += [] if chunked and not delivery.ranges else [self._stored(delivery, (), columns)]
            return reduce(DataFrame.unionByName, found)
        kinds = scattered(delivery.ranges) if are_scattered(delivery.ranges) else []
        if not 1 <= len(kinds) <= MOST_KINDS:
            return self._at(exact(delivery.ranges), columns)
        return reduce(DataFrame.unionByName, (self._scattered(entries, columns) for entries in kinds))

    def _scattered(self, entries: Scattered, columns: Sequence[str] | None) -> DataFrame:
        scans = (self._at(ranges, columns, is_rough=True) for ranges in scans_of(entries))
        return only(self._spark, reduce(DataFrame.unionByName, scans), entries)

    def _hashed(self, messages: DataFrame, pieces: Sequence[Piece], columns: Sequence[str] | None) -> DataFrame:
        if HASH not in (columns or ()):
            return messages
        firsts: dict[int, int] = {}
        lasts: dict[int, int] = {}
        for piece in pieces:
            last = piece.first_position + piece.last_entry_id - piece.first_entry_id
            firsts[piece.partition] = min(firsts.get(piece.partition, last), piece.first_position)
            lasts[piece.partition] = max(lasts.get(piece.partition, last), last)
        ends = ((partition, first, lasts[partition]) for partition, first in firsts.items())
        runs = (run for range_ in ends for run in self.ledgers.runs(self._topic.topic_id, *range_))
        keys = unhashed_keys(self._topic.path, runs)
        return messages if keys is None else with_hash(messages, keys)

    def _chunked(
        self, messages: Sequence[ChunkedMessage], parts: Sequence[Parts], columns: Sequence[str] | None
    ) -> DataFrame:
        if self._with_payload and "payload" in (columns or DELIVERED):
            found = read_chunked(self._spark, self._topic, self.ledgers, messages, parts, columns)
            return with_hash(found) if HASH in (columns or ()) else found
        lasts = [PositionRange(each.partition, each.last, each.last, each.redelivery_count) for each in messages]
        return self._read_pieces(lasts, columns, with_chunks=True)

    def _at(
        self, positions: Sequence[PositionRange], columns: Sequence[str] | None, *, is_rough: bool = False
    ) -> DataFrame:
        partitions = {range_.partition for range_ in positions}
        lasts = (self.ledgers.last_chunk_position(self._topic.topic_id, partition) for partition in partitions)
        return self._read_pieces(positions, columns, with_chunks=all(last < 0 for last in lasts), is_rough=is_rough)

    def _read_pieces(
        self,
        positions: Sequence[PositionRange],
        columns: Sequence[str] | None,
        *,
        with_chunks: bool,
        is_rough: bool = False,
    ) -> DataFrame:
        pieces = find_pieces(self.ledgers, self._topic, positions)
        found = read_published(
            self._spark,
            self._topic,
            self.ledgers,
            positions,
            columns,
            self._with_payload,
            with_chunks=with_chunks,
            is_rough=is_rough,
        )
        if found is None:
            found = read_pieces(
                self._spark,
                self._topic,
                pieces,
                columns,
                self._with_payload,
                without=self.ledgers.foreign_files(self._topic.topic_id),
                with_chunks=with_chunks,
            )
        return self._hashed(found, pieces, columns)
