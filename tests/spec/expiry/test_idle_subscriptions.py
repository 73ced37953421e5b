"""Subscriptions that nobody consumes are deleted after a while. In these cases their state is shown, or that another of
that name begins again."""

import pytest

from tests.spec.history import check
from tests.spec.table import Case

POLICIES = "policy subscription_expiration_minutes 1; policy ttl_check_seconds 1"

CASES = [
    Case(
        "idle for too long",
        source="3.31",
        says="""
        A subscription that had no consumer for more than its time, strictly, is gone: a consumer of its name begins where it asks to.""",
        table=f"""
        | s  | publish | requests                                         | delivered | refused                   | mark-delete |
        | 0  | 1*3     | create Earliest; {POLICIES}                      |           |                           | -1          |
        | 60 |         | skip 1                                           |           |                           | 0           |
        | 61 |         |                                                  |           |                           |             |
        | 62 |         | skip 1                                           |           | admin SubscriptionNotFound |            |
        | 63 | 1       | A subscribe Shared Latest; A flow 9              |           |                           | 3           |
    """,
    ),
    Case(
        "consumers keep it",
        source="3.31",
        says="""
        While a consumer is connected, be it idle, a subscription lives; its time counts from when the last one left.""",
        table=f"""
        | s   | publish | requests                            | delivered | mark-delete | type   |
        | 0   | 1       | create Earliest; {POLICIES}         |           | -1          |        |
        | 50  |         | A subscribe Shared; A flow 9        | A 0       | -1          | Shared |
        | 200 |         |                                     |           | -1          | Shared |
        | 201 |         | A close                             |           | -1          | none   |
        | 261 |         | A subscribe Exclusive; A flow 9     | A 0       | -1          | Exclusive |
    """,
    ),
    Case(
        "a consumer of one round",
        source="3.31",
        says="""
        To come counts, and to go; also when both are in one round. A lease that ends is a consumer that goes.""",
        table=f"""
        | s   | publish | requests                            | delivered | mark-delete |
        | 0   | 1       | create Earliest; {POLICIES}         |           | -1          |
        | 60  |         | A subscribe Shared; A close         |           | -1          |
        | 120 |         | A subscribe Shared lease 9          |           | -1          |
        | 129 |         |                                     |           | -1          |
        | 189 |         | A subscribe Shared; A flow 9        | A 0       | -1          |
    """,
    ),
    Case(
        "what administrators do keeps nothing",
        source="3.31",
        says="""
        Acknowledgements that nobody connected asks for, skips and seeks are no activity of a consumer.""",
        table=f"""
        | s   | publish | requests                            | delivered | refused                    | mark-delete |
        | 0   | 1*9     | create Earliest; {POLICIES}         |           |                            | -1          |
        | 30  |         | A ack 0; skip 1                     |           |                            | 1           |
        | 59  |         | seek 4; expire 0                    |           |                            | 8           |
        | 60  |         |                                     |           |                            | 8           |
        | 61  |         | clear                               |           |                            |             |
        | 62  |         | clear                               |           | admin SubscriptionNotFound |             |
    """,
    ),
    Case(
        "only when it is looked for idle ones",
        source="3.31",
        says="""
        Between two checks nothing is deleted.""",
        table="""
        | s   | publish | requests                                                                                        | delivered | mark-delete |
        | 0   | 1       | create Earliest; policy subscription_expiration_minutes 1; policy ttl_check_seconds 100         |           | -1          |
        | 99  |         |                                                                                                 |           | -1          |
        | 100 |         |                                                                                                 |           |             |
        | 101 |         | A subscribe Shared Latest                                                                       |           | 0           |
    """,
    ),
    Case(
        "never by default",
        source="3.31",
        says="""
        Without the policy, or with 0, nothing is deleted, however old.""",
        table="""
        | s    | publish | requests                                                                                       | delivered | mark-delete |
        | 0    | 1       | create Earliest; policy message_ttl_seconds 99999; policy ttl_check_seconds 1                  |           | -1          |
        | 9000 |         | policy subscription_expiration_minutes 0                                                       |           | -1          |
        | 9999 |         | policy subscription_expiration_minutes 9999                                                    |           | -1          |
    """,
    ),
    Case(
        "all partitions at once",
        source="3.31",
        partitions=2,
        says="""
        A subscription goes with its cursors on all partitions.""",
        table=f"""
        | s   | publish | requests                            | delivered           | refused                                                | mark-delete |
        | 0   | 1       | create Earliest; {POLICIES}         |                     |                                                        | -1          |
        | 50  |         | A subscribe Shared; A flow 9        | A p0:0 p1:0         |                                                        | -1          |
        | 99  |         | A close                             |                     |                                                        | -1          |
        | 159 |         |                                     |                     |                                                        | -1          |
        | 160 |         |                                     |                     |                                                        |             |
        | 161 |         | clear                               |                     | admin SubscriptionNotFound; admin SubscriptionNotFound |             |
    """,
    ),
    Case(
        "another one stays",
        source="3.31",
        says="""
        What is idle goes; the topic's other subscriptions do not.""",
        table=f"""
        | s   | publish | requests                                                       | delivered         | mark-delete |
        | 0   | 1       | create Earliest; other/B subscribe Shared; other/B flow 9; {POLICIES} | other/B 0  | -1          |
        | 61  | 1       |                                                                | other/B 1         |             |
        | 62  |         | other/B nack 0                                                 | other/B 0+1       |             |
    """,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, history):
    check(case, history[case.name])
