"""Cumulative acknowledgement: everything up to an entry."""

import pytest

from tests.spec.history import check
from tests.spec.table import Case

CASES = [
    Case(
        "everything up to an entry",
        source="3.17, 3.18, golden h1",
        says="""
        Mark-delete goes to the entry and on over holes that adjoin; holes below vanish; a position at or below mark-delete changes nothing.""",
        table="""
        | s | publish | requests                                       | delivered | refused | mark-delete | acked | pending         |
        | 0 | 1*10    | A subscribe Exclusive; A flow 99               | A 0-9     |         | -1          | none  | A 0-9           |
        | 1 |         | A ack 2; A ack 5; A ack 8                      |           |         | -1          | 2 5 8 | A 0-1 3-4 6-7 9 |
        | 2 |         | A cumulative 3                                 |           |         | 3           | 5 8   | A 4 6-7 9       |
        | 3 |         | A cumulative 1 receipt; A cumulative 3 receipt |           |         | 3           | 5 8   | A 4 6-7 9       |
        | 4 |         | A cumulative 4                                 |           |         | 5           | 8     | A 6-7 9         |
        | 5 |         | A cumulative 9                                 |           |         | 9           | none  | none            |
    """,
    ),
    Case(
        "refused on shared",
        source="2.5, golden k1",
        says="""
        Shared has no order to acknowledge up to: refused where a receipt is asked for, passed over where not.""",
        table="""
        | s | publish | requests                               | delivered | refused                                    | mark-delete | pending |
        | 0 | 1*3     | A subscribe Shared; A flow 99          | A 0-2     |                                            | -1          | A 0-2   |
        | 1 |         | A cumulative 1 receipt; A cumulative 2 |           | A CumulativeAcknowledgementNotAllowedError | -1          | A 0-2   |
    """,
    ),
    Case(
        "not beyond the end",
        source="3.18, golden h1",
        says="""
        An entry that does not exist cannot be acknowledged up to.""",
        table="""
        | s | publish | requests                                | delivered | refused          | mark-delete |
        | 0 | 1*3     | A subscribe Failover; A flow 99         | A 0-2     |                  | -1          |
        | 1 |         | A cumulative 3 receipt; A cumulative 50 |           | A InvalidMessage | -1          |
        | 2 |         | A cumulative 2 receipt                  |           |                  | 2           |
    """,
    ),
    Case(
        "beyond what was delivered",
        source="3.19",
        says="""
        Reading goes on behind mark-delete when a cumulative acknowledgement passes it.""",
        table="""
        | s | publish | requests                        | delivered | mark-delete | read |
        | 0 | 1*6     | A subscribe Exclusive; A flow 2 | A 0-1     | -1          | 2    |
        | 1 |         | A cumulative 3                  |           | 3           | 4    |
        | 2 |         | A flow 9                        | A 4-5     | 3           | 6    |
    """,
    ),
    Case(
        "up to the middle of a batch",
        source="3.4, 3.20",
        says="""
        The entries before are acknowledged; of the batch itself the later indexes are left.""",
        table="""
        | s | publish | requests                         | delivered  | mark-delete | pending    | unacked |
        | 0 | 1 1 4   | A subscribe Exclusive; A flow 99 | A 0-2      | -1          | A 0-2      | A 6     |
        | 1 |         | A cumulative 2 left 2,3          |            | 1           | A 2{2,3}   | A 2     |
        | 2 |         | A redeliver                      | A 2+1{2,3} | 1           | A 2+1{2,3} | A 2     |
        | 3 |         | A cumulative 2                   |            | 2           | none       | A 0     |
    """,
    ),
    Case(
        "what was given back dies with it",
        source="3.14, 0.20",
        says="""
        Exclusive and Failover keep pending entries, deadlines and counts here; a cumulative acknowledgement ends them for all that it covers.""",
        table="""
        | s | publish | requests                        | delivered | mark-delete | pending   | due | unacked |
        | 0 | 1*4     | A subscribe Failover; A flow 99 | A 0-3     | -1          | A 0-3     | none | A 4    |
        | 1 |         | A nack 0-1 after 2; A nack 3 after 2 |      | -1          | A 0-3     | 0@3 1@3 3@3 | A 4 |
        | 2 |         | A cumulative 2                  |           | 2           | A 3       | 3@3 | A 1     |
        | 3 |         |                                 | A 3+1     | 2           | A 3+1     | none | A 1    |
    """,
    ),
    Case(
        "a cumulative set takes the place of the kept one",
        source="3.20",
        says="""
        Pulsar does not intersect here: the set given counts if its first index is larger than that of the set kept, and not at all if it is not.""",
        table="""
        | s | publish | requests                         | delivered | mark-delete | pending    |
        | 0 | 6       | A subscribe Exclusive; A flow 99 | A 0       | -1          | A 0        |
        | 1 |         | A ack 0 left 0,4,5               |           | -1          | A 0{0,4,5} |
        | 2 |         | A cumulative 0 left 3,4,5        |           | -1          | A 0{3,4,5} |
        | 3 |         | A cumulative 0 left 2,3,4,5      |           | -1          | A 0{3,4,5} |
        | 4 |         | A cumulative 0 left 5            |           | -1          | A 0{5}     |
    """,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, history):
    check(case, history[case.name])
