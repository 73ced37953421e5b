"""Where a subscription begins and moves to: a message lies where its last chunk lies, and seek to it means its
first."""

import pytest

from tests.spec.history import check
from tests.spec.table import Case

CASES = [
    Case(
        "seek to the first chunk",
        source="1.7",
        says="""
        Who seeks a chunked message seeks its first chunk, and gets it again as a whole.""",
        table="""
        | s | publish           | requests                        | delivered          | reset | mark-delete | read |
        | 0 | 1 A:0/2 1 A:1/2 1 | A subscribe Exclusive; A flow 9 | A 0 2 3[1,3] 4     |       | -1          | 5    |
        | 1 |                   | A cumulative 4                  |                    |       | 4           | 5    |
        | 2 |                   | A seek 1                        |                    | A     | 0           | 1    |
        | 3 |                   | A flow 9                        | A 2 3[1,3] 4       |       | 0           | 5    |
    """,
    ),
    Case(
        "seek in between",
        source="1.7, 3.26",
        says="""
        A message that ends behind the place sought is delivered, wherever it began; one that ends before it is not.""",
        table="""
        | s | publish                   | requests                        | delivered          | mark-delete | read |
        | 0 | A:0/2 B:0/2 A:1/2 1 B:1/2 | create Latest; seek 3           |                    | 0           | 3    |
        | 1 |                           | A subscribe Exclusive; A flow 9 | A 3 4[1,4]         | 0           | 5    |
        | 2 |                           | A ack 3-4                       |                    | 4           | 5    |
    """,
    ),
    Case(
        "seek with what is incomplete",
        source="1.7, 3.26, 0.25",
        says="""
        What is incomplete where the cursor moves is delivered when it is complete.""",
        table="""
        | s | publish   | requests                        | delivered    | reset | mark-delete | read |
        | 0 | A:0/2 1   | A subscribe Exclusive; A flow 9 | A 1          |       | -1          | 2    |
        | 1 |           | A seek latest                   |              | A     | -1          | 2    |
        | 2 | A:1/2     | A flow 9                        | A 2[0,2]     |       | -1          | 3    |
        | 3 |           | A ack 2                         |              |       | 2           | 3    |
    """,
    ),
    Case(
        "seek by time",
        source="3.26, 1.7",
        says="""
        By time the place sought is that of an entry; a message that ends there or behind is delivered.""",
        table="""
        | s | publish   | requests                        | delivered     | mark-delete |
        | 0 | A:0/2 1   | create Latest                   |               | -1          |
        | 1 | A:1/2     |                                 |               | -1          |
        | 2 | 1         | seek second 1                   |               | -1          |
        | 3 |           | A subscribe Shared; A flow 9    | A 2[0,2] 3    | -1          |
    """,
    ),
    Case(
        "a subscription that comes late",
        source="3.15, issue 12",
        says="""
        One that begins at the end, between two chunks, gets the message: it ends behind; those complete before it are not its own.""",
        table="""
        | s | publish       | requests                                                | delivered    | mark-delete | read |
        | 0 | A:0-1/2 B:0/2 |                                                         |              |             |      |
        | 1 |               | A subscribe Shared Latest; A flow 9                     |              | 1           | 3    |
        | 2 | B:1/2         |                                                         | A 3[2,3]     | 1           | 4    |
        | 3 |               | A ack 3                                                 |              | 3           | 4    |
    """,
    ),
    Case(
        "from the earliest",
        source="3.15",
        says="""
        One that begins at the start gets all that is complete, however much later.""",
        table="""
        | s | publish               | requests                       | delivered            | mark-delete | read |
        | 0 | A:0/2 1 A:1/2 B:0/2   |                                |                      |             |      |
        | 9 |                       | A subscribe Failover; A flow 9 | A 1 2[0,2]           | -1          | 4    |
        | 10 | B:1/2                | A ack 1-2                      | A 4[3,4]             | 2           | 5    |
    """,
    ),
    Case(
        "chunks are read past with permits",
        source="issue 12: an incomplete message costs nothing",
        says="""
        Nobody reads what nobody may have: chunks are passed on the way to what is delivered.""",
        table="""
        | s | publish             | requests                        | delivered    | mark-delete | read |
        | 0 | 1 A:0/2 A:0/2 1 1   | A subscribe Exclusive           |              | -1          | 0    |
        | 1 |                     | A flow 1                        | A 0          | -1          | 1    |
        | 2 |                     | A ack 0                         |              | 0           | 1    |
        | 3 |                     | A flow 1                        | A 3          | 1           | 4    |
        | 4 |                     | A ack 3; A flow 2               | A 4          | 1           | 5    |
        | 5 | A:1/2               |                                 | A 5[2,5]     | 1           | 6    |
    """,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, history):
    check(case, history[case.name])
