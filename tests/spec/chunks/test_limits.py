"""How many incomplete messages a consumer keeps, and for how long (0.25): what it drops is withheld from it, or
acknowledged. Unless a consumer asks for limits there are none."""

import pytest

from tests.spec.history import check
from tests.spec.table import Case

CASES = [
    Case(
        "one too many",
        source="1.14, rawchunk_max_pending",
        says="""
        A first chunk that makes the incomplete messages more than the limit drops the oldest of them: the consumer does not get it, also when it is completed; it is out at the consumer all the same. The next one gets it.""",
        table="""
        | s | publish             | requests                                  | delivered      | mark-delete | pending | permits | unacked |
        | 0 |                     | A subscribe Exclusive pending 1; A flow 9 |                | -1          | none    | A 9     | A 0     |
        | 1 | A:0/2 B:0-1/2 A:1/2 1 |                                         | A 2[1,2] 4     | -1          | A 2-4   | A 7     | A 3     |
        | 2 |                     | A ack 2; A ack 4                          |                | -1          | A 3     | A 7     | A 1     |
        | 3 |                     | A close                                   |                | -1          | none    |         |         |
        | 4 |                     | B subscribe Exclusive pending 10; B flow 9 | B 3[0,3]      | -1          | B 3     | B 8     | B 1     |
        | 5 |                     | B ack 3                                   |                | 4           | none    | B 8     | B 0     |
    """,
    ),
    Case(
        "one too many and acknowledged",
        source="1.14, rawchunk_max_pending",
        says="""
        Where the consumer asks for it, what is dropped is acknowledged, and nobody gets it.""",
        table="""
        | s | publish             | requests                                            | delivered    | mark-delete |
        | 0 |                     | A subscribe Exclusive pending 1 auto true; A flow 9 |              | -1          |
        | 1 | A:0/2 B:0-1/2 A:1/2 1 |                                                   | A 2[1,2] 4   | 0           |
        | 2 |                     | A ack 2; A ack 4                                    |              | 4           |
        | 3 |                     | A close                                             |              | 4           |
        | 4 |                     | B subscribe Exclusive; B flow 9                     |              | 4           |
    """,
    ),
    Case(
        "dropped before it is complete",
        source="1.14, 1.13",
        says="""
        What is dropped stays dropped when its chunks come later; acknowledged, it holds nothing back.""",
        table="""
        | s | publish      | requests                                            | delivered      | mark-delete |
        | 0 | A:0/3 B:0/2  | A subscribe Shared pending 1 auto true; A flow 9    |                | 0           |
        | 1 | A:1/3 B:1/2  |                                                     | A 3[1,3]       | 0           |
        | 2 | A:2/3 1      | A ack 3                                             | A 5            | 4           |
        | 3 | A:0-2/3      | A ack 5                                             | A 8[6,7,8]     | 5           |
    """,
    ),
    Case(
        "the oldest goes first",
        source="1.14",
        says="""
        With room for two, the third drops the first and the fourth the second; one that is complete makes room.""",
        table="""
        | s | publish                              | requests                                         | delivered              | mark-delete |
        | 0 | A:0/2 B:0/2 B:1/2 C:0/2              | A subscribe Shared pending 2 auto true; A flow 9 | A 2[1,2]               | -1          |
        | 1 | D:0/2                                |                                                  |                        | 0           |
        | 2 | E:0/2                                |                                                  |                        | 0           |
        | 3 | A:1/2 C:1/2 D:1/2 E:1/2              | A ack 2                                          | A 8[4,8] 9[5,9]        | 3           |
        | 4 |                                      | A ack 8-9                                        |                        | 9           |
    """,
    ),
    Case(
        "begun anew is one",
        source="1.10, 1.14",
        says="""
        A message sent again from its first chunk takes its own place, not another's.""",
        table="""
        | s | publish                    | requests                                  | delivered            |
        | 0 | A:0/2 A:0/2 A:0-1/2        | A subscribe Exclusive pending 1; A flow 9 | A 3[2,3]             |
    """,
    ),
    Case(
        "read again",
        source="1.14, 1.20",
        says="""
        Who gets again what another one had counts anew what is incomplete on the way; what is one too many is out at it without being sent.""",
        table="""
        | s | publish                 | requests                               | delivered             | pending |
        | 0 | A:0/2 B:0-1/2 A:1/2     | A subscribe Shared; A flow 9           | A 2[1,2] 3[0,3]       | A 2 3   |
        | 1 |                         | A close                                |                       | none    |
        | 2 |                         | B subscribe Shared pending 1; B flow 9 | B 2[1,2]              | B 2 3   |
        | 3 |                         | B ack 2; B close                       |                       | none    |
        | 4 |                         | C subscribe Shared; C flow 9           | C 3[0,3]              | C 3     |
    """,
    ),
    Case(
        "no limit",
        source="1.9: <= 0",
        says="""
        0 is no limit, and nothing said is none either.""",
        table="""
        | s | publish                                          | requests                                                             | delivered                                                                |
        | 0 | A:0/2 B:0/2 C:0/2 A:1/2 B:1/2 C:1/2              | A subscribe Shared pending 0; A flow 9; other/A subscribe Shared; other/A flow 9 | A 3[0,3] 4[1,4] 5[2,5]; other/A 3[0,3] 4[1,4] 5[2,5]       |
    """,
    ),
    Case(
        "withheld until it asks again",
        source="1.14, fact of 1.16",
        says="""
        Who asks for all that is unacknowledged gets also what it had dropped; it counts as redelivered.""",
        table="""
        | s | publish               | requests                                  | delivered           | mark-delete |
        | 0 | A:0/2 B:0-1/2 A:1/2   | A subscribe Exclusive pending 1; A flow 9 | A 2[1,2]            | -1          |
        | 1 |                       | A ack 2                                   |                     | -1          |
        | 2 |                       | A redeliver; A flow 9                     | A 3+1[0,3]          | -1          |
    """,
    ),
    Case(
        "too long incomplete",
        source="1.15",
        says="""
        What is incomplete for longer than the consumer waits is acknowledged, whatever it asks for else; it is not delivered when it is completed, and holds nothing back.""",
        table="""
        | s | publish       | requests                                           | delivered    | mark-delete |
        | 0 | A:0/3 1       | A subscribe Exclusive incomplete 2000; A flow 9    | A 1          | -1          |
        | 1 | A:1/3 B:0/2   | A ack 1                                            |              | -1          |
        | 2 |               |                                                    |              | 2           |
        | 3 | A:2/3 B:1/2   |                                                    | A 5[3,5]     | 2           |
        | 4 |               | A ack 5                                            |              | 5           |
    """,
    ),
    Case(
        "complete in time",
        source="1.15",
        says="""
        What is complete does not expire, however long it lay there.""",
        table="""
        | s | publish | requests                                        | delivered    | mark-delete |
        | 0 | A:0/2   |                                                 |              |             |
        | 3 | A:1/2   |                                                 |              |             |
        | 9 |         | A subscribe Shared incomplete 1000; A flow 9    | A 1[0,1]     | -1          |
    """,
    ),
    Case(
        "incomplete for ever",
        source="1.9: 0 = never",
        says="""
        0 is never, and without a consumer that says so nothing expires.""",
        table="""
        | s | publish | requests | delivered | mark-delete |
        | 0 | A:0/2 | A subscribe Shared lease 20000 incomplete 0; A flow 9; other/A subscribe Shared lease 20000; other/A flow 9 | | -1 |
        | 9000 | A:1/2 | | A 1[0,1]; other/A 1[0,1] | -1 |
    """,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, history):
    check(case, history[case.name])
