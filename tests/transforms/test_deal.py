"""Candidates dealt out over turns, and what is said of those who got nothing."""

from pulsar_spark.transforms.deal import deal_nothing, deal_out
from pulsar_spark.transforms.offer import offer_candidates
from pulsar_spark.transforms.turns import line_up
from tests.transforms.rows import ROUND, ack, before_the_offer, held, limits, pending, turns, unread


def dealt(spark, *rows: dict) -> list[tuple]:
    """Ranges of the new state: first, last, status, consumer, round, messages given, and those of them met before."""
    found = deal_out(line_up(offer_candidates(before_the_offer(spark, *rows))))
    names = ("first", "last", "status", "consumer_id", "delivery_round", "given", "given_again")
    return [tuple(row[name] for name in names) for row in found.where("fact IS NULL").orderBy("first").collect()]


def test_where_a_turn_covers_a_stretch_its_consumer_gets_it(spark):
    """What nobody takes of replay stays, of what is unread there is no row; what was met before is told apart."""
    assert dealt(
        spark,
        limits(1, permits=6, read_position=8),
        *turns(1, a=4, b=2),
        held(1, 0, 1, "replay"),
        pending(1, 2, 2, "b"),
        unread(1, 5, 20, batch_size=1),
    ) == [
        (0, 1, "pending", "a", ROUND, 2, 2),
        (2, 2, "pending", "b", 3, 0, 0),
        (5, 6, "pending", "a", ROUND, 2, 2),
        (7, 8, "pending", "b", ROUND, 2, 1),
    ]
    assert dealt(spark, limits(1, permits=1), *turns(1, a=1), held(1, 0, 4, "replay")) == [
        (0, 0, "pending", "a", ROUND, 1, 0),
        (1, 4, "replay", None, None, 0, 0),
    ]


def test_a_line_is_dealt_out_to_its_own_consumer(spark):
    one, other = ({**turns(1, **{name: 2})[0], "line": name} for name in "ab")
    assert dealt(
        spark,
        limits(1, permits=4),
        one,
        {**other, "first": 1, "last": 1},
        unread(1, 0, 2, line="a"),
        unread(1, 3, 3, line="b"),
        unread(1, 4, 9, line="c"),
    ) == [(0, 1, "pending", "a", ROUND, 2, 0), (3, 3, "pending", "b", ROUND, 1, 0)]


def test_where_nothing_is_on_offer_all_stays_and_everybody_is_told_so(spark):
    rows = [limits(1), *turns(1, a=5, b=0), pending(1, 0, 3), ack(1, 1, 1)]
    found = deal_nothing(before_the_offer(spark, *rows)).orderBy("first").collect()
    ranges = [(row["first"], row["last"], row["status"]) for row in found if row["fact"] is None]
    assert ranges == [(0, 0, "pending"), (1, 1, "acknowledged"), (2, 3, "pending")]
    said = {row["fact"]["consumer_id"]: row["fact"]["permits"] for row in found if row["fact"] is not None}
    assert said == {"a": 5, "b": 0, None: None}
    assert {(row["delivered"], row["redelivered"]) for row in found} == {(0, 0)}
