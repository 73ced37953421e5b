"""Failover: one consumer receives, the others stand by."""

import pytest

from tests.spec.history import check
from tests.spec.table import Case

CASES = [
    Case(
        "a better priority takes over at once",
        source="2.10, 2.11, golden k3",
        says="""
        Level 0 is the best. What the former active consumer had not acknowledged is delivered again, all of it, the count as it was (0.20).""",
        table="""
        | s | publish | requests                                  | delivered | active | pending | permits  |
        | 0 | 1*5     | A subscribe Failover priority 1; A flow 3 | A 0-2     | A      | A 0-2   | A 0      |
        | 1 |         | A ack 1; B subscribe Failover priority 0  |           | B      | none    | A 0; B 0 |
        | 2 |         | B flow 10; A flow 5                       | B 0 2-4   | B      | B 0 2-4 | A 5; B 6 |
        | 3 |         | B cumulative 4; B close                   |           | A      | none    | A 5      |
    """,
    ),
    Case(
        "a standby keeps its permits",
        source="2.11, 2.13",
        says="""
        It receives nothing; when its turn comes, the permits it asked for before count. It starts a second later, so that acknowledgements of the
        former one still on their way arrive first.""",
        table="""
        | s | publish | requests                                                                   | delivered | active | replay | permits  |
        | 0 | 1*4     | A subscribe Failover priority 0; B subscribe Failover priority 1; B flow 4 |           | A      | none   | A 0; B 4 |
        | 1 |         | A flow 2                                                                   | A 0-1     | A      | none   | A 0; B 4 |
        | 2 |         | A close                                                                    |           | B      | 0-1    | B 4      |
        | 3 |         |                                                                            | B 0-3     | B      | none   | B 0      |
    """,
    ),
    Case(
        "without a delay",
        source="2.11",
        partitions=1,
        says="""
        A policy takes the wait away: the new active consumer receives in the round in which it becomes active.""",
        table="""
        | s | publish | requests                                                                   | delivered | active | pending |
        | 0 | 1*2     | policy active_consumer_failover_delay_ms 0; A subscribe Failover; A flow 9 | A 0-1     | A      | A 0-1   |
        | 1 |         | Z subscribe Failover; Z flow 9                                             |           |        |         |
        | 2 |         | A close                                                                    | Z 0-1     | Z      | Z 0-1   |
    """,
    ),
    Case(
        "partitions are dealt by name",
        source="2.7, 2.8, golden e",
        partitions=3,
        says="""
        Partition i belongs to the i-th consumer by name, counted round, whoever joined first; capitals come before small letters.""",
        table="""
        | s | publish | requests                       | delivered           | active |
        | 0 |         | b subscribe Failover; b flow 9 |                     | b b b  |
        | 1 |         | a subscribe Failover; a flow 9 |                     | a b a  |
        | 2 | 1       |                                | a p0:0 p2:0; b p1:0 | a b a  |
        | 3 |         | Z subscribe Failover           |                     | Z a b  |
        | 4 |         | Z close                        |                     | a b a  |
        | 5 |         |                                | a p0:0 p2:0; b p1:0 | a b a  |
    """,
    ),
    Case(
        "only the best priority takes part",
        source="2.8, golden e",
        partitions=2,
        says="""
        Consumers of a worse level stand by for all partitions, until nobody better is left.""",
        table="""
        | s | publish | requests                                                                    | delivered | active |
        | 0 |         | a subscribe Failover priority 1; b subscribe Failover; c subscribe Failover |           | b c    |
        | 1 |         | c close                                                                     |           | b b    |
        | 2 |         | b close                                                                     |           | a a    |
    """,
    ),
    Case(
        "a topic without partitions is placed on a ring",
        source="2.9, golden e",
        topic_name="persistent://public/default/non-partitioned-topic-4",
        says="""
        The topic's name decides, not who came first; when somebody else leaves, nothing changes for the active one.""",
        table="""
        | s | publish | requests             | delivered | active |
        | 0 |         | A subscribe Failover |           | A      |
        | 1 |         | B subscribe Failover |           | B      |
        | 2 |         | C subscribe Failover |           | B      |
        | 3 |         | A close              |           | B      |
        | 4 |         | B close              |           | C      |
    """,
    ),
    Case(
        "an equal newcomer changes nothing",
        source="2.10",
        partitions=1,
        says="""
        While the active consumer stays the same, nothing is delivered twice.""",
        table="""
        | s | publish | requests                       | delivered | active | pending |
        | 0 | 1*2     | a subscribe Failover; a flow 9 | a 0-1     | a      | a 0-1   |
        | 1 |         | b subscribe Failover; b flow 9 |           | a      | a 0-1   |
        | 2 | 1       | b close                        | a 2       | a      | a 0-2   |
    """,
    ),
]


@pytest.mark.default
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, history):
    check(case, history[case.name])
