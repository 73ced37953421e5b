"""Retry letters: what is put off is acknowledged and has its letter, once, in one and the same round."""

import pytest

from tests.spec.history import check
from tests.spec.table import Case

CASES = [
    Case(
        "one letter and one acknowledgement",
        source="4.23, 0.27",
        says="""
        A message that is put off is acknowledged and leaves a letter; the others stay as they are.""",
        table="""
        | s | publish | requests                     | delivered | later | letters | pending | acked | mark-delete |
        | 0 | 1*3     | A subscribe Shared; A flow 9 | A 0-2     | none  | none    | A 0-2   | none  | -1          |
        | 1 |         | A later 1                    |           | 1+1   | none    | A 0 2   | 1     | -1          |
        | 2 |         | A ack 0; A later 2 times 2   |           | 1+1 2+2 | none  | none    | none  | 2           |
    """,
    ),
    Case(
        "never twice",
        source="0.27",
        says="""
        A message that is acknowledged gets no letter, whether it was put off before, in an earlier round or the same one, or acknowledged plainly; nor does
        an acknowledgement take a letter back that was asked for first. Asking for nothing is no error.""",
        table="""
        | s | publish | requests                                    | delivered | later   | mark-delete |
        | 0 | 1*4     | A subscribe Shared; A flow 9                | A 0-3     | none    | -1          |
        | 1 |         | A later 0; A later 0                        |           | 0+1     | 0           |
        | 2 |         | A later 0 receipt; A ack 1; A later 1       |           | 0+1     | 1           |
        | 3 |         | A later 2; A ack 2; A later 2               |           | 0+1 2+1 | 2           |
        | 4 |         | A later 1; clear; A later 3                 |           | 0+1 2+1 | 3           |
    """,
    ),
    Case(
        "whoever holds it",
        source="4.23, 0.20, 0.27",
        says="""
        As with any acknowledgement it is the message that counts, not who holds it: two consumers that both received it leave one letter.""",
        table="""
        | s | publish | requests                                         | delivered | later | pending |
        | 0 | 1*2     | A subscribe Shared; A flow 9; B subscribe Shared | A 0-1     | none  | A 0-1   |
        | 1 |         | B flow 9; A close                                | B 0-1     | none  | B 0-1   |
        | 2 |         | A later 0; B later 0; B later 1                  |           | 0+1 1+1 | none  |
    """,
    ),
    Case(
        "it goes before returns",
        source="design 4, steps 3 and 4; 4.26",
        says="""
        What is put off in the round that gives it back does not come back, nor die.""",
        table="""
        | s | publish | requests                           | delivered | later | letters | pending |
        | 0 | 1*2     | A subscribe Shared max 1; A flow 9 | A 0-1     | none  | none    | A 0-1   |
        | 1 |         | A nack 0-1                         | A 0-1+1   | none  | none    | A 0-1+1 |
        | 2 |         | A nack 0-1; A later 0              |           | 0+1   | 1+2     | none    |
    """,
    ),
    Case(
        "to the dead letter topic",
        source="4.25, 0.27",
        says="""
        A message put off too often becomes a dead letter in the same way; which topic a letter goes to is said by the request.""",
        table="""
        | s | publish | requests                           | delivered | later | letters | mark-delete |
        | 0 | 1*2     | A subscribe Shared max 2; A flow 9 | A 0-1     | none  | none    | -1          |
        | 1 |         | A later 0 times 3 dead; A later 1  |           | 1+1   | 0+3     | 1           |
        | 2 |         | A later 0 times 3 dead             |           | 1+1   | 0+3     | 1           |
    """,
    ),
    Case(
        "one message of a batch",
        source="4.23, 3.12, 0.23",
        says="""
        A letter is of one message, and acknowledges as a batch index acknowledgement does; the last one acknowledges the entry.""",
        table="""
        | s | publish | requests                                               | delivered | later               | pending    | mark-delete |
        | 0 | 3 1     | A subscribe Shared; A flow 9                           | A 0-1     | none                | A 0-1      | -1          |
        | 1 |         | A later 0 index 1 left 0,2; A later 0 index 1 left 0,2 |           | 0+1{1}              | A 0{0,2} 1 | -1          |
        | 2 |         | A ack 0 left 1,2; A later 0 index 0 left 2             |           | 0+1{1}              | A 0{2} 1   | -1          |
        | 3 |         | A later 0 index 2; A later 1                           |           | 0+1{1,2} 1+1        | none       | 1           |
    """,
    ),
    Case(
        "cumulative",
        source="4.23, 4.30",
        says="""
        Everything up to the message is acknowledged; only the message has a letter.""",
        table="""
        | s | publish | requests                        | delivered | later        | pending | mark-delete |
        | 0 | 1*2 3 1 | A subscribe Exclusive; A flow 9 | A 0-3     | none         | A 0-3   | -1          |
        | 1 |         | A later 1 cumulative            |           | 1+1          | A 2-3   | 1           |
        | 2 |         | A later 0 cumulative; A later 2 index 1 left 2 cumulative | | 1+1 2+1{1} | A 2{2} 3 | 1      |
        | 3 |         | A later 2 index 1 left 2 cumulative; A later 2 index 2 cumulative | | 1+1 2+1{1,2} | A 3 | 2   |
    """,
    ),
    Case(
        "what is refused",
        source="3.16, 4.30",
        says="""
        A message that does not exist, a batch without saying which of its messages, a message that is to stay unacknowledged, and cumulative on Shared: nothing
        is acknowledged and nothing written.""",
        table="""
        | s | publish | requests                                                   | delivered | refused                                    | later | pending |
        | 0 | 1 3     | A subscribe Shared; A flow 9                               | A 0-1     |                                            | none  | A 0-1   |
        | 1 |         | A later 2 receipt; A later 0 cumulative receipt | | A InvalidMessage; A CumulativeAcknowledgementNotAllowedError | none | A 0-1 |
        | 2 |         | A later 1 receipt; A later 1 index 3 receipt               |           | A InvalidMessage; A InvalidMessage         | none  | A 0-1   |
        | 3 |         | A later 1 index 0 left 0,1 receipt; nobody/A later 0 receipt |         | A InvalidMessage; A SubscriptionNotFound   | none  | A 0-1   |
    """,
    ),
    Case(
        "before it was delivered",
        source="3.11, 3.16",
        says="""
        As any entry that exists can be acknowledged, any can be put off.""",
        table="""
        | s | publish | requests                                  | delivered | later       | replay | mark-delete |
        | 0 | 1 2 1   | A subscribe Shared                        |           | none        | none   | -1          |
        | 1 |         | A later 0; A later 1 index 0 left 1       |           | 0+1 1+1{0}  | 1{1}   | 0           |
        | 2 |         | A flow 9                                  | A 1{1} 2  | 0+1 1+1{0}  | none   | 0           |
    """,
    ),
    Case(
        "a seek does not take it back",
        source="3.26, 0.27",
        says="""
        What was put off has its letter, also when the cursor is moved in the same round; after that the message can be received and put
        off again.""",
        table="""
        | s | publish | requests                         | delivered | reset | later       | mark-delete |
        | 0 | 1*2     | A subscribe Shared; A flow 9     | A 0-1     |       | none        | -1          |
        | 1 |         | A later 0; seek 1                |           | A     | 0+1         | 0           |
        | 2 |         | seek 0; A later 0 times 2        |           | A     | 0+1 0+2     | 0           |
        | 3 |         | A flow 9                         | A 1       |       | 0+1 0+2     | 0           |
    """,
    ),
    Case(
        "of every partition",
        source="0.5, 4.22",
        partitions=2,
        says="""
        The letters of a subscription's partitions go to one topic.""",
        table="""
        | s | publish | requests                     | delivered   | later         |
        | 0 | 1*2     | A subscribe Shared; A flow 9 | A p0:0-1 p1:0-1 | none      |
        | 1 |         | A later 1                    |             | p0:1+1 p1:1+1 |
    """,
    ),
]


@pytest.mark.default
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, history):
    check(case, history[case.name])
