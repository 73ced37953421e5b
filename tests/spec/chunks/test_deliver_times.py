"""Chunked messages with a deliver time: the message waits, its chunks do not."""

import pytest

from tests.spec.history import check
from tests.spec.table import Case

CASES = [
    Case(
        "comes due once",
        source="1.5, 5.1, issue 12: delayed with all its chunks",
        says="""
        The deliver time repeats on every chunk; the message waits for it in the place of its last, and comes due once.""",
        table="""
        | s | publish           | requests                       | delivered      | waits | delayed | mark-delete |
        | 0 | A:0-2/3@3 1       | A subscribe Shared; A flow 9   | A 3            | 2@3   | 1       | -1          |
        | 1 |                   | A ack 3                        |                | 2@3   | 1       | -1          |
        | 3 |                   |                                | A 2[0,1,2]     | none  | 0       | -1          |
        | 4 |                   | A ack 2                        |                | none  | 0       | 3           |
    """,
    ),
    Case(
        "incomplete at its time",
        source="issue 12, 5.2",
        says="""
        A deliver time that comes before the last chunk is none any more: the message is delivered when it is complete.""",
        table="""
        | s | publish      | requests                     | delivered    | waits | mark-delete |
        | 0 | A:0/2@2 1@2  | A subscribe Shared; A flow 9 |              | 1@2   | -1          |
        | 2 |              |                              | A 1          | none  | -1          |
        | 3 |              | A ack 1                      |              | none  | -1          |
        | 4 | A:1/2@2      |                              | A 2[0,2]     | none  | -1          |
        | 5 |              | A ack 2                      |              | none  | 2           |
    """,
    ),
    Case(
        "in due order",
        source="0.21",
        says="""
        What comes due at one time goes by position, messages by their last chunks.""",
        table="""
        | s | publish                              | requests                     | delivered              | waits           |
        | 0 | A:0/2@4 B:0/2@3 1@4 A:1/2@4 B:1/2@3  | A subscribe Shared; A flow 1 |                        | 2@4 3@4 4@3     |
        | 3 |                                      |                              | A 4[1,4]               | 2@4 3@4         |
        | 4 |                                      | A flow 1                     | A 2                    | 3@4             |
        | 5 |                                      | A flow 1                     | A 3[0,3]               | none            |
    """,
    ),
    Case(
        "cancelled and moved",
        source="0.24, 0.33",
        says="""
        A message that waits is cancelled and moved as one; of its chunks nobody may ask that.""",
        table="""
        | s | publish                | requests                     | delivered      | waits   | meant | mark-delete |
        | 0 | A:0-1/2@9 B:0-1/2@9    | A subscribe Shared; A flow 9 |                | 1@9 3@9 |       | -1          |
        | 1 |                        | cancel 0-1                   |                | 3@9     | 1     | 1           |
        | 2 |                        | reschedule 2-3 4             |                | 3@4     | 1     | 1           |
        | 3 |                        | cancel 2                     |                | 3@4     | 0     | 1           |
        | 4 |                        |                              | A 3[2,3]       | none    |       | 1           |
    """,
    ),
    Case(
        "at once on exclusive",
        source="2.6",
        says="""
        Exclusive knows no deliver times, of chunked messages neither.""",
        table="""
        | s | publish         | requests                        | delivered     | waits |
        | 0 | A:0-1/2@9 1     | A subscribe Exclusive; A flow 9 | A 1[0,1] 2    | none  |
    """,
    ),
    Case(
        "from shared to exclusive",
        source="2.6, 2.1",
        says="""
        An Exclusive consumer gets at once, in its place, what others would have waited for; chunks of it that were passed over are not delivered.""",
        table="""
        | s | publish             | requests                        | delivered       | waits | mark-delete |
        | 0 | 1 A:0-2/3@9 1       | A subscribe Shared; A flow 9    | A 0 4           | 3@9   | -1          |
        | 1 |                     | A ack 0; A close                |                 | 3@9   | 0           |
        | 2 |                     | B subscribe Exclusive; B flow 9 | B 3[1,2,3] 4    | none  | 0           |
        | 3 |                     | B ack 3-4                       |                 | none  | 4           |
    """,
    ),
    Case(
        "given back",
        source="1.16, 5.17",
        says="""
        What came due and was given back comes again as a whole.""",
        table="""
        | s | publish       | requests                     | delivered      | waits | replay |
        | 0 | A:0-1/2@2 1@5 | A subscribe Shared; A flow 9 |                | 1@2 2@5 | none |
        | 2 |               |                              | A 1[0,1]       | 2@5   | none   |
        | 3 |               | A nack 1                     | A 1+1[0,1]     | 2@5   | none   |
        | 4 |               | A close                      |                | 2@5   | 1+1    |
        | 5 |               | B subscribe Shared; B flow 9 | B 1+1[0,1] 2   | none  | none   |
    """,
    ),
    Case(
        "time to live spares what waits",
        source="0.26",
        says="""
        A message that waits is spared with its first chunks, too.""",
        table="""
 | s | publish       | requests                                                                              | delivered | waits   | mark-delete |
 | 0 | 1 A:0-1/2@4   | A subscribe Shared; A flow 9; policy message_ttl_seconds 1; policy ttl_check_seconds 1 | A 0      | 2@4     | -1          |
 | 1 |               |                                                                                       |           | 2@4     | -1          |
 | 2 |               |                                                                                       |           | 2@4     | 0           |
 | 4 |               |                                                                                       | A 2[1,2]  | none    | 0           |
 | 5 |               |                                                                                       |           | none    | 0           |
 | 6 |               |                                                                                       |           | none    | 2           |
    """,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, history):
    check(case, history[case.name])
