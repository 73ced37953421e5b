"""Dead letters by redelivery count: what is given back too often is not shown again, but kept as a letter."""

import pytest

from tests.spec.history import check
from tests.spec.table import Case

CASES = [
    Case(
        "shown once more than the limit",
        source="4.26",
        says="""
        With a limit of 2 an entry is delivered with the counts 0, 1 and 2; the third return makes a letter of it and acknowledges it.""",
        table="""
        | s | publish | requests                           | delivered | letters | pending | mark-delete |
        | 0 | 1*2     | A subscribe Shared max 2; A flow 9 | A 0-1     | none    | A 0-1   | -1          |
        | 1 |         | A nack 0                           | A 0+1     | none    | A 0+1 1 | -1          |
        | 2 |         | A nack 0                           | A 0+2     | none    | A 0+2 1 | -1          |
        | 3 |         | A nack 0                           |           | 0+3     | A 1     | 0           |
        | 4 |         | A ack 1; A nack 0                  |           | 0+3     | none    | 1           |
    """,
    ),
    Case(
        "acknowledged in time",
        source="4.27",
        says="""
        Whoever acknowledges the last delivery saves the entry from becoming a letter, also in the round that gives it back.""",
        table="""
        | s | publish | requests                           | delivered | letters | pending | mark-delete |
        | 0 | 1*2     | A subscribe Shared max 1; A flow 9 | A 0-1     | none    | A 0-1   | -1          |
        | 1 |         | A nack 0-1                         | A 0-1+1   | none    | A 0-1+1 | -1          |
        | 2 |         | A ack 0; A nack 0-1                |           | 1+2     | none    | 1           |
    """,
    ),
    Case(
        "when it is due",
        source="4.26, 0.23",
        says="""
        A delayed negative acknowledgement kills when its time has come, not when it is asked for.""",
        table="""
        | s | publish | requests                           | delivered | letters | pending | due  |
        | 0 | 1       | A subscribe Shared max 1; A flow 9 | A 0       | none    | A 0     | none |
        | 1 |         | A redeliver                        | A 0+1     | none    | A 0+1   | none |
        | 2 |         | A nack 0 after 2                   |           | none    | A 0+1   | 0@4  |
        | 3 |         |                                    |           | none    | A 0+1   | 0@4  |
        | 4 |         |                                    |           | 0+2     | none    | none |
    """,
    ),
    Case(
        "a timeout counts as well",
        source="4.26, 4.14",
        says="""
        All that a consumer gives back without naming it, as an acknowledgement timeout does, is counted, and dies at the limit; younger
        ones do not.""",
        table="""
        | s | publish | requests                           | delivered   | letters | pending     |
        | 0 | 1*2     | A subscribe Shared max 1; A flow 9 | A 0-1       | none    | A 0-1       |
        | 1 | 1       | A redeliver                        | A 0-1+1 2   | none    | A 0-1+1 2   |
        | 2 |         | A redeliver                        | A 2+1       | 0-1+2   | A 2+1       |
    """,
    ),
    Case(
        "only what was named dies",
        source="2.12, 4.26, 0.20",
        says="""
        On Exclusive a return brings back everything that is not acknowledged; what comes along is not counted and does not die.""",
        table="""
        | s | publish | requests                              | delivered   | letters | pending     | mark-delete |
        | 0 | 1*4     | A subscribe Exclusive max 1; A flow 9 | A 0-3       | none    | A 0-3       | -1          |
        | 1 |         | A nack 1                              | A 0 1+1 2-3 | none    | A 0 1+1 2-3 | -1          |
        | 2 |         | A nack 1; A flow 9                    | A 0 2-3     | 1+2     | A 0 2-3     | -1          |
        | 3 |         | A ack 0                               |             | 1+2     | A 2-3       | 1           |
    """,
    ),
    Case(
        "on failover too",
        source="0.20, against 4.21",
        says="""
        Counts are kept on every type, so the limit holds on every type.""",
        table="""
        | s | publish | requests                             | delivered | letters | pending | mark-delete |
        | 0 | 1       | A subscribe Failover max 1; A flow 9 | A 0       | none    | A 0     | -1          |
        | 1 |         | A redeliver                          | A 0+1     | none    | A 0+1   | -1          |
        | 2 |         | A redeliver                          |           | 0+2     | none    | 0           |
    """,
    ),
    Case(
        "each message of a batch",
        source="4.27",
        says="""
        A batch leaves one letter for each of its messages that is not acknowledged.""",
        table="""
        | s | publish | requests                            | delivered    | letters       | pending    | mark-delete |
        | 0 | 4 2     | A subscribe Shared max 1; A flow 99 | A 0-1        | none          | A 0-1      | -1          |
        | 1 |         | A ack 0 left 1,3; A nack 0          | A 0+1{1,3}   | none          | A 0+1{1,3} 1 | -1        |
        | 2 |         | A nack 0-1                          | A 1+1        | 0+2{1,3}      | A 1+1      | 0           |
        | 3 |         | A redeliver                         |              | 0+2{1,3} 1+2{0,1} | none   | 1           |
    """,
    ),
    Case(
        "closing is no redelivery",
        source="4.21, 2.19",
        says="""
        Entries of a consumer that leaves come back uncounted, however often; their counts and the limit stay.""",
        table="""
        | s | publish | requests                           | delivered | letters | pending | replay |
        | 0 | 1       | A subscribe Shared max 1; A flow 9 | A 0       | none    | A 0     | none   |
        | 1 |         | A nack 0                           | A 0+1     | none    | A 0+1   | none   |
        | 2 |         | A close                            |           | none    | none    | 0+1    |
        | 3 |         | B subscribe Shared; B flow 9       | B 0+1     | none    | B 0+1   | none   |
        | 4 |         | B nack 0                           |           | 0+2     | none    | none   |
    """,
    ),
    Case(
        "without a policy nothing dies",
        source="4.26",
        says="""
        A subscription none of whose consumers brought a dead letter policy redelivers without end.""",
        table="""
        | s | publish | requests                     | delivered | letters | pending |
        | 0 | 1       | A subscribe Shared; A flow 9 | A 0       | none    | A 0     |
        | 1 |         | A nack 0                     | A 0+1     | none    | A 0+1   |
        | 2 |         | A nack 0                     | A 0+2     | none    | A 0+2   |
    """,
    ),
    Case(
        "in the middle of a run",
        source="4.26, 3.17",
        says="""
        Entries that died are acknowledged one by one, and mark-delete runs over them when it gets there.""",
        table="""
        | s | publish | requests                            | delivered | letters | pending   | acked | mark-delete |
        | 0 | 1*5     | A subscribe Shared max 1; A flow 99 | A 0-4     | none    | A 0-4     | none  | -1          |
        | 1 |         | A nack 1-3                          | A 1-3+1   | none    | A 0 1-3+1 4 | none | -1         |
        | 2 |         | A nack 1; A nack 3                  |           | 1+2 3+2 | A 0 2+1 4 | 1 3   | -1          |
        | 3 |         | A ack 0; A ack 2                    |           | 1+2 3+2 | A 4       | none  | 3           |
    """,
    ),
    Case(
        "of every partition",
        source="0.5",
        says="""
        The letters of a subscription's partitions go to one topic.""",
        partitions=2,
        table="""
        | s | publish | requests                           | delivered     | letters       |
        | 0 | 1       | A subscribe Shared max 1; A flow 9 | A p0:0 p1:0   | none          |
        | 1 |         | A redeliver                        | A p0:0+1 p1:0+1 | none        |
        | 2 |         | A redeliver                        |               | p0:0+2 p1:0+2 |
    """,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, history):
    check(case, history[case.name])
