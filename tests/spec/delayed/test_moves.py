"""Entries that wait while the subscription moves: seek, skip, clear, expire, time to live, unsubscribe, and those who
come late."""

import pytest

from tests.spec.history import check
from tests.spec.table import Case

CASES = [
    Case(
        "seek back",
        source="3.26, 0.24",
        says="""
        What lies behind the position sought waits anew, as far as its deliver time is to come; the rest goes by position.""",
        table="""
        | s | publish         | requests                     | delivered | reset | waits   | mark-delete |
        | 0 | 1@1 1 1@5 1@2 1 | A subscribe Shared; A flow 9 | A 1 4     |       | 0@1 2@5 3@2 | -1      |
        | 1 |                 | A ack 1; A ack 4             | A 0       |       | 2@5 3@2 | -1          |
        | 2 |                 | A ack 0                      | A 3       |       | 2@5     | 1           |
        | 3 |                 | A seek earliest; A flow 9    | A 0-1 3-4 | A     | 2@5     | -1          |
        | 4 |                 | A ack 0-4                    |           |       | none    | 4           |
        | 5 |                 |                              |           |       | none    | 4           |
    """,
    ),
    Case(
        "seek over what waits",
        source="3.26",
        says="""
        What lies before the position sought is acknowledged, also what waits.""",
        table="""
        | s | publish       | requests                     | delivered | reset | waits   | mark-delete | backlog | delayed |
        | 0 | 1@3 1 1@3 1@4 | A subscribe Shared; A flow 9 | A 1       |       | 0@3 2@3 3@4 | -1      | 4       | 3       |
        | 1 |               | A seek 3; A flow 9           |           | A     | 3@4     | 2           | 1       | 1       |
        | 3 |               |                              |           |       | 3@4     | 2           | 1       | 1       |
        | 4 |               |                              | A 3       |       | none    | 2           | 1       | 0       |
    """,
    ),
    Case(
        "seek to the end and back",
        source="3.26",
        says="""
        Nothing is forgotten for good: a seek back finds all that the topic has.""",
        table="""
        | s | publish | requests                     | delivered | reset | waits   | mark-delete |
        | 0 | 1@3 1@9 | A subscribe Shared; A flow 9 |           |       | 0@3 1@9 | -1          |
        | 1 |         | A seek latest; A flow 9      |           | A     | none    | 1           |
        | 4 |         |                              |           |       | none    | 1           |
        | 5 |         | A seek 0; A flow 9           | A 0       | A     | 1@9     | -1          |
        | 9 |         |                              | A 1       |       | none    | -1          |
    """,
    ),
    Case(
        "skip",
        source="3.27, 5.20",
        says="""
        The next n entries of the backlog are skipped, waiting or not.""",
        table="""
        | s | publish         | requests                     | delivered | waits       | mark-delete |
        | 0 | 1 1@3 1 1@2 1@4 | A subscribe Shared; A flow 9 | A 0 2     | 1@3 3@2 4@4 | -1          |
        | 1 |                 | A ack 0; A ack 2             |           | 1@3 3@2 4@4 | 0           |
        | 2 |                 | skip 2                       |           | 4@4         | 3           |
        | 3 |                 |                              |           | 4@4         | 3           |
        | 4 |                 |                              | A 4       | none        | 3           |
    """,
    ),
    Case(
        "clear",
        source="3.27, 5.18",
        says="""
        The whole backlog is acknowledged, also what waits; what is published later is not.""",
        table="""
        | s | publish   | requests                     | delivered | waits   | mark-delete | backlog | delayed |
        | 0 | 1@3 1 1@3 | A subscribe Shared; A flow 9 | A 1       | 0@3 2@3 | -1          | 3       | 2       |
        | 1 |           | clear                        |           | none    | 2           | 0       | 0       |
        | 2 | 1@3       |                              |           | 3@3     | 2           | 1       | 1       |
        | 3 |           |                              | A 3       | none    | 2           | 1       | 0       |
    """,
    ),
    Case(
        "expire",
        source="3.29, pulsar-admin expire-messages",
        says="""
        Who asks for what is older than so many seconds to go means what waits as well.""",
        table="""
        | s | publish | requests                     | delivered | waits   | mark-delete |
        | 0 | 1@9 1@4 | A subscribe Shared; A flow 9 |           | 0@9 1@4 | -1          |
        | 2 | 1@4     |                              |           | 0@9 1@4 2@4 | -1      |
        | 3 |         | expire 2                     |           | 2@4     | 1           |
        | 4 |         |                              | A 2       | none    | 1           |
    """,
    ),
    Case(
        "time to live spares what waits",
        source="0.26, against 3.29",
        says="""
        Its time to live begins with its deliver time; what lies around it goes.""",
        table="""
 | s | publish     | requests                                                                              | delivered | waits   | mark-delete | acked |
 | 0 | 1 1@3 1 1@5 | A subscribe Shared; A flow 9; policy message_ttl_seconds 1; policy ttl_check_seconds 1 | A 0 2     | 1@3 3@5 | -1          | none  |
 | 1 |             |                                                                                       |           | 1@3 3@5 | -1          | none  |
 | 2 |             |                                                                                       |           | 1@3 3@5 | 0           | 2     |
 | 3 |             |                                                                                       | A 1       | 3@5     | 0           | 2     |
 | 4 |             |                                                                                       |           | 3@5     | 0           | 2     |
 | 5 |             |                                                                                       | A 3       | none    | 2           | none  |
 | 6 |             |                                                                                       |           | none    | 2           | none  |
 | 7 |             |                                                                                       |           | none    | 3           | none  |
    """,
    ),
    Case(
        "time to live behind what is done",
        source="0.26",
        says="""
        What came due and was acknowledged is not looked at again, while others wait.""",
        table="""
 | s | publish     | requests                                                                              | delivered | waits   | mark-delete |
 | 0 | 1@2 1@9     | A subscribe Shared; A flow 9; policy message_ttl_seconds 3; policy ttl_check_seconds 1 |           | 0@2 1@9 | -1          |
 | 2 |             |                                                                                       | A 0       | 1@9     | -1          |
 | 3 |             | A ack 0                                                                               |           | 1@9     | 0           |
 | 4 |             |                                                                                       |           | 1@9     | 0           |
 | 5 | 1           |                                                                                       | A 2       | 1@9     | 0           |
 | 9 |             |                                                                                       | A 1       | none    | 0           |
    """,
    ),
    Case(
        "unsubscribe",
        source="5.18, 0.24",
        says="""
        What waits goes with the subscription; a new one of the name finds it in the topic.""",
        table="""
        | s | publish | requests                     | delivered | waits   | mark-delete |
        | 0 | 1@3 1@9 | A subscribe Shared; A flow 9 |           | 0@3 1@9 | -1          |
        | 1 |         | A unsubscribe                |           |         |             |
        | 4 |         | B subscribe Shared; B flow 9 | B 0       | 1@9     | -1          |
        | 9 |         |                              | B 1       | none    | -1          |
    """,
    ),
    Case(
        "a new subscription from earliest",
        source="0.24",
        says="""
        One index serves all subscriptions: one that comes later waits for what is to come, and gets the rest by position.""",
        table="""
        | s | publish           | requests                                 | delivered    | waits   |
        | 0 | 1@2 1 1@5 1@1 1@4 | other/A subscribe Shared; other/A flow 9 | other/A 1    |         |
        | 1 |                   |                                          | other/A 3    |         |
        | 2 |                   | other/A ack 0-1                          |              |         |
        | 3 |                   | B subscribe Shared; B flow 2             | B 0-1        | 2@5 4@4 |
        | 4 |                   | B flow 9                                 | B 3-4; other/A 4 | 2@5 |
        | 5 |                   |                                          | B 2; other/A 2 | none  |
    """,
    ),
    Case(
        "a new subscription from latest",
        source="3.15",
        says="""
        What waits already is not its own.""",
        table="""
        | s | publish | requests                                                             | delivered | waits |
        | 0 | 1@2 1   | other/A subscribe Shared; other/A flow 9                             | other/A 1 |       |
        | 1 |         | B subscribe Shared Latest; B flow 9                                  |           | none  |
        | 2 | 1@3     |                                                                      | other/A 0 | 2@3   |
        | 3 |         |                                                                      | other/A 2; B 2 | none |
    """,
    ),
    Case(
        "a consumer that comes a year later",
        source="0.24, 5.16",
        says="""
        Nothing is forgotten; what came due in between goes in the order in which it came due, the rest waits on.""",
        table="""
        | s        | publish             | requests                       | delivered | waits                     | mark-delete |
        | 0        | 1 1@63072000 1@20 1@10 1 | A subscribe Shared; A flow 9 | A 0 4  | 1@63072000 2@20 3@10      | -1          |
        | 1        |                     | A ack 0; A ack 4; A close      |           | 1@63072000 2@20 3@10      | 0           |
        | 31536000 |                     | B subscribe Shared; B flow 1   | B 3       | 1@63072000 2@20           | 0           |
        | 31536001 |                     | B ack 3; B flow 5              | B 2       | 1@63072000                | 0           |
        | 31536002 |                     | B ack 2; B close               |           | 1@63072000                | 0           |
        | 63072000 |                     | C subscribe Shared; C flow 5   | C 1       | none                      | 0           |
        | 63072001 |                     | C ack 1                        |           | none                      | 4           |
    """,
    ),
]


@pytest.mark.default
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, history):
    check(case, history[case.name])
