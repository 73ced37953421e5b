"""Delays and the type of a subscription, and the policy that switches them: nothing that waits is lost, whatever comes
next."""

import pytest

from tests.spec.history import check
from tests.spec.table import Case

CASES = [
    Case(
        "exclusive takes over from shared",
        source="2.6, 2.1",
        says="""
        When an Exclusive consumer takes over from Shared ones, what they would have waited for comes at once and in its place.""",
        table="""
        | s | publish | requests                        | delivered | waits | pending | mark-delete |
        | 0 | 1 1@9 1 | A subscribe Shared; A flow 9    | A 0 2     | 1@9   | A 0 2   | -1          |
        | 1 |         | A close                         |           | 1@9   | none    | -1          |
        | 2 |         | B subscribe Exclusive; B flow 2 | B 0-1     | none  | B 0-1   | -1          |
        | 3 |         | B flow 1                        | B 2       | none  | B 0-2   | -1          |
        | 4 |         | B cumulative 2                  |           | none  | none    | 2           |
    """,
    ),
    Case(
        "failover takes over what came due",
        source="2.6, 2.1",
        says="""
        What came due and was delivered comes back by position, with its count; what came due and was not delivered likewise.""",
        table="""
        | s | publish     | requests                       | delivered   | waits       | pending     | mark-delete |
        | 0 | 1@3 1@1 1@1 | A subscribe Shared; A flow 1   |             | 0@3 1@1 2@1 | none        | -1          |
        | 1 |             |                                | A 1         | 0@3 2@1     | A 1         | -1          |
        | 2 |             | A nack 1; A flow 1             | A 1+1       | 0@3 2@1     | A 1+1       | -1          |
        | 3 |             | A close                        |             | 0@3 2@1     | none        | -1          |
        | 4 | 1           | B subscribe Failover; B flow 9 | B 0 1+1 2-3 | none        | B 0 1+1 2-3 | -1          |
    """,
    ),
    Case(
        "shared takes over from exclusive",
        source="2.6, 2.1",
        says="""
        Those that come behind are waited for; what was acknowledged of those that went out at once stays acknowledged.""",
        table="""
        | s | publish   | requests                           | delivered | waits   | mark-delete |
        | 0 | 1@9 1 1@7 | A subscribe Exclusive; A flow 3    | A 0-2     | none    | -1          |
        | 1 | 1@8 1 1@6 | A ack 0; A ack 2                   |           | none    | 0           |
        | 2 |           | A ack 1; A close                   |           | none    | 2           |
        | 3 |           | B subscribe KeyShared; B flow 9    | B 4       | 3@8 5@6 | 2           |
        | 6 |           |                                    | B 5       | 3@8     | 2           |
        | 7 |           | B ack 4-5                          |           | 3@8     | 2           |
        | 8 |           |                                    | B 3       | none    | 2           |
    """,
    ),
    Case(
        "there and back",
        source="2.6, 2.1",
        says="""
        What nobody got while the subscription was Exclusive is waited for again.""",
        table="""
        | s | publish     | requests                        | delivered | waits       | mark-delete |
        | 0 | 1@9 1 1@8 1@9 | A subscribe Shared; A flow 9  | A 1       | 0@9 2@8 3@9 | -1          |
        | 1 |             | A ack 1; A close                |           | 0@9 2@8 3@9 | -1          |
        | 2 |             | B subscribe Exclusive           |           | none        | -1          |
        | 3 |             | B flow 1                        | B 0       | none        | -1          |
        | 4 |             | B ack 0; B close                |           | none        | 1           |
        | 5 |             | C subscribe Shared; C flow 9    |           | 2@8 3@9     | 1           |
        | 8 |             |                                 | C 2       | 3@9         | 1           |
        | 9 |             | C ack 2                         | C 3       | none        | 2           |
    """,
    ),
    Case(
        "key shared is as shared",
        source="2.6",
        says="""
        From Shared to Key_Shared nothing changes for what waits.""",
        table="""
        | s | publish       | requests                        | delivered | waits   |
        | 0 | 1=a@3 1=b@2 1 | A subscribe Shared; A flow 9    | A 2       | 0@3 1@2 |
        | 1 |               | A ack 2; A close                |           | 0@3 1@2 |
        | 2 |               | B subscribe KeyShared; B flow 9 | B 1       | 0@3     |
        | 3 |               |                                 | B 0       | none    |
    """,
    ),
    Case(
        "due while nobody is there",
        source="recorded: delayed_due_while_nobody_listens",
        says="""
        What nobody has met before its deliver time is no delayed message any more when somebody comes: it goes by position.""",
        table="""
        | s | publish         | requests                              | delivered | waits | read |
        | 0 |                 | A subscribe Shared; A close           |           | none  | 0    |
        | 1 | 1@4 1@2 1@3 1   |                                       |           | none  | 0    |
        | 5 |                 | B subscribe Shared; B flow 1          | B 0       | none  | 1    |
        | 6 |                 | B flow 3                              | B 1-3     | none  | 4    |
    """,
    ),
    Case(
        "nobody is there while it waits",
        source="5.17, 0.21",
        says="""
        What waits goes on to do so when the last consumer leaves, and comes in due order to whoever comes next.""",
        table="""
        | s | publish       | requests                     | delivered | waits       | backlog | delayed |
        | 0 | 1@4 1@2 1@3 1 | A subscribe Shared; A flow 4 | A 3       | 0@4 1@2 2@3 | 4       | 3       |
        | 1 |               | A ack 3; A close             |           | 0@4 1@2 2@3 | 3       | 3       |
        | 5 | 1             | B subscribe Shared; B flow 2 | B 1-2     | 0@4         | 4       | 0       |
        | 6 |               | B flow 2                     | B 0 4     | none        | 4       | 0       |
    """,
    ),
    Case(
        "switched off",
        source="pulsar-admin set-delayed-delivery --disable; recorded: delayed_policy_off",
        says="""
        With delayed delivery off nothing waits: what did comes at once.""",
        table="""
        | s | publish | requests                                                         | delivered | waits | permits |
        | 0 | 1@9 1   | A subscribe Shared; A flow 9                                     | A 1       | 0@9   | A 8     |
        | 1 | 1@9     | policy delayed_delivery_active 0                                 | A 0 2     | none  | A 6     |
        | 2 | 1@9     |                                                                  | A 3       | none  | A 5     |
    """,
    ),
    Case(
        "switched on again",
        source="pulsar-admin set-delayed-delivery --enable",
        says="""
        What was not delivered while it was off waits for its deliver time.""",
        table="""
        | s | publish | requests                                                       | delivered | waits | permits |
        | 0 | 1@9 1   | policy delayed_delivery_active 0; A subscribe Shared; A flow 1 | A 0       | none  | A 0     |
        | 1 | 1@9     | policy delayed_delivery_active 1; A ack 0                      |           | none  | A 0     |
        | 2 | 1@7     | A flow 9                                                       | A 1       | 2@9 3@7 | A 8   |
        | 7 |         |                                                                | A 3       | 2@9   | A 7     |
        | 9 |         |                                                                | A 2       | none  | A 6     |
    """,
    ),
    Case(
        "partly acknowledged while nobody was there",
        source="2.6",
        says="""
        What is left of it waits for its deliver time, unless those who come know none.""",
        table="""
        | s | publish | requests                         | delivered | waits | replay | mark-delete |
        | 0 | 1@9 2@9 | create Earliest                  |           | none  | none   | -1          |
        | 1 |         | A ack 1 left 1                   |           | 1@9   | none   | -1          |
        | 2 |         | A subscribe Failover             |           | none  | 1{1}   | -1          |
        | 3 |         | A flow 1                         | A 0       | none  | 1{1}   | -1          |
    """,
    ),
    Case(
        "handed out while it was off",
        source="ours, after 5.1: who reads an entry again looks at its deliver time",
        says="""
        Once it is on again, what had come back waits for its deliver time. Who holds an entry by then may give it back, and gets it at once; whoever comes when all have left waits.""",
        table="""
 | s | publish     | requests                                                       | delivered | waits | pending | replay |
 | 0 | 1@7 1@8 1@9 | policy delayed_delivery_active 0; A subscribe Shared; A flow 3 | A 0-2     | none  | A 0-2   | none   |
 | 1 |             | A nack 0                                                       |           | none  | A 1-2   | 0+1    |
 | 2 |             | policy delayed_delivery_active 1                               |           | 0@7   | A 1-2   | none   |
 | 3 |             | A nack 1; A flow 1                                             | A 1+1     | 0@7   | A 1+1 2 | none   |
 | 4 |             | A close                                                        |           | 0@7   | none    | 1+1 2  |
 | 5 |             | B subscribe Shared; B flow 9                                   |           | 0@7 1@8 2@9 | none | none |
 | 7 |             |                                                                | B 0+1     | 1@8 2@9 | B 0+1 | none   |
 | 8 |             |                                                                | B 1+1     | 2@9   | B 0-1+1 | none |
 | 9 |             |                                                                | B 2       | none  | B 0-1+1 2 | none |
    """,
    ),
    Case(
        "switched on where it is on",
        source="pulsar-admin set-delayed-delivery",
        says="""
        Nothing changes: what came back from who held it as deliver times began to count comes at once, as before.""",
        table="""
 | s | publish | requests                                                       | delivered | waits | replay |
 | 0 | 1@7     | policy delayed_delivery_active 0; A subscribe Shared; A flow 1 | A 0       | none  | none   |
 | 1 |         | policy delayed_delivery_active 1; B subscribe Shared           |           | none  | none   |
 | 2 |         | A close                                                        |           | none  | 0      |
 | 3 |         | policy delayed_delivery_active 1                               |           | none  | 0      |
 | 4 |         | B flow 1                                                       | B 0       | none  | none   |
    """,
    ),
    Case(
        "off and on again in one round",
        source="pulsar-admin set-delayed-delivery",
        says="""
        What waited waits on; what was acknowledged stays so.""",
        table="""
 | s | publish | requests                                                                       | delivered | waits   |
 | 0 | 1@3 1 1@4 | A subscribe Shared; A flow 9                                                 | A 1       | 0@3 2@4 |
 | 1 |         | policy delayed_delivery_active 0; policy delayed_delivery_active 1; A ack 1    |           | 0@3 2@4 |
 | 3 |         |                                                                                | A 0       | 2@4     |
 | 4 |         |                                                                                | A 2       | none    |
    """,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, history):
    check(case, history[case.name])
