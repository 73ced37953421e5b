"""What a function's answer means for the ranges of a delivery."""

import pickle
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from pulsar_spark.errors import InvalidMessage
from pulsar_spark.frames.deliveries.delivery import Acknowledged, Answer, Delivery, PutOff, answer, left_of
from pulsar_spark.frames.deliveries.named_entries import NamedEntries
from pulsar_spark.storage.entries.slices import PositionRange

SINGLES = PositionRange(0, 10, 19)
BATCHES = PositionRange(1, 0, 4, batch_size=4)
DELIVERY = Delivery("t", "t-1", "s", "c", 7, (SINGLES, BATCHES))


def outcomes(spark, *rows):
    return spark.createDataFrame(list(rows), "partition int, position long, batch_index int, outcome string")


def test_no_frame_acknowledges_everything():
    assert answer(DELIVERY, None) == Answer([Acknowledged(0, 10, 19), Acknowledged(1, 0, 4)], [])


def test_rows_decide_and_the_rest_is_acknowledged(spark):
    back = "negative_acknowledge"
    result = outcomes(
        spark,
        (0, 12, None, back),
        (0, 13, None, back),
        (0, 19, None, back),
        (0, 15, None, "acknowledge"),
        (1, 2, 1, back),
        (1, 2, 3, back),
    )
    assert answer(DELIVERY, result) == Answer(
        [
            Acknowledged(0, 10, 11),
            Acknowledged(0, 14, 18),
            Acknowledged(1, 0, 1),
            Acknowledged(1, 3, 4),
            Acknowledged(1, 2, 2, (0b1010,)),
        ],
        [SINGLES._replace(first=12, last=13), SINGLES._replace(first=19, last=19), BATCHES._replace(first=2, last=2)],
    )


def test_rows_put_off_are_acknowledged_by_their_own_requests_first(spark):
    """Of a batch the messages named, or all that were delivered; beside what is given back."""
    off, back = "reconsume_later", "negative_acknowledge"
    partly = BATCHES._replace(first=5, last=5, ack_set=(0b0110,))
    result = outcomes(
        spark,
        (0, 13, None, off),
        (0, 11, None, off),
        (0, 12, None, back),
        (1, 2, 1, off),
        (1, 2, 3, back),
        (1, 5, None, off),
    ).selectExpr("*", "if(position = 13, 500, null) delay_ms")
    assert answer(replace(DELIVERY, ranges=(SINGLES, BATCHES, partly)), result) == Answer(
        [
            Acknowledged(0, 10, 11),
            Acknowledged(0, 13, 19),
            Acknowledged(1, 0, 1),
            Acknowledged(1, 3, 4),
            Acknowledged(1, 2, 2, (0b1000,)),
            Acknowledged(1, 5, 5),
        ],
        [SINGLES._replace(first=12, last=12), BATCHES._replace(first=2, last=2)],
        (PutOff(0, 11, None, 0), PutOff(0, 13, None, 500), PutOff(1, 2, 1, 0), PutOff(1, 5, 1, 0), PutOff(1, 5, 2, 0)),
    )


def test_named_entries_are_acknowledged_by_their_round_where_no_row_decides(spark):
    """Rows decide in partition 0 alone: its entries are made ranges. Each round of partition 1 is one request."""
    at = [(0, (2, 3, 4, 9), 6), (1, (0, 2, 4), 6), (1, (7, 9), 6), (1, (10, 14, 20), 7)]
    entries = tuple(
        NamedEntries(PositionRange(partition, each[0], each[-1]), np.array(each), round)
        for partition, each, round in at
    )
    assert replace(DELIVERY, ranges=entries).messages == 12
    assert answer(replace(DELIVERY, ranges=entries), outcomes(spark, (0, 3, None, "negative_acknowledge"))) == Answer(
        [
            Acknowledged(1, 0, 9, None, 6),
            Acknowledged(1, 10, 20, None, 7),
            Acknowledged(0, 2, 2),
            Acknowledged(0, 4, 4),
            Acknowledged(0, 9, 9),
        ],
        [PositionRange(0, 3, 3)],
    )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((0, 20, None, "negative_acknowledge"), "not delivered"),
        ((2, 12, None, "negative_acknowledge"), "not delivered"),
        ((0, 20, None, "reconsume_later"), "not delivered"),
        ((0, 12, None, "later"), "'later'"),
        ((0, 12, None, None), "None"),
    ],
)
def test_wrong_outcomes_are_refused(spark, row, message):
    with pytest.raises(InvalidMessage, match=message):
        answer(DELIVERY, outcomes(spark, row))


def test_a_frame_without_outcomes_is_refused(spark):
    with pytest.raises(InvalidMessage, match="lacks"):
        answer(DELIVERY, spark.range(1))


def test_a_frame_that_is_not_sparks_is_refused_and_acknowledges_nothing():
    table = pa.table({"position": [1], "outcome": ["negative_acknowledge"]})
    for frame in (table, table.to_pandas()):
        with pytest.raises(InvalidMessage, match="return a Spark DataFrame"):
            answer(DELIVERY, frame)
    assert answer(DELIVERY, [5]) == answer(DELIVERY, None)


def test_left_of_takes_out_overlapping_holes():
    assert [part[1:3] for part in left_of([PositionRange(0, 0, 9)], [(5, 5), (4, 6), (9, 30), (-3, 0)])] == [
        (1, 3),
        (7, 8),
    ]
    assert left_of([PositionRange(0, 3, 4)], [(0, 9)]) == []


def test_a_delivery_says_what_it_is_and_is_no_tuple():
    assert repr(DELIVERY) == (
        f"Delivery(topic='t', subscription='s', round=7, messages={DELIVERY.messages}, partitions=[0, 1])"
    )
    assert "<td>7</td>" in DELIVERY._repr_html_()
    assert not isinstance(DELIVERY, tuple) and not hasattr(DELIVERY, "count") and not hasattr(DELIVERY, "index")
    assert replace(DELIVERY) == DELIVERY and hash(replace(DELIVERY)) == hash(DELIVERY)
    assert pickle.loads(pickle.dumps(DELIVERY)) == DELIVERY and DELIVERY.merged(DELIVERY).ranges == DELIVERY.ranges * 2
    with pytest.raises(AttributeError):
        DELIVERY.round = 8
