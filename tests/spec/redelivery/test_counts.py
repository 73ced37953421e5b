"""Redelivery counts, and the entries of consumers that leave. Counts are never lost (0.20)."""

import pytest

from tests.spec.history import check
from tests.spec.table import Case

CASES = [
    Case(
        "all of a consumer",
        source="4.21, golden k1",
        says="""
        Redeliver without naming entries gives back all that is pending at that consumer, and nothing of the others.""",
        table="""
        | s | publish | requests                     | delivered | pending        | replay |
        | 0 | 1*2     | A subscribe Shared; A flow 2 | A 0-1     | A 0-1          | none   |
        | 1 | 1*2     | B subscribe Shared; B flow 2 | B 2-3     | A 0-1; B 2-3   | none   |
        | 2 |         | A redeliver                  |           | B 2-3          | 0-1+1  |
        | 3 |         | A flow 2                     | A 0-1+1   | A 0-1+1; B 2-3 | none   |
    """,
    ),
    Case(
        "a consumer that leaves",
        source="2.19, golden k1",
        says="""
        Its entries come back and go to the others; that is no redelivery to count.""",
        table="""
        | s | publish | requests                     | delivered | pending      | replay | permits  |
        | 0 | 1*2     | A subscribe Shared; A flow 2 | A 0-1     | A 0-1        | none   | A 0      |
        | 1 | 1*2     | B subscribe Shared; B flow 2 | B 2-3     | A 0-1; B 2-3 | none   | A 0; B 0 |
        | 2 |         | A close                      |           | B 2-3        | 0-1    | B 0      |
        | 3 |         | B flow 3                     | B 0-1     | B 0-3        | none   | B 1      |
    """,
    ),
    Case(
        "the last consumer leaves",
        source="0.20, against 2.19 and golden k1",
        says="""
        Counts outlive the last consumer, also into a subscription of another type.""",
        table="""
        | s | publish | requests                       | delivered   | pending     | replay  |
        | 0 | 1*3     | A subscribe Shared; A flow 9   | A 0-2       | A 0-2       | none    |
        | 1 |         | A nack 0-1                     | A 0-1+1     | A 0-1+1 2   | none    |
        | 2 |         | A close                        |             | none        | 0-1+1 2 |
        | 3 |         | B subscribe Failover; B flow 9 | B 0-1+1 2   | B 0-1+1 2   | none    |
        | 4 |         | B redeliver                    | B 0-1+2 2+1 | B 0-1+2 2+1 | none    |
    """,
    ),
    Case(
        "given back unseen",
        source="0.20",
        says="""
        What a consumer gives back without the application having seen it comes again at once and uncounted, so nothing dies of it. Of
        several requests the last one counts; what asks for everything again is counted.""",
        table="""
        | s | publish | requests                                      | delivered   | letters | pending     | due  |
        | 0 | 1*3     | A subscribe Shared max 1; A flow 99           | A 0-2       | none    | A 0-2       | none |
        | 1 |         | A nack 0-1 unseen; A nack 2                   | A 0-1 2+1   | none    | A 0-1 2+1   | none |
        | 2 |         | A nack 0-2 unseen                             | A 0-1 2+1   | none    | A 0-1 2+1   | none |
        | 3 |         | A nack 0 after 9; A nack 0 unseen             | A 0         | none    | A 0-1 2+1   | none |
        | 4 |         | A nack 0-1 unseen; A nack 1 after 9           | A 0         | none    | A 0-1 2+1   | 1@13 |
        | 5 |         | A nack 0-2 unseen; A redeliver                | A 0-1+1     | 2+2     | A 0-1+1     | none |
    """,
    ),
    Case(
        "given back unseen where one is active",
        source="0.20, 2.12",
        says="""
        It comes again behind nothing that lies behind it.""",
        table="""
        | s | publish | requests                         | delivered | pending |
        | 0 | 1*3     | A subscribe Exclusive; A flow 99 | A 0-2     | A 0-2   |
        | 1 |         | A nack 1 unseen                  | A 0-2     | A 0-2   |
    """,
    ),
    Case(
        "a deadline does not outlive its holder",
        source="4.19",
        says="""
        When the consumer leaves before a negatively acknowledged entry is due, the entry comes back at once, uncounted.""",
        table="""
        | s | publish | requests                     | delivered | due  | pending | replay |
        | 0 | 1*2     | A subscribe Shared; A flow 9 | A 0-1     | none | A 0-1   | none   |
        | 1 |         | A nack 0 after 60            |           | 0@61 | A 0-1   | none   |
        | 2 |         | A close                      |           | none | none    | 0-1    |
    """,
    ),
    Case(
        "a client closes",
        source="design 4, step 2",
        says="""
        Closing a client closes all its consumers, on all subscriptions.""",
        table="""
        | s | publish | requests                                                                  | delivered      | replay | type   |
        | 0 | 1       | A subscribe Shared; A flow 9; other/A subscribe Exclusive; other/A flow 9 | A 0; other/A 0 | none   | Shared |
        | 1 |         | A leaves                                                                  |                | 0      | none   |
        | 2 |         | other/B subscribe Shared; other/B flow 9                                  | other/B 0      | 0      | none   |
    """,
    ),
    Case(
        "a count ends with its entry",
        source="4.21",
        says="""
        Acknowledging forgets the count; a seek back finds the entry as new.""",
        table="""
        | s | publish | requests                     | delivered | reset | pending |
        | 0 | 1       | A subscribe Shared; A flow 9 | A 0       |       | A 0     |
        | 1 |         | A nack 0                     | A 0+1     |       | A 0+1   |
        | 2 |         | A ack 0                      |           |       | none    |
        | 3 |         | A seek 0; A flow 9           | A 0       | A     | A 0     |
    """,
    ),
]


@pytest.mark.default
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, history):
    check(case, history[case.name])
