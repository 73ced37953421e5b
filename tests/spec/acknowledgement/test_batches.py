"""Batch index acknowledgement: one message of an entry at a time. It is always on (0.23)."""

import pytest

from tests.spec.history import check
from tests.spec.table import Case

CASES = [
    Case(
        "index by index",
        source="3.2, 3.12, 3.20, golden h1",
        says="""
        Each acknowledgement leaves what it and its predecessors leave; when nothing is left the entry is acknowledged.""",
        table="""
        | s | publish | requests                             | delivered | mark-delete | pending      | unacked |
        | 0 | 4 1     | A subscribe Shared; A flow 99        | A 0-1     | -1          | A 0-1        | A 5     |
        | 1 |         | A ack 0 left 0,2,3                   |           | -1          | A 0{0,2,3} 1 | A 4     |
        | 2 |         | A ack 0 left 0,1,2; A ack 1          |           | -1          | A 0{0,2}     | A 2     |
        | 3 |         | A ack 0 left 2,3; A ack 0 left 0,1,3 |           | 1           | none         | A 0     |
    """,
    ),
    Case(
        "the rest comes back alone",
        source="3.21, 4.2, golden k1; 0.20 against 3.13",
        says="""
        An entry redelivered carries the indexes left, and costs permits for these only. Its count goes on over partial acknowledgements (0.20).""",
        table="""
        | s | publish | requests                     | delivered  | pending    | permits | unacked |
        | 0 | 4       | A subscribe Shared; A flow 4 | A 0        | A 0        | A 0     | A 4     |
        | 1 |         | A nack 0; A flow 4           | A 0+1      | A 0+1      | A 0     | A 4     |
        | 2 |         | A ack 0 left 1,3             |            | A 0+1{1,3} | A 0     | A 2     |
        | 3 |         | A nack 0; A flow 3           | A 0+2{1,3} | A 0+2{1,3} | A 1     | A 2     |
    """,
    ),
    Case(
        "behind mark-delete",
        source="golden h1: batch index on an entry behind mark delete",
        says="""
        An index of an entry that is acknowledged brings nothing back.""",
        table="""
        | s | publish | requests                                       | delivered | mark-delete | acked | pending |
        | 0 | 2*4     | A subscribe Shared; A flow 99                  | A 0-3     | -1          | none  | A 0-3   |
        | 1 |         | A ack 0-1; A ack 3                             |           | 1           | 3     | A 2     |
        | 2 |         | A ack 1 left 0; A ack 0 left 0; A ack 3 left 1 |           | 1           | 3     | A 2     |
    """,
    ),
    Case(
        "more than 64 messages",
        source="3.3, golden h2",
        says="""
        An ack set has as many words as it needs.""",
        table="""
        | s | publish | requests                       | delivered | pending          | unacked |
        | 0 | 130     | A subscribe Shared; A flow 999 | A 0       | A 0              | A 130   |
        | 1 |         | A ack 0 left 0,63,64,129       |           | A 0{0,63,64,129} | A 4     |
        | 2 |         | A ack 0 left 63,128            |           | A 0{63}          | A 1     |
    """,
    ),
    Case(
        "messages the batch does not have",
        source="3.20, 4.27",
        says="""
        Only messages there are can stay unacknowledged, whatever a cumulative acknowledgement leaves: else a dead entry would have letters
        of none.""",
        table="""
        | s | publish | requests                                | delivered | mark-delete | pending | letters |
        | 0 | 1 2 2   | A subscribe Exclusive max 1; A flow 99  | A 0-2     | -1          | A 0-2   | none    |
        | 1 |         | A cumulative 0 left 1,2                 |           | 0           | A 1-2   | none    |
        | 2 |         | A cumulative 1 left 1,2,70              |           | 0           | A 1{1} 2 | none   |
        | 3 |         | A nack 1; A flow 9                      | A 1+1{1} 2 | 0          | A 1+1{1} 2 | none |
        | 4 |         | A cumulative 2 left 2                   |            | 2          | none       | none |
    """,
    ),
    Case(
        "a partly acknowledged batch waits for replay",
        source="0.23, against 3.23",
        says="""
        Ack sets are kept wherever the entry is, also when nobody holds it.""",
        table="""
        | s | publish | requests                        | delivered | replay | mark-delete |
        | 0 | 3       | A subscribe Shared; A flow 3    | A 0       | none   | -1          |
        | 1 |         | A close                         |           | 0      | -1          |
        | 2 |         | A ack 0 left 0                  |           | 0{0}   | -1          |
        | 3 |         | B subscribe Exclusive; B flow 3 | B 0{0}    | none   | -1          |
        | 4 |         | B ack 0 left 1                  |           | none   | 0           |
    """,
    ),
    Case(
        "a batch that nobody holds",
        source="3.11, 3.16, 3.20",
        says="""
        Its indexes may be acknowledged before it was delivered, and while it waits to be delivered again: with the last of them it is acknowledged.""",
        table="""
        | s | publish | requests                            | delivered | replay | mark-delete | read |
        | 0 | 4 4     | A subscribe Shared; A ack 0 left 0,1 |          | 0{0,1} | -1          | 1    |
        | 1 |         | A ack 0 left 2,3                     |          | none   | 0           | 1    |
        | 2 |         | A ack 1 left 4                       |          | none   | 1           | 2    |
    """,
    ),
]


@pytest.mark.default
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, history):
    check(case, history[case.name])
