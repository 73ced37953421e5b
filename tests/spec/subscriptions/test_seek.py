"""Moving a subscription: seek, skip, clear, expire."""

import pytest

from tests.spec.history import check
from tests.spec.table import Case

CASES = [
    Case(
        "seek forgets what was before",
        source="3.26, recorded on 4.0.8: seek_resets_redelivery_and_pending",
        says="""
        The position sought is the next to be delivered. Holes, batch sets, pending entries and counts are forgotten; the consumers stay, without
        permits, and are told to forget what they have received.""",
        table="""
        | s | publish | requests                            | delivered | reset | mark-delete | acked | pending          | replay | permits |
        | 0 | 1*3 4 1 | A subscribe Shared; A flow 99       | A 0-4     |       | -1          | none  | A 0-4            | none   | A 91    |
        | 1 |         | A ack 1; A ack 3 left 2,3; A nack 4 | A 4+1     |       | -1          | 1     | A 0 2 3{2,3} 4+1 | none   | A 90    |
        | 2 |         | A seek 1                            |           | A     | 0           | none  | none             | none   | A 0     |
        | 3 |         | A flow 99                           | A 1-4     |       | 0           | none  | A 1-4            | none   | A 92    |
    """,
    ),
    Case(
        "the order of requests around a seek",
        source="design 4; 3.26",
        says="""
        Acknowledgements asked for before the seek belong to the old place and are void; what is asked after it, in the same round, holds.""",
        table="""
        | s | publish | requests                                              | delivered | reset | mark-delete | acked |
        | 0 | 1*5     | A subscribe Exclusive; A flow 5                       | A 0-4     |       | -1          | none  |
        | 1 |         | A cumulative 4; A flow 7; A seek 0; A ack 4; A flow 3 | A 0-2     | A     | -1          | 4     |
    """,
    ),
    Case(
        "seek to either end",
        source="3.26",
        says="""
        Earliest is before the first entry, latest behind the last; a position beyond the end is the end.""",
        table="""
        | s | publish | requests                        | delivered | reset | mark-delete | read |
        | 0 | 1*3     | A subscribe Exclusive; A flow 9 | A 0-2     |       | -1          | 3    |
        | 1 |         | A seek latest; A flow 9         |           | A     | 2           | 3    |
        | 2 |         | A seek earliest; A flow 9       | A 0-2     | A     | -1          | 3    |
        | 3 |         | A seek 77; A flow 9             |           | A     | 2           | 3    |
        | 4 | 1       |                                 | A 3       |       | 2           | 4    |
    """,
    ),
    Case(
        "seek by time",
        source="PersistentTopic.resetCursor, 3.26",
        says="""
        The first entry published at that time or later is the next; behind all of them when none is. Mark-delete is before it.""",
        table="""
        | s | publish | requests                        | delivered | reset | mark-delete | read |
        | 0 | 1*2     | A subscribe Exclusive; A flow 9 | A 0-1     |       | -1          | 2    |
        | 1 |         |                                 |           |       | -1          | 2    |
        | 2 | 1*2     |                                 | A 2-3     |       | -1          | 4    |
        | 3 |         | A seek second 1; A flow 9       | A 2-3     | A     | 1           | 4    |
        | 4 |         | A seek second 0; A flow 9       | A 0-3     | A     | -1          | 4    |
        | 5 |         | A seek second 3; A flow 9       |           | A     | 3           | 4    |
    """,
    ),
    Case(
        "seek leaves mark-delete before what was sought",
        source="3.26",
        says="""
        Whatever the target is, forward or back, over what is acknowledged or pending: the backlog begins with the entry sought.""",
        table="""
        | s | publish | requests                               | delivered | reset | mark-delete | read | acked | pending |
        | 0 | 1*6     | A subscribe Shared; A flow 4; A ack 4  | A 0-3     |       | -1          | 5    | 4     | A 0-3   |
        | 1 |         | A seek 4                               |           | A     | 3           | 4    | none  | none    |
        | 2 |         | A flow 1                               | A 4       |       | 3           | 5    | none  | A 4     |
        | 3 |         | A seek 5; A flow 9                     | A 5       | A     | 4           | 6    | none  | A 5     |
        | 4 |         | A seek 0                               |           | A     | -1          | 0    | none  | none    |
        | 5 |         | A seek latest                          |           | A     | 5           | 6    | none  | none    |
    """,
    ),
    Case(
        "seek over what waits to come again",
        source="3.26, 0.20",
        says="""
        What came back and was not delivered again is forgotten with its count: acknowledged before the position, never delivered from it on.""",
        table="""
        | s | publish | requests                             | delivered | reset | mark-delete | replay | pending |
        | 0 | 1*3     | A subscribe Shared; A flow 3         | A 0-2     |       | -1          | none   | A 0-2   |
        | 1 |         | A nack 0-2                           |           |       | -1          | 0-2+1  | none    |
        | 2 |         | A seek 1                             |           | A     | 0           | none   | none    |
        | 3 |         | A flow 9                             | A 1-2     |       | 0           | none   | A 1-2   |
    """,
    ),
    Case(
        "skip counts what is left",
        source="3.27",
        says="""
        Entries acknowledged before do not count; what is skipped is acknowledged, also where it is pending.""",
        table="""
        | s | publish | requests                     | delivered | mark-delete | acked | pending | read |
        | 0 | 1*8     | A subscribe Shared; A flow 4 | A 0-3     | -1          | none  | A 0-3   | 4    |
        | 1 |         | A ack 1                      |           | -1          | 1     | A 0 2-3 | 4    |
        | 2 |         | skip 2                       |           | 2           | none  | A 3     | 4    |
        | 3 |         | skip 3; A flow 9             | A 6-7     | 5           | none  | A 6-7   | 8    |
    """,
    ),
    Case(
        "skip behind an acknowledgement",
        source="3.27, design 4",
        says="""
        What was acknowledged earlier in the same round is acknowledged to a skip.""",
        table="""
        | s | publish | requests                     | delivered | mark-delete | acked | pending |
        | 0 | 1*6     | A subscribe Shared; A flow 6 | A 0-5     | -1          | none  | A 0-5   |
        | 1 |         | A ack 1-2; skip 2            |           | 3           | none  | A 4-5   |
        | 2 |         | skip 1; A ack 4              |           | 4           | none  | A 5     |
    """,
    ),
    Case(
        "clear takes all",
        source="3.27",
        says="""
        Everything published up to now is acknowledged.""",
        table="""
        | s | publish | requests                     | delivered | mark-delete | pending | read |
        | 0 | 1*8     | A subscribe Shared; A flow 4 | A 0-3     | -1          | A 0-3   | 4    |
        | 1 |         | clear; A flow 9              |           | 7           | none    | 8    |
        | 2 | 1       |                              | A 8       | 7           | A 8     | 9    |
    """,
    ),
    Case(
        "expire takes what is old",
        source="3.29",
        says="""
        Entries published longer ago than so many seconds, strictly, and everything before the newest of them.""",
        table="""
        | s | publish | requests                               | delivered | mark-delete |
        | 0 | 1*2     | create Earliest                        |           | -1          |
        | 1 | 1*2     |                                        |           | -1          |
        | 2 |         | expire 2                               |           | -1          |
        | 3 |         | expire 2                               |           | 1           |
        | 4 |         | expire 2; A subscribe Shared; A flow 9 |           | 3           |
    """,
    ),
    Case(
        "what does not exist",
        source="design 6",
        says="""
        Requests about a subscription that is not there are refused, by name, and create nothing.""",
        table="""
        | s | publish | requests              | delivered | refused                                                                            |
        | 0 | 1       | seek 0; skip 1; clear |           | admin SubscriptionNotFound; admin SubscriptionNotFound; admin SubscriptionNotFound |
    """,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, history):
    check(case, history[case.name])
