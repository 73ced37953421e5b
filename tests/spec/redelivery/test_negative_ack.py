"""Negative acknowledgement: giving entries back, at once or later."""

import pytest

from tests.spec.history import check
from tests.spec.table import Case

CASES = [
    Case(
        "at once",
        source="4.21, golden k1",
        says="""
        What is named and pending at that consumer comes back with its count raised; what is not pending there is ignored.""",
        table="""
        | s | publish | requests                      | delivered     | pending       |
        | 0 | 1*4     | A subscribe Shared; A flow 99 | A 0-3         | A 0-3         |
        | 1 |         | A nack 1-2                    | A 1-2+1       | A 0 1-2+1 3   |
        | 2 |         | A nack 1                      | A 1+2         | A 0 1+2 2+1 3 |
        | 3 |         | A ack 1                       |               | A 0 2+1 3     |
        | 4 |         | A nack 1; A nack 50           |               | A 0 2+1 3     |
        | 5 |         | A nack 0; A nack 2-3          | A 0+1 2+2 3+1 | A 0+1 2+2 3+1 |
    """,
    ),
    Case(
        "only by the holder",
        source="4.21",
        says="""
        A consumer cannot give back what another holds, nor what nobody does.""",
        table="""
        | s | publish | requests                                          | delivered | pending |
        | 0 | 1*2     | A subscribe Shared; A flow 99; B subscribe Shared | A 0-1     | A 0-1   |
        | 1 |         | B nack 0-1; B redeliver; stranger nack 0          |           | A 0-1   |
        | 2 | 1       | A close                                           |           | none    |
        | 3 |         | B nack 0-2; B flow 9                              | B 0-2     | B 0-2   |
    """,
    ),
    Case(
        "after a delay",
        source="4.15, 0.23",
        says="""
        The entry stays with its consumer until it is due, then comes back with its count raised; a second negative acknowledgement replaces the time,
        an acknowledgement ends it.""",
        table="""
        | s | publish | requests                      | delivered | due         | pending   |
        | 0 | 1*3     | A subscribe Shared; A flow 99 | A 0-2     | none        | A 0-2     |
        | 1 |         | A nack 0-2 after 2            |           | 0@3 1@3 2@3 | A 0-2     |
        | 2 |         | A nack 1 after 3; A ack 2     |           | 0@3 1@5     | A 0-1     |
        | 3 |         |                               | A 0+1     | 1@5         | A 0+1 1   |
        | 4 |         |                               |           | 1@5         | A 0+1 1   |
        | 5 |         |                               | A 1+1     | none        | A 0+1 1+1 |
    """,
    ),
    Case(
        "goes to whoever has permits",
        source="2.18, 4.21",
        says="""
        What came back belongs to nobody; the count goes along.""",
        table="""
        | s | publish | requests                     | delivered | pending    | permits  |
        | 0 | 1*2     | A subscribe Shared; A flow 2 | A 0-1     | A 0-1      | A 0      |
        | 1 |         | B subscribe Shared; A nack 0 |           | A 1        | A 0; B 0 |
        | 2 |         | B flow 9                     | B 0+1     | A 1; B 0+1 | A 0; B 8 |
    """,
    ),
    Case(
        "on exclusive all comes back",
        source="2.12, 4.14, recorded on 4.0.8: nack_exclusive_redelivers_all_unacked; counts 0.20",
        says="""
        An order is kept by giving back everything that is not acknowledged, not only what is named; only what is named counts.""",
        table="""
        | s | publish | requests                        | delivered   | pending     |
        | 0 | 1*6     | A subscribe Exclusive; A flow 5 | A 0-4       | A 0-4       |
        | 1 |         | A ack 0; A ack 4                |             | A 1-3       |
        | 2 |         | A nack 2; A flow 9              | A 1 2+1 3 5 | A 1 2+1 3 5 |
        | 3 |         | A nack 3 after 1                |             | A 1 2+1 3 5 |
        | 4 |         |                                 | A 1 2+1 3+1 5 | A 1 2+1 3+1 5 |
    """,
    ),
    Case(
        "the last word counts",
        source="4.16",
        says="""
        Negative acknowledgements that overlap: of each entry the one asked for last sets the time, whatever range it came in.""",
        table="""
        | s | publish | requests                              | delivered | due                         |
        | 0 | 1*6     | A subscribe Shared; A flow 9          | A 0-5     | none                        |
        | 1 |         | A nack 0-5 after 4; A nack 2-3 after 7 |          | 0@5 1@5 2@8 3@8 4@5 5@5     |
        | 2 |         | A nack 1 after 9; A nack 0-2 after 5  |           | 0@7 1@7 2@7 3@8 4@5 5@5     |
        | 3 |         | A nack 4-5 after 8; A nack 4 after 1  |           | 0@7 1@7 2@7 3@8 4@4 5@11    |
    """,
    ),
    Case(
        "words of a stranger do not",
        source="4.21",
        says="""
        A consumer that names what another holds takes nothing away from what the holder asks in the same round.""",
        table="""
        | s | publish | requests                                          | delivered | pending | replay  |
        | 0 | 1*3     | A subscribe Shared; A flow 3; Z subscribe Shared  | A 0-2     | A 0-2   | none    |
        | 1 |         | Z nack 0-2; A nack 0; Z nack 1; A nack 1; Z nack 1 |          | A 2     | 0-1+1   |
    """,
    ),
    Case(
        "asked for after leaving",
        source="design 4, step 2; 4.19",
        says="""
        Members come and go in the order of requests, so what a consumer asks after it has left counts for nothing; what it asked before does.""",
        table="""
        | s | publish | requests                     | delivered | pending | replay  |
        | 0 | 1*2     | A subscribe Shared; A flow 9 | A 0-1     | A 0-1   | none    |
        | 1 |         | A nack 0; A close; A nack 1  |           | none    | 0+1 1   |
        | 2 |         | A redeliver; A flow 9        |           | none    | 0+1 1   |
    """,
    ),
    Case(
        "acknowledged in the same round",
        source="design 4, steps 3 and 4",
        says="""
        Acknowledgements go before returns, in whatever order they were asked for.""",
        table="""
        | s | publish | requests                     | delivered | pending | mark-delete |
        | 0 | 1*2     | A subscribe Shared; A flow 9 | A 0-1     | A 0-1   | -1          |
        | 1 |         | A nack 0; A ack 0            |           | A 1     | 0           |
    """,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, history):
    check(case, history[case.name])
