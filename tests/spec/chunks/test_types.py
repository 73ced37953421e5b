"""Chunked messages on every type of subscription, and from one to another (0.10)."""

import pytest

from tests.spec.history import check
from tests.spec.table import Case

CASES = [
    Case(
        "shared",
        source="0.10, 1.17, golden k1 chunks",
        says="""
        Each message goes to one consumer, as a whole, whoever got what lies between its chunks.""",
        table="""
        | s | publish                                            | requests                                                               | delivered                                       | pending       |
        | 0 | A:0/3 B:0/2 A:1/3 1 B:1/2 A:2/3 C:1/2 1            | A subscribe Shared; B subscribe Shared; A flow 2; B flow 2             | A+B 3 4[1,4] 5[0,2,5] 7                         | A+B 3 4 5 7   |
        | 1 |                                                    | A ack 4; B ack 5; A ack 3; A ack 7                                     |                                                 | none          |
    """,
    ),
    Case(
        "shared with one permit each",
        source="0.10, 2.17",
        says="""
        A consumer without permits gets no message, also not one whose first chunks were there when it had some.""",
        table="""
        | s | publish             | requests                                             | delivered      | permits     |
        | 0 | A:0/2 1             | A subscribe Shared; A flow 1; B subscribe Shared     | A 1            | A 0; B 0    |
        | 1 | A:1/2               |                                                      |                | A 0; B 0    |
        | 2 |                     | B flow 1                                             | B 2[0,2]       | A 0; B 0    |
    """,
    ),
    Case(
        "failover",
        source="1.19, 2.11",
        says="""
        The successor gets unacknowledged messages again with all their chunks, and those completed meanwhile.""",
        table="""
        | s | publish       | requests                                                              | delivered             | active |
        | 0 | A:0-1/2 B:0/2 | A subscribe Failover; B subscribe Failover priority 1; A flow 9; B flow 9 | A 1[0,1]              | A      |
        | 1 |               | A close                                                               |                       | B      |
        | 2 | B:1/2         |                                                                       | B 1[0,1] 3[2,3]       | B      |
    """,
    ),
    Case(
        "redelivered on exclusive",
        source="2.12, 1.16",
        says="""
        Redelivery on Exclusive begins again behind mark-delete, message by message.""",
        table="""
        | s | publish                   | requests                        | delivered                        | mark-delete |
        | 0 | A:0/2 1 A:1/2 B:0-1/2 1   | A subscribe Exclusive; A flow 9 | A 1 2[0,2] 4[3,4] 5              | -1          |
        | 1 |                           | A ack 1; A ack 4                |                                  | -1          |
        | 2 |                           | A redeliver; A flow 9           | A 2+1[0,2] 5+1                   | -1          |
    """,
    ),
    Case(
        "key shared",
        source="1.19",
        says="""
        A message goes by its key, as one entry; a chunk that is not the last keeps no later message of the key waiting.""",
        table="""
        | s | publish                                    | requests                                                                                                                | delivered                          | pending              |
        | 0 | A:0/2=a B:0/2=b A:1/2=a 1=a                | A subscribe KeyShared sticky 0-32767; B subscribe KeyShared sticky 32768-65535; A flow 9; B flow 9                       | A+B 2[0,2] 3                       | A+B 2 3              |
        | 1 | B:1/2=b 1=b                                |                                                                                                                         | A+B 4[1,4] 5                       | A+B 2-5              |
        | 2 |                                            | A ack 2-5                                                                                                               |                                    | none                 |
    """,
    ),
    Case(
        "order of a key",
        source="0.22, 1.19",
        says="""
        Behind a message that was given back and is not due the later ones of its key wait, chunked ones like any other.""",
        table="""
        | s | publish                | requests                                        | delivered           | mark-delete |
        | 0 | A:0-1/2=a 1=b          | A subscribe KeyShared; A flow 9                 | A 1[0,1] 2          | -1          |
        | 1 | B:0/2=a                | A nack 1 after 3                                |                     | -1          |
        | 2 | B:1/2=a 1=b            |                                                 | A 5                 | -1          |
        | 4 |                        |                                                 | A 1+1[0,1] 4[3,4]   | -1          |
        | 5 |                        | A ack 1; A ack 2                                |                     | 2           |
    """,
    ),
    Case(
        "a hash that moves",
        source="0.22, 2.41",
        says="""
        A hash drains at its previous owner until what is out of it is acknowledged; a chunked message is out as one.""",
        table="""
        | s | publish         | requests                                                  | delivered       | pending |
        | 0 | A:0-1/2=a       | A subscribe KeyShared; A flow 9                           | A 1[0,1]        | A 1     |
        | 1 |                 | B subscribe KeyShared; B flow 9; C subscribe KeyShared; C flow 9 |          | A 1     |
        | 2 |                 | A ack 1                                                   |                 | none    |
        | 3 | B:0-1/2=a       |                                                           | A+B+C 3[2,3]    | A+B+C 3 |
    """,
    ),
    Case(
        "from shared to exclusive and back",
        source="2.1, issue 12",
        says="""
        Another type takes over what is unacknowledged and what is incomplete.""",
        table="""
        | s | publish             | requests                              | delivered             | mark-delete |
        | 0 | A:0/2 1 B:0/2 B:1/2 | A subscribe Shared; A flow 9          | A 1 3[2,3]            | -1          |
        | 1 |                     | A ack 1; A close                      |                       | -1          |
        | 2 |                     | B subscribe Exclusive; B flow 1       | B 3[2,3]              | -1          |
        | 3 | A:1/2               | B flow 1                              | B 4[0,4]              | -1          |
        | 4 |                     | B ack 3; B close                      |                       | -1          |
        | 5 |                     | C subscribe KeyShared; C flow 9       | C 4[0,4]              | -1          |
        | 6 | D:0/2               | C ack 4                               |                       | 4           |
        | 7 |                     | C close                               |                       | 4           |
        | 8 | D:1/2               | D subscribe Failover; D flow 9        | D 6[5,6]              | 4           |
    """,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, history):
    check(case, history[case.name])
