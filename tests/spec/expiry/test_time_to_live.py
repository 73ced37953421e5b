"""What is deleted unread: time to live, and a quota of time that evicts."""

import pytest

from tests.spec.history import check
from tests.spec.table import Case

CASES = [
    Case(
        "older than its time to live",
        source="3.29",
        says="""
        At a check everything is acknowledged that was published more than the time to live ago, strictly.""",
        table="""
        | s | publish | requests                                                                        | delivered | mark-delete | read |
        | 0 | 1*2     | create Earliest; policy message_ttl_seconds 2; policy ttl_check_seconds 1       |           | -1          | 0    |
        | 1 | 1       |                                                                                 |           | -1          | 0    |
        | 2 |         |                                                                                 |           | -1          | 0    |
        | 3 |         |                                                                                 |           | 1           | 2    |
        | 4 |         | A subscribe Shared; A flow 9                                                    |           | 2           | 3    |
    """,
    ),
    Case(
        "only when it is looked",
        source="3.29",
        says="""
        Between two checks nothing expires.""",
        table="""
        | s | publish | requests                                                                        | delivered | mark-delete |
        | 0 | 1       | create Earliest; policy message_ttl_seconds 1; policy ttl_check_seconds 4       |           | -1          |
        | 1 |         |                                                                                 |           | -1          |
        | 2 |         |                                                                                 |           | -1          |
        | 3 |         | A subscribe Exclusive; A flow 9                                                 | A 0       | -1          |
        | 4 |         |                                                                                 |           | 0           |
    """,
    ),
    Case(
        "in flight as well",
        source="3.29",
        says="""
        What a consumer holds expires like the rest, and is no longer unacknowledged.""",
        table="""
        | s | publish | requests                                                                        | delivered | pending | unacked | mark-delete |
        | 0 | 1 4     | A subscribe Shared; A flow 9; policy message_ttl_seconds 1; policy ttl_check_seconds 1 | A 0-1 | A 0-1 | A 5 | -1 |
        | 1 | 1       | A nack 1 after 9                                                                | A 2       | A 0-2   | A 6     | -1          |
        | 2 |         |                                                                                 |           | A 2     | A 1     | 1           |
    """,
    ),
    Case(
        "never before its deliver time",
        source="0.26, against 3.29",
        says="""
        A delayed entry is spared, what lies around it goes; its time to live begins with its deliver time; mark-delete runs on when it is gone.""",
        table="""
        | s | publish   | requests                                                                      | delivered | mark-delete | acked | waits |
        | 0 | 1 1@4 1   | create Earliest; policy message_ttl_seconds 1; policy ttl_check_seconds 1     |           | -1          | none  | none  |
        | 1 |           | A subscribe Shared; A flow 1                                                  | A 0       | -1          | none  | 1@4   |
        | 2 |           |                                                                               |           | 0           | 2     | 1@4   |
        | 3 |           |                                                                               |           | 0           | 2     | 1@4   |
        | 4 |           | A flow 1                                                                      | A 1       | 0           | 2     | none  |
        | 5 |           |                                                                               |           | 0           | 2     | none  |
        | 6 |           |                                                                               |           | 2           | none  | none  |
    """,
    ),
    Case(
        "while it waits",
        source="0.26",
        says="""
        A delayed entry that waits is spared likewise, and delivered when it is due.""",
        table="""
 | s | publish | requests | delivered | mark-delete | acked | waits |
 | 0 | 1@3 1 | A subscribe Shared; A flow 9; policy message_ttl_seconds 1; policy ttl_check_seconds 1 | A 1 | -1 | none | 0@3 |
 | 1 | | | | -1 | none | 0@3 |
 | 2 | | | | -1 | 1 | 0@3 |
 | 3 | | | A 0 | -1 | 1 | none |
    """,
    ),
    Case(
        "off again",
        source="3.29",
        says="""
        0 is off.""",
        table="""
        | s | publish | requests                                                                        | delivered | mark-delete |
        | 0 | 1       | create Earliest; policy message_ttl_seconds 1; policy ttl_check_seconds 1       |           | -1          |
        | 1 |         | policy message_ttl_seconds 0                                                    |           | -1          |
        | 2 |         |                                                                                 |           | -1          |
        | 3 |         |                                                                                 |           | -1          |
    """,
    ),
    Case(
        "removed",
        source="pulsar-admin remove-message-ttl",
        says="""
        A policy that is removed is as if it had never been set; to remove what is not set is no error, to remove what does not exist is.""",
        table="""
 | s | publish | requests | delivered | refused | mark-delete |
 | 0 | 1*2 | create Earliest; policy message_ttl_seconds 1; policy ttl_check_seconds 1; policy message_ttl_seconds | | | -1 |
 | 1 | | policy message_ttl_seconds | | | -1 |
 | 2 | | policy colour | | admin InvalidConfiguration | -1 |
 | 3 | 1 | policy message_ttl_seconds 1 | | | 1 |
 | 4 | | policy message_ttl_seconds | | | 1 |
 | 5 | | | | | 1 |
    """,
    ),
    Case(
        "no policy it could be",
        source="3.30",
        says="""
        A value that a policy cannot have is refused and changes nothing.""",
        table="""
 | s | publish | requests | delivered | refused | mark-delete |
 | 0 | 1 | create Earliest; policy message_ttl_seconds 1; policy ttl_check_seconds 1 | | | -1 |
 | 1 | | policy backlog_quota_policy drop | | admin InvalidConfiguration | -1 |
 | 2 | | policy message_ttl_seconds -5 | | admin InvalidConfiguration | 0 |
    """,
    ),
    Case(
        "evicted by age",
        source="3.30",
        says="""
        A time quota with eviction skips what is older, on every subscription.""",
        table="""
 | s | publish | requests | delivered | mark-delete | pending |
 | 0 | 1*2 | create Earliest; policy backlog_quota_seconds 2; policy backlog_quota_policy consumer_backlog_eviction; policy ttl_check_seconds 1 | | -1 | none |
 | 1 | 1@9 | other/A subscribe Exclusive; other/A flow 1 | other/A 0 | -1 | none |
 | 2 | | | | -1 | none |
 | 3 | | other/A flow 1 | other/A 2 | 1 | none |
 | 4 | | | | 2 | none |
    """,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, history):
    check(case, history[case.name])
