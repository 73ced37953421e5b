"""The broker's own limit of unacknowledged messages, over all its Shared subscriptions: here of 40, of which a
subscription's share is 6.

A round looks at what it leaves behind, so what it finds holds from the next one on.
"""

import pytest

from tests.spec.history import check
from tests.spec.table import Case

OPTIONS = {"max_unacked_messages_per_broker": 40}

CASES = [
    Case(
        "who holds more than its share",
        source="4.5",
        says="""
        At the limit those that hold more than their share get nothing new; others go on until they do. Below half of the limit all go on.""",
        table="""
 | s | publish | requests | delivered | unacked | blocked |
|0|1*60|A subscribe Shared; A flow 29; big/B subscribe Shared; big/B flow 6; small/C subscribe Shared; small/C flow 4|A 0-28; big/B 0-5; small/C 0-3|A 29|none|
 | 1 | | A flow 9; big/B flow 1 | A 29-37; big/B 6 | A 38 | broker |
 | 2 | | A flow 9; big/B flow 9; small/C flow 2 | small/C 4-5 | A 38 | broker |
 | 3 | | small/C flow 1 | small/C 6 | A 38 | broker |
 | 4 | | small/C flow 1 | | A 38 | broker |
 | 5 | | A ack 0-31 | | A 6 | broker |
 | 6 | | A ack 32 | | A 5 | none |
 | 7 | | | A 38-46; big/B 7-15; small/C 7 | A 14 | none |
    """,
    ),
    Case(
        "at the limit itself",
        source="4.5",
        says="""
        The limit is reached by so many messages, a batch counts with all of its own; it is left below its half.""",
        table="""
 | s | publish | requests | delivered | unacked | blocked |
 | 0 | 1*38 | A subscribe Shared; A flow 38 | A 0-37 | A 38 | none |
 | 1 | 2 1 | A flow 2 | A 38 | A 40 | broker |
 | 2 | | A flow 1; A ack 0-18; A ack 38 left 0 | | A 20 | broker |
 | 3 | | A ack 38 | | A 19 | none |
 | 4 | | | A 39 | A 20 | none |
    """,
    ),
    Case(
        "below half of its share",
        source="4.5",
        says="""
        One that falls below half of its share goes on by itself, and is held back again when it holds more than all of it.""",
        table="""
 | s | publish | requests | delivered | unacked | blocked |
 | 0 | 1*60 | A subscribe Shared; A flow 20; other/B subscribe Shared; other/B flow 20 | A 0-19; other/B 0-19 | A 20 | broker |
 | 1 | | A ack 0-16; A flow 5 | | A 3 | broker |
 | 2 | | A ack 17 | | A 2 | none |
 | 3 | | other/B flow 1 | A 20-24 | A 7 | broker |
 | 4 | | A flow 1 | | A 7 | broker |
    """,
    ),
    Case(
        "replay goes out to those held back",
        source="4.5",
        says="""
        Only new entries are held back: what comes again is delivered, to whomever.""",
        table="""
 | s | publish | requests | delivered | unacked | blocked |
 | 0 | 1*50 | A subscribe Shared; A flow 40 | A 0-39 | A 40 | broker |
 | 1 | | A flow 9; A nack 5 | A 5+1 | A 40 | broker |
 | 2 | | B subscribe Shared; B flow 99; A close | B 0-4 5+1 6-39 | B 40 | broker |
 | 3 | | B ack 0-39 | | B 0 | none |
 | 4 | | | B 40-49 | B 10 | none |
    """,
    ),
    Case(
        "two limits",
        source="4.5",
        says="""
        A subscription's own limit and the broker's hold it back each by itself, and each has its own half.""",
        table="""
 | s | publish | requests | delivered | unacked | blocked |
 | 0 | 1*60 | policy max_unacked_messages_per_subscription 20; A subscribe Shared; A flow 99; other/B subscribe Shared; other/B flow 15 | A 0-19; other/B 0-14 | A 20 | subscription |
 | 1 | | other/B flow 5 | other/B 15-19 | A 20 | subscription broker |
 | 2 | | A ack 0-10 | | A 9 | broker |
 | 3 | | other/B ack 0-10 | | A 9 | none |
 | 4 | | other/B flow 11 | A 20-30; other/B 20-30 | A 20 | subscription broker |
 | 5 | | other/B ack 11-30 | | A 20 | subscription broker |
 | 6 | | A ack 11-17 | | A 13 | subscription |
 | 7 | | A ack 18-21 | A 31-41 | A 20 | subscription |
    """,
    ),  # noqa: E501
    Case(
        "held back by the broker alone",
        source="4.5",
        says="""
        When the broker goes on, so does a subscription that holds more than half of its own limit without having reached it.""",
        table="""
 | s | publish | requests | delivered | unacked | blocked |
 | 0 | 1*60 | policy max_unacked_messages_per_subscription 20; A subscribe Shared; A flow 12; other/B subscribe Shared; other/B flow 20 | A 0-11; other/B 0-19 | A 12 | none |
 | 1 | | third/C subscribe Shared; third/C flow 8 | third/C 0-7 | A 12 | broker |
 | 2 | | A flow 1; other/B ack 0-19 | | A 12 | broker |
 | 3 | | third/C ack 0 | | A 12 | none |
 | 4 | | | A 12 | A 13 | none |
    """,
    ),  # noqa: E501
    Case(
        "exclusive is left alone",
        source="4.5",
        says="""
        What Exclusive and Failover subscriptions hold does not count, and does not hold them back.""",
        table="""
 | s | publish | requests | delivered | unacked | blocked |
 | 0 | 1*60 | A subscribe Exclusive; A flow 50; other/B subscribe Shared; other/B flow 39 | A 0-49; other/B 0-38 | A 50 | none |
 | 1 | | A flow 1; other/B flow 1 | A 50; other/B 39 | A 51 | none |
 | 2 | | A flow 1; other/B flow 1 | A 51 | A 52 | none |
    """,
    ),
    Case(
        "deliveries too large for limits",
        source="4.5; design 4, DataFrame consumers",
        says="""
        A subscription with a consumer that knows no limits neither counts nor is held back.""",
        table="""
 | s | publish | requests | delivered | unacked | blocked |
 | 0 | 1*60 | A subscribe Shared limit 0; A flow 50; other/B subscribe Shared; other/B flow 39 | A 0-49; other/B 0-38 | A 50 | none |
 | 1 | | A flow 1; other/B flow 1 | A 50; other/B 39 | A 51 | none |
 | 2 | | A flow 1; other/B flow 1 | A 51 | A 52 | none |
    """,
    ),
    Case(
        "a type that knows no limits comes instead",
        source="4.5, 2.1",
        says="""
        When the last consumer leaves nothing is held back any more: one of another type gets new entries at once.""",
        table="""
 | s | publish | requests | delivered | pending | blocked |
 | 0 | 1*50 | A subscribe Shared; A flow 40 | A 0-39 | A 0-39 | broker |
 | 1 | | A close; B subscribe Exclusive; B flow 99 | B 0-49 | B 0-49 | none |
    """,
    ),
]


@pytest.mark.default
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, history):
    check(case, history[case.name])
