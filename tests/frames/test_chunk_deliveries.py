"""Chunked messages of a delivery, before Spark reads them: which chunks they are, and which cannot be put together."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from deltalake import DeltaTable

from pulsar_spark.errors import MessagesLost, UnreadableMessage
from pulsar_spark.frames.deliveries import chunk_deliveries
from pulsar_spark.frames.deliveries.chunk_deliveries import ChunkedMessage, across, apart, find_parts, find_usable
from pulsar_spark.frames.deliveries.delivery import Delivery
from pulsar_spark.frames.deliveries.remaining import remaining
from pulsar_spark.frames.reading.chunk_payloads import Parts
from pulsar_spark.storage.chunks.chunks import ChunkedMessages
from pulsar_spark.storage.entries.entries import EntryReader
from pulsar_spark.storage.entries.slices import PositionRange
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.topics import create_topic, read_topic
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.arriving import arrive

ENTRIES = ("A:0:2", "B:0:3", "plain", "A:0:2", "B:1:3", "B:1:3", "A:1:2", "B:2:3")
A, B = ChunkedMessage(0, 3, 6), ChunkedMessage(0, 1, 7)


class Served:
    """A topic of two partitions, the first of which has :data:`ENTRIES`, that say how large they are."""

    def __init__(self, broker: PlainBroker, sizes: tuple[int, int] = (10, 15)):
        create_topic(broker.layout, "t", 2)
        for entry in ENTRIES:
            arrive(broker, "t", entry, partition=0, total_chunk_msg_size=sizes["B" in entry])
        self.topic, self.ledgers = read_topic(broker.layout, "t"), LedgerIndex(broker.layout)
        self.delivery = Delivery(
            "t",
            self.topic.topic_id,
            "s",
            "c",
            1,
            (PositionRange(0, 2, 2), PositionRange(0, 6, 7, redelivery_count=1)),
            chunked=((0, 3, 6), (0, 1, 7)),
        )

    def file_of(self, position: int) -> Path:
        (run,) = self.ledgers.runs(self.topic.topic_id, 0, position, position)
        return self.topic.path / run.path


@pytest.fixture
def broker(tmp_path):
    with PlainBroker(tmp_path / "root") as broker:
        yield broker


def test_the_chunks_of_what_was_delivered_are_those_the_rule_takes(spark, broker):
    served = Served(broker)
    plain, chunked = apart(served.delivery)
    assert plain.ranges == (PositionRange(0, 2, 2),) and plain.chunked == ()
    assert chunked == [A._replace(redelivery_count=1), B._replace(redelivery_count=1)]
    (parts,) = find_parts(spark, served.topic, served.ledgers, chunked)
    places = list(zip(parts.positions.tolist(), parts.lasts.tolist()))
    assert (parts.partition, places) == (0, [(3, 6), (6, 6), (1, 7), (4, 7), (7, 7)])
    assert find_usable(spark, served.topic, served.ledgers, chunked)[1:] == ([], {})
    assert remaining(spark, served.topic, served.ledgers, served.delivery).ranges == served.delivery.ranges


def test_a_message_is_apart_only_while_it_is_in_the_delivery(broker):
    served = Served(broker)
    plain, chunked = apart(replace(served.delivery, ranges=(PositionRange(0, 7, 7), PositionRange(1, 6, 6))))
    assert (plain.ranges, chunked) == ((PositionRange(1, 6, 6),), [B])


def test_ranges_are_read_as_one_across_chunks_alone():
    """Not across other messages, and not those of which something else is said."""
    chunks = [Parts.of(0, {3: np.array([2, 3]), 6: np.array([6])}), Parts.of(1, {3: np.array([2, 3])})]
    ranges = [PositionRange(0, 4, 5), PositionRange(0, 0, 1), PositionRange(0, 7, 8), PositionRange(0, 10, 11)]
    assert across(ranges, chunks) == (PositionRange(0, 0, 8), PositionRange(0, 10, 11))
    for other in (PositionRange(0, 4, 5, 1), PositionRange(0, 4, 5, 0, (1,), 2), PositionRange(1, 4, 5)):
        assert across([ranges[1], other], chunks) == (ranges[1], other)
    assert len(across([PositionRange(2, 0, 1), PositionRange(2, 4, 5)], chunks)) == 2


def test_what_is_larger_than_is_asked_for_is_not_put_together(broker):
    """Whatever its chunks say."""
    served = Served(broker, sizes=(None, None))
    chunked = ChunkedMessages(
        served.topic.path, EntryReader(), partial(served.ledgers.spans_of, served.topic.topic_id, 0)
    )
    assert chunked.joined(np.array([3, 6]), 10) == b"A:0:2A:1:2"
    with pytest.raises(UnreadableMessage, match="its chunks have more than 9 bytes together"):
        chunked.joined(np.array([3, 6]), 9)


def test_one_of_which_a_chunk_was_deleted_is_deleted(spark, broker):
    served = Served(broker)
    DeltaTable(str(served.topic.path)).delete("uuid = 'A' AND chunk_id = 0")
    assert find_usable(spark, served.topic, served.ledgers, [A, B])[1:] == ([(0, 6)], {})
    found = remaining(spark, served.topic, served.ledgers, served.delivery)
    assert [(range_.first, range_.last) for range_ in found.ranges] == [(2, 2), (7, 7)]
    assert (found.deleted, found.deleted_messages, found.lost, found.error) == ([(0, 6, 6)], 1, [], None)


def test_one_of_which_a_chunk_is_lost_is_an_error(spark, broker):
    served = Served(broker)
    served.file_of(4).unlink()
    (parts,) = find_parts(spark, served.topic, served.ledgers, [B])
    assert parts.positions.tolist() == [1, 5, 7], "a repeat of it is there"
    served.file_of(1).unlink()
    found = remaining(spark, served.topic, served.ledgers, served.delivery)
    assert [(range_.first, range_.last) for range_ in found.ranges] == [(2, 2), (6, 6)]
    assert (found.deleted, found.lost) == ([], [(0, 7, 7)]) and isinstance(found.error, MessagesLost)


def test_one_whose_chunks_do_not_add_up_is_an_error(spark, broker, monkeypatch):
    """Or that is too large for a row of Spark."""
    served = Served(broker, sizes=(11, 15))
    usable = find_usable(spark, served.topic, served.ledgers, [A, B])
    assert [*usable.errors] == [(0, 6)] and usable.deleted == []
    text = "ends at position 6 of partition 0 cannot be put together: its chunks have 10 bytes together, and one"
    assert isinstance(usable.errors[0, 6], UnreadableMessage) and text in str(usable.errors[0, 6])
    arrive(broker, "t", "A:0:2", partition=0, total_chunk_msg_size=9)
    arrive(broker, "t", "A:1:2", partition=0, total_chunk_msg_size=10)
    other = ChunkedMessage(0, 8, 9)
    usable = find_usable(spark, served.topic, LedgerIndex(broker.layout), [other])
    assert [*usable.errors] == [(0, 9)], "any of its chunks may say so"
    monkeypatch.setattr(chunk_deliveries, "MOST_BYTES", 14)
    usable = find_usable(spark, served.topic, served.ledgers, [A, B])
    assert [*usable.errors] == [(0, 6), (0, 7)] and "15 bytes are more than a row" in str(usable.errors[0, 7])
