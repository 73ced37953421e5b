"""What waits may be cancelled and moved, by whoever administers the subscription (0.33)."""

import pytest

from tests.spec.history import check
from tests.spec.table import Case

CASES = [
    Case(
        "cancel",
        source="0.33, 0.24",
        says="""
        An entry that waits is acknowledged; it does not come, and holds mark-delete back no longer.""",
        table="""
        | s | publish       | requests                     | delivered | meant | waits   | mark-delete | backlog | delayed |
        | 0 | 1@3 1 1@2 2@3 | A subscribe Shared; A flow 9 | A 1       |       | 0@3 2@2 3@3 | -1      | 4       | 3       |
        | 1 |               | cancel 0                     |           | 1     | 2@2 3@3 | 0           | 3       | 2       |
        | 2 |               | cancel 3                     | A 2       | 1     | none    | 0           | 2       | 0       |
        | 3 |               | A ack 1-2                    |           |       | none    | 3           | 0       | 0       |
    """,
    ),
    Case(
        "cancel of what does not wait",
        source="issue 11: what bad input gets",
        says="""
        What was delivered meanwhile, acknowledged, or never waited stays as it is; the answer says how many were meant.""",
        table="""
        | s | publish         | requests                       | delivered | meant | waits   | pending | mark-delete | refused |
        | 0 | 1@1 1 1@4 1@4 1 | A subscribe Shared; A flow 9   | A 1 4     |       | 0@1 2@4 3@4 | A 1 4 | -1        |         |
        | 1 |                 |                                | A 0       |       | 2@4 3@4 | A 0-1 4 | -1          |         |
        | 2 |                 | cancel 0; cancel 0-1; cancel 4 |           | 0 0 0 | 2@4 3@4 | A 0-1 4 | -1          |         |
        | 3 |                 | A ack 2; cancel 0-4            |           | 1     | none    | A 0-1 4 | -1          |         |
        | 4 |                 | cancel 0-4                     |           | 0     | none    | A 0-1 4 | -1          |         |
        | 5 |                 | cancel 4-5; cancel 9           |           |       | none    | A 0-1 4 | -1          | admin InvalidMessage; admin InvalidMessage |
        | 6 |                 | A ack 0-4                      |           |       | none    | none    | 4           |         |
    """,
    ),
    Case(
        "cancel for one subscription",
        source="0.33",
        says="""
        The message stays, and others wait for it.""",
        table="""
        | s | publish | requests                                                               | delivered | meant | waits |
        | 0 | 1@2 1   | A subscribe Shared; A flow 9; other/B subscribe Shared; other/B flow 9 | A 1; other/B 1 |  | 0@2   |
        | 1 |         | cancel 0-1                                                             |           | 1     | none  |
        | 2 |         |                                                                        | other/B 0 |       | none  |
    """,
    ),
    Case(
        "later",
        source="0.33",
        says="""
        An entry that waits waits for another time, for one subscription.""",
        table="""
        | s | publish | requests                                                               | delivered | meant | waits   | mark-delete |
        | 0 | 1@2 1@3 | A subscribe Shared; A flow 9; other/B subscribe Shared; other/B flow 9 |           |       | 0@2 1@3 | -1          |
        | 1 |         | reschedule 0 4                                                         |           | 1     | 0@4 1@3 | -1          |
        | 2 |         |                                                                        | other/B 0 |       | 0@4 1@3 | -1          |
        | 3 |         |                                                                        | A 1; other/B 1 |  | 0@4     | -1          |
        | 4 |         | A ack 1                                                                | A 0       |       | none    | -1          |
        | 5 |         | A ack 0                                                                |           |       | none    | 1           |
    """,
    ),
    Case(
        "sooner and at once",
        source="0.33",
        says="""
        A time that has come is at once, as when it is published.""",
        table="""
        | s | publish     | requests                     | delivered | meant | waits       |
        | 0 | 1@9 1@9 1@9 | A subscribe Shared; A flow 9 |           |       | 0@9 1@9 2@9 |
        | 1 |             | reschedule 1 3               |           | 1     | 0@9 1@3 2@9 |
        | 2 |             | reschedule 2 -7              | A 2       | 1     | 0@9 1@3     |
        | 3 |             | reschedule 0 3               | A 0-1     | 1     | none        |
    """,
    ),
    Case(
        "in the order of the new times",
        source="0.33, 0.21",
        says="""
        Where more is due than permits allow, the time an entry was moved to decides.""",
        table="""
        | s | publish     | requests                         | delivered | meant | waits       |
        | 0 | 1@2 1@3 1@4 | A subscribe Shared; A flow 3     |           |       | 0@2 1@3 2@4 |
        | 1 |             | reschedule 0 5; A close          |           | 1     | 0@5 1@3 2@4 |
        | 6 |             | B subscribe Shared; B flow 1     | B 1       |       | 0@5 2@4     |
        | 7 |             | B flow 1                         | B 2       |       | 0@5         |
        | 8 |             | B flow 1                         | B 0       |       | none        |
    """,
    ),
    Case(
        "moved twice and then cancelled",
        source="0.33",
        says="""
        What was moved may be moved again, and cancelled.""",
        table="""
        | s | publish   | requests                          | delivered | meant | waits | mark-delete |
        | 0 | 1@3 1@3 1 | A subscribe Shared; A flow 9      | A 2       |       | 0@3 1@3 | -1        |
        | 1 |           | reschedule 0-2 5; reschedule 0 7  |           | 2 1   | 0@7 1@5 | -1        |
        | 2 |           | cancel 0                          |           | 1     | 1@5   | 0           |
        | 5 |           |                                   | A 1       |       | none  | 0           |
        | 6 |           | reschedule 0-2 9                  |           | 0     | none  | 0           |
        | 7 |           | A ack 1-2                         |           |       | none  | 2           |
    """,
    ),
    Case(
        "moved and given back",
        source="0.33, 4.21",
        says="""
        Once delivered it comes back like any other.""",
        table="""
        | s | publish | requests                     | delivered | meant | waits | permits |
        | 0 | 2@3     | A subscribe Shared; A flow 9 |           |       | 0@3   | A 9     |
        | 1 |         | reschedule 0 2               |           | 1     | 0@2   | A 9     |
        | 2 |         |                              | A 0       |       | none  | A 7     |
        | 3 |         | A nack 0                     | A 0+1     |       | none  | A 5     |
    """,
    ),
    Case(
        "moved and the type changes",
        source="0.33, 2.6",
        says="""
        Exclusive knows no deliver times, whoever gave them.""",
        table="""
        | s | publish | requests                        | delivered | meant | waits   |
        | 0 | 1@5 1@5 | A subscribe Shared; A flow 9    |           |       | 0@5 1@5 |
        | 1 |         | reschedule 0 8; A close         |           | 1     | 0@8 1@5 |
        | 2 |         | B subscribe Exclusive; B flow 9 | B 0-1     |       | none    |
    """,
    ),
    Case(
        "what nobody has met yet",
        source="0.33, 0.24",
        says="""
        What waits is known from the topic, whether a consumer had permits for it or not.""",
        table="""
        | s | publish   | requests                 | delivered | meant | waits | mark-delete |
        | 0 | 1 1@5 1@6 | A subscribe Shared       |           |       | none  | -1          |
        | 1 |           | cancel 1; reschedule 2 3 |           | 1 1   | 2@3   | -1          |
        | 2 |           | A flow 9                 | A 0       |       | 2@3   | -1          |
        | 3 |           |                          | A 2       |       | none  | -1          |
        | 4 |           | A ack 0; A ack 2         |           |       | none  | 2           |
    """,
    ),
    Case(
        "cancelled before anybody came",
        source="0.33",
        says="""
        It is acknowledged like any other: mark-delete passes it.""",
        table="""
        | s | publish | requests                     | delivered | meant | mark-delete | read | backlog | delayed |
        | 0 | 1@9 1@8 1 | create Earliest; cancel 0  |           | 1     | 0           | 1    | 2       | 1       |
        | 1 |         | A subscribe Shared; A flow 9 | A 2       |       | 0           | 3    | 2       | 1       |
    """,
    ),
    Case(
        "acknowledged part by part before anybody came",
        source="0.33, 3.20",
        says="""
        Once nothing is left of it mark-delete passes it, as one that was acknowledged whole.""",
        table="""
        | s | publish   | requests                   | delivered | meant | mark-delete | read | waits |
        | 0 | 2@9 1@8 1 | create Earliest; cancel 1  |           | 1     | -1          | 0    | 0@9   |
        | 1 |           | A ack 0 left 1             |           |       | -1          | 2    | 0@9   |
        | 2 |           | A ack 0 left 0             |           |       | 1           | 2    | none  |
    """,
    ),
    Case(
        "time to live of what was moved",
        source="0.26, 0.33",
        says="""
        What waits lives by the time it waits for; what was handed out, by no earlier than the one it was published with.""",
        table="""
 | s | publish     | requests                                                                               | delivered | meant | waits       | pending | mark-delete |
 | 0 | 1@9 1@2 1@9 | A subscribe Shared; A flow 9; policy message_ttl_seconds 2; policy ttl_check_seconds 1 |           |       | 0@9 1@2 2@9 | none    | -1          |
 | 1 |             | reschedule 0 2; reschedule 1 5                                                         |           | 1 1   | 0@2 1@5 2@9 | none    | -1          |
 | 2 |             |                                                                                        | A 0       |       | 1@5 2@9     | A 0     | -1          |
 | 4 |             | A nack 0 after 1                                                                       |           |       | 1@5 2@9     | A 0     | -1          |
 | 5 |             |                                                                                        | A 0+1 1   |       | 2@9         | A 0+1 1 | -1          |
 | 6 |             |                                                                                        |           |       | 2@9         | A 0+1   | -1          |
 | 9 |             |                                                                                        | A 2       |       | none        | A 0+1 2 | -1          |
 | 13 |            |                                                                                        |           |       | none        | none    | 2           |
    """,
    ),
    Case(
        "moved before somebody comes",
        source="0.33, 0.26",
        says="""
        What is left of a batch that was acknowledged in part and moved waits for the time it was moved to, whoever comes, and lives as long.""",
        table="""
 | s | publish | requests                                                                  | delivered | meant | waits | mark-delete |
 | 0 | 2@5     | create Earliest; policy message_ttl_seconds 1; policy ttl_check_seconds 1 |           |       | none  | -1          |
 | 1 |         | A ack 0 left 1                                                            |           |       | 0@5   | -1          |
 | 2 |         | reschedule 0 8                                                            |           | 1     | 0@8   | -1          |
 | 3 |         | A subscribe Shared; A flow 9                                              |           |       | 0@8   | -1          |
 | 7 |         |                                                                           |           |       | 0@8   | -1          |
 | 8 |         |                                                                           | A 0{1}    |       | none  | -1          |
    """,
    ),
]


@pytest.mark.default
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, history):
    check(case, history[case.name])
