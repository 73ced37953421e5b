"""Individual acknowledgement: holes, mark-delete, and acknowledging what is not one's own."""

import pytest

from tests.spec.history import check
from tests.spec.table import Case

CASES = [
    Case(
        "holes and mark-delete",
        source="3.16, 3.17, golden h1",
        says="""
        Acknowledged entries above mark-delete are kept as ranges; mark-delete advances over the first contiguous run.""",
        table="""
        | s | publish | requests                      | delivered | mark-delete | acked | pending   |
        | 0 | 1*10    | A subscribe Shared; A flow 99 | A 0-9     | -1          | none  | A 0-9     |
        | 1 |         | A ack 3; A ack 1              |           | -1          | 1 3   | A 0 2 4-9 |
        | 2 |         | A ack 0                       |           | 1           | 3     | A 2 4-9   |
        | 3 |         | A ack 7-9                     |           | 1           | 3 7-9 | A 2 4-6   |
        | 4 |         | A ack 4; A ack 5; A ack 2     |           | 5           | 7-9   | A 6       |
        | 5 |         | A ack 6                       |           | 9           | none  | none      |
    """,
    ),
    Case(
        "acknowledging twice",
        source="3.16",
        says="""
        What is acknowledged already, above or below mark-delete, is left as it is; nobody is told off.""",
        table="""
        | s | publish | requests                                            | delivered | refused | mark-delete | acked |
        | 0 | 1*4     | A subscribe Shared; A flow 99                       | A 0-3     |         | -1          | none  |
        | 1 |         | A ack 0 receipt; A ack 2 receipt                    |           |         | 0           | 2     |
        | 2 |         | A ack 0 receipt; A ack 2 receipt; A ack 0-2 receipt |           |         | 2           | none  |
    """,
    ),
    Case(
        "acknowledging what another holds",
        source="3.11, golden k1",
        says="""
        Any consumer, even one that is not connected, may acknowledge an entry; the holder's unacknowledged messages become fewer.""",
        table="""
        | s | publish | requests                                          | delivered | mark-delete | pending | unacked  |
        | 0 | 1*3     | A subscribe Shared; A flow 99; B subscribe Shared | A 0-2     | -1          | A 0-2   | A 3; B 0 |
        | 1 |         | B ack 1; stranger ack 0                           |           | 1           | A 2     | A 1; B 0 |
    """,
    ),
    Case(
        "acknowledging what waits for replay",
        source="4.7",
        says="""
        An entry that came back and is acknowledged before it goes out again is not delivered.""",
        table="""
        | s | publish | requests                     | delivered | acked | replay  | mark-delete |
        | 0 | 1*3     | A subscribe Shared; A flow 3 | A 0-2     | none  | none    | -1          |
        | 1 |         | A nack 0-2                   |           | none  | 0-2+1   | -1          |
        | 2 |         | A ack 1                      |           | 1     | 0+1 2+1 | -1          |
        | 3 |         | A flow 9                     | A 0+1 2+1 | 1     | none    | -1          |
    """,
    ),
    Case(
        "acknowledging what was never delivered",
        source="3.16, 3.19, golden h1",
        says="""
        Entries may be acknowledged before they are read; reading skips them, and follows mark-delete when that passes it.""",
        table="""
        | s | publish | requests                     | delivered | mark-delete | acked | read |
        | 0 | 1*6     | A subscribe Shared; A flow 1 | A 0       | -1          | none  | 1    |
        | 1 |         | A ack 2-3                    |           | -1          | 2-3   | 1    |
        | 2 |         | A ack 0-1                    |           | 3           | none  | 4    |
        | 3 |         | A flow 9                     | A 4-5     | 3           | none  | 6    |
    """,
    ),
    Case(
        "acknowledging what is not there yet",
        source="3.16, golden h1",
        says="""
        A position at or behind the topic's end is refused and nothing of the request is done; without a receipt it is passed over.""",
        table="""
        | s | publish | requests                                     | delivered | refused                            | mark-delete | acked |
        | 0 | 1*3     | A subscribe Shared; A flow 9                 | A 0-2     |                                    | -1          | none  |
        | 1 |         | A ack 3 receipt; A ack 1-3 receipt; A ack 50 |           | A InvalidMessage; A InvalidMessage | -1          | none  |
        | 2 | 1       |                                              | A 3       |                                    | -1          | none  |
        | 3 |         | A ack 3 receipt                              |           |                                    | -1          | 3     |
    """,
    ),
    Case(
        "many holes",
        source="0.23, against 3.24",
        says="""
        There is no limit to the number of ranges kept.""",
        table="""
        | s | publish | requests                                                                            | delivered | mark-delete | acked                 |
        | 0 | 1*20    | A subscribe Shared; A flow 99                                                       | A 0-19    | -1          | none                  |
        | 1 |         | A ack 1; A ack 3; A ack 5; A ack 7; A ack 9; A ack 11; A ack 13; A ack 15; A ack 17 |           | -1          | 1 3 5 7 9 11 13 15 17 |
        | 2 |         | A ack 0-18                                                                          |           | 18          | none                  |
    """,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, history):
    check(case, history[case.name])
