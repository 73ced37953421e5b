"""Delayed delivery: entries with a deliver time, on subscriptions that honour it and on those that do not. Never early
(0.21)."""

import pytest

from tests.spec.history import check
from tests.spec.table import Case

CASES = [
    Case(
        "waits on shared",
        source="5.1, 0.21, 4.9",
        says="""
        An entry met before its deliver time waits, costs no permits and is no redelivery; it holds back mark-delete (5.20).
        It is backlog, and delayed, and not unacknowledged.""",
        table="""
        | s | publish   | requests                     | delivered | waits | replay | permits | unacked | mark-delete | backlog | delayed |
        | 0 | 1 1@2 1   | A subscribe Shared; A flow 9 | A 0 2     | 1@2   | none   | A 7     | A 2     | -1          | 3       | 1       |
        | 1 |           | A ack 0; A ack 2             |           | 1@2   | none   | A 7     | A 0     | 0           | 1       | 1       |
        | 2 |           |                              | A 1       | none  | none   | A 6     | A 1     | 0           | 1       | 0       |
        | 3 |           | A ack 1                      |           | none  | none   | A 6     | A 0     | 2           | 0       | 0       |
    """,
    ),
    Case(
        "at once on exclusive",
        source="2.6, golden k3",
        says="""
        Exclusive and Failover keep the order of positions and know no deliver times.""",
        table="""
        | s | publish | requests                        | delivered | waits | pending |
        | 0 | 1 1@9 1 | A subscribe Exclusive; A flow 9 | A 0-2     | none  | A 0-2   |
        | 1 | 1@9     |                                 | A 3       | none  | A 0-3   |
    """,
    ),
    Case(
        "at once on failover",
        source="2.6, golden k3",
        says="""
        Likewise.""",
        table="""
        | s | publish | requests                       | delivered |
        | 0 | 1@9 1   | A subscribe Failover; A flow 9 | A 0-1     |
    """,
    ),
    Case(
        "due already",
        source="5.7",
        says="""
        A deliver time that has come is none.""",
        table="""
        | s | publish | requests                     | delivered | waits | permits |
        | 0 |         | A subscribe Shared; A flow 9 |           | none  | A 9     |
        | 1 | 1@1 1@2 |                              | A 0       | 1@2   | A 8     |
        | 2 |         |                              | A 1       | none  | A 7     |
    """,
    ),
    Case(
        "what is due goes before what is new",
        source="4.7, 4.8",
        says="""
        As far as permits go.""",
        table="""
        | s | publish     | requests                     | delivered | waits   | permits |
        | 0 | 1@3 1@2 1@2 | A subscribe Shared; A flow 3 |           | 0@3 1@2 2@2 | A 3 |
        | 1 |             |                              |           | 0@3 1@2 2@2 | A 3 |
        | 2 | 1*2         |                              | A 1-3     | 0@3     | A 0     |
        | 3 |             |                              |           | 0@3     | A 0     |
        | 4 |             | A flow 2                     | A 0 4     | none    | A 0     |
    """,
    ),
    Case(
        "in order of deliver time",
        source="0.21, 5.3, golden i1",
        says="""
        Where more is due than permits allow, it goes by deliver time, and of one time by position.""",
        table="""
        | s | publish             | requests                     | delivered | waits                   | permits |
        | 0 | 1@4 1@3 1@4 1@2 1@3 | A subscribe Shared; A flow 9 |           | 0@4 1@3 2@4 3@2 4@3     | A 9     |
        | 1 |                     | A close; B subscribe Shared  |           | 0@4 1@3 2@4 3@2 4@3     | B 0     |
        | 5 |                     | B flow 2                     | B 1 3     | 0@4 2@4 4@3             | B 0     |
        | 6 |                     | B flow 2                     | B 0 4     | 2@4                     | B 0     |
        | 7 | 1@9                 | B flow 2                     | B 2       | 5@9                     | B 1     |
    """,
    ),
    Case(
        "what comes back goes before what is due",
        source="design 4, step 6; 4.7, 0.21",
        says="""
        An entry that was given back has been waited for already: it goes first, by position, whatever its deliver time was.
        What has come due goes next, in order of deliver time, and what was never met last.""",
        table="""
        | s | publish       | requests                                 | delivered   | waits       | replay  | permits |
        | 0 | 1@2 1@3 1@2 1 | A subscribe Shared; A flow 9             | A 3         | 0@2 1@3 2@2 | none    | A 8     |
        | 1 |               | A close; B subscribe Shared              |             | 0@2 1@3 2@2 | 3       | B 0     |
        | 4 | 1             | B flow 1                                 | B 3         | 0@2 1@3 2@2 | none    | B 0     |
        | 5 |               | B flow 1                                 | B 0         | 1@3 2@2     | none    | B 0     |
        | 6 |               | B nack 0; B flow 1                       | B 0+1       | 1@3 2@2     | none    | B 0     |
        | 7 |               | B flow 2                                 | B 1-2       | none        | none    | B 0     |
        | 8 |               | B flow 2                                 | B 4         | none        | none    | B 1     |
    """,
    ),
    Case(
        "ranges of one deliver time are dealt out in part",
        source="0.21, 5.3",
        says="""
        A run of entries of one time is split where permits end; what is left of it waits in its place, before what is due later
        and lies before it.""",
        table="""
        | s | publish     | requests                     | delivered | waits               | permits |
        | 0 | 1@3 1*3@2 1@2 | A subscribe Shared; A flow 9 |         | 0@3 1@2 2@2 3@2 4@2 | A 9     |
        | 1 |             | A close; B subscribe Shared  |           | 0@3 1@2 2@2 3@2 4@2 | B 0     |
        | 4 |             | B flow 2                     | B 1-2     | 0@3 3@2 4@2         | B 0     |
        | 5 |             | B flow 2; B nack 1           | B 1+1 3   | 0@3 4@2             | B 0     |
        | 6 |             | B flow 2                     | B 0 4     | none                | B 0     |
    """,
    ),
    Case(
        "several consumers share what is due first",
        source="0.21, 2.14",
        says="""
        What the permits of all together allow goes by deliver time; who of them gets which is as ever.""",
        table="""
        | s | publish             | requests                                                                | delivered | waits                   |
        | 0 | 1@4 1@3 1@4 1@2 1@3 | A subscribe Shared; A flow 9                                            |           | 0@4 1@3 2@4 3@2 4@3     |
        | 1 |                     | A close; B subscribe Shared; C subscribe Shared                         |           | 0@4 1@3 2@4 3@2 4@3     |
        | 5 |                     | B flow 1; C flow 2                                                      | B+C 1 3-4 | 0@4 2@4                 |
    """,
    ),
    Case(
        "each subscription by itself",
        source="0.24",
        says="""
        A deliver time is the entry's; what one subscription has waited for another need not have met.""",
        table="""
        | s | publish | requests                                 | delivered | waits |
        | 0 | 1@2 1   | A subscribe Shared; A flow 9             | A 1       | 0@2   |
        | 1 |         | other/B subscribe Exclusive; other/B flow 9 | other/B 0-1 | 0@2 |
        | 2 |         |                                          | A 0       | none  |
    """,
    ),
    Case(
        "given back after its time",
        source="4.21",
        says="""
        Once delivered it is an entry like any other: it comes back at once, counted.""",
        table="""
        | s | publish | requests                     | delivered | waits | pending |
        | 0 | 1@1     | A subscribe Shared; A flow 9 |           | 0@1   | none    |
        | 1 |         |                              | A 0       | none  | A 0     |
        | 2 |         | A nack 0                     | A 0+1     | none  | A 0+1   |
    """,
    ),
    Case(
        "acknowledged while it waits",
        source="3.11, 5.20",
        says="""
        An acknowledgement needs no delivery.""",
        table="""
        | s | publish | requests                     | delivered | waits | mark-delete |
        | 0 | 1@3 1   | A subscribe Shared; A flow 9 | A 1       | 0@3   | -1          |
        | 1 |         | A ack 0                      |           | none  | 0           |
        | 2 |         |                              |           | none  | 0           |
        | 3 |         |                              |           | none  | 0           |
    """,
    ),
    Case(
        "partly acknowledged before it is read",
        source="0.21, 0.23",
        says="""
        An acknowledgement of a part, of an entry that nobody has met yet, does not bring it forward.""",
        table="""
        | s | publish | requests                     | delivered   | waits   |
        | 0 | 2@2 1   | A subscribe Shared           |             | none    |
        | 1 |         | A ack 0 left 1; A flow 9     | A 1         | 0@2     |
        | 2 |         |                              | A 0{1}      | none    |
    """,
    ),
    Case(
        "partly acknowledged while it waits",
        source="0.21, 0.23",
        says="""
        Nor does one of an entry that waits. It comes in its turn, and costs what is left of it.""",
        table="""
        | s | publish   | requests                     | delivered   | waits   | permits | unacked | mark-delete |
        | 0 | 3@2 1@2 1 | A subscribe Shared; A flow 9 | A 2         | 0@2 1@2 | A 8     | A 1     | -1          |
        | 1 |           | A ack 0 left 0,2             |             | 0@2 1@2 | A 8     | A 1     | -1          |
        | 2 |           |                              | A 0{0,2} 1  | none    | A 5     | A 4     | -1          |
        | 3 |           | A nack 0; A ack 1            | A 0+1{0,2}  | none    | A 3     | A 3     | -1          |
        | 4 |           | A ack 0                      |             | none    | A 3     | A 1     | 1           |
    """,
    ),
    Case(
        "partly acknowledged in the round that reads it",
        source="0.21, 0.23",
        says="""
        Nor does one that comes together with the first permits, whatever it leaves.""",
        table="""
        | s | publish       | requests                                       | delivered | waits   | permits |
        | 0 | 1@9 2@8 1@1 1 |                                                |           |         |         |
        | 1 |               | A subscribe Shared; A ack 0 left 0; A ack 1 left 1; A flow 3 | A 2-3 | 0@9 1@8 | A 1 |
        | 2 |               | A flow 9                                       |           | 0@9 1@8 | A 10    |
        | 8 |               |                                                | A 1{1}    | 0@9     | A 9     |
        | 9 |               |                                                | A 0{0}    | none    | A 8     |
    """,
    ),
    Case(
        "partly acknowledged behind its time",
        source="5.7, 0.21",
        says="""
        A deliver time that had come before anybody met the entry is none: what is left of it has its place by position,
        whether more is behind it or not.""",
        table="""
        | s | publish | requests                          | delivered | waits | replay | pending |
        | 0 | 1 2@2   | A subscribe Shared                |           |       |        |         |
        | 3 |         | A flow 1                          | A 0       | none  | none   | A 0     |
        | 4 |         | A ack 1 left 1; A nack 0; A flow 1 | A 0+1     | none  | 1{1}   | A 0+1   |
        | 5 | 1       | A nack 0; A flow 2                 | A 0+2 1{1} | none | none  | A 0+2 1{1} |
    """,
    ),
    Case(
        "partly acknowledged behind its time while nobody can take it",
        source="5.7, 0.21",
        says="""
        Likewise; behind what came back, which lies before it.""",
        table="""
        | s | publish | requests                   | delivered  | waits | replay | pending    |
        | 0 | 1 2@2   | A subscribe Shared         |            |       |        |            |
        | 3 |         | A flow 1                   | A 0        | none  | none   | A 0        |
        | 4 |         | A ack 1 left 1             |            | none  | 1{1}   | A 0        |
        | 5 |         | A nack 0; A flow 2         | A 0+1 1{1} | none  | none   | A 0+1 1{1} |
    """,
    ),
    Case(
        "partly acknowledged behind its time with others behind it",
        source="5.7, 0.21",
        says="""
        Likewise.""",
        table="""
        | s | publish | requests                          | delivered | waits | replay | pending |
        | 0 | 1 2@2 1 | A subscribe Shared                |           |       |        |         |
        | 3 |         | A flow 1                          | A 0       | none  | none   | A 0     |
        | 4 |         | A ack 1 left 1; A nack 0; A flow 1 | A 0+1     | none  | 1{1}   | A 0+1   |
    """,
    ),
    Case(
        "permits are for what is due",
        source="0.21, 4.9",
        says="""
        However much waits, what came back and what is new goes out as far as permits allow; with the deliver time it costs its messages.""",
        table="""
        | s | publish       | requests                     | delivered | waits       | permits | read |
        | 0 | 1@5 3@5 1@5 1 | A subscribe Shared; A flow 4 | A 3       | 0@5 1@5 2@5 | A 3     | 4    |
        | 1 | 1             | A nack 3                     | A 3+1 4   | 0@5 1@5 2@5 | A 1     | 5    |
        | 5 |               |                              | A 0       | 1@5 2@5     | A 0     | 5    |
        | 6 |               | A flow 1                     | A 1       | 2@5         | A -2    | 5    |
        | 7 |               | A flow 3                     | A 2       | none        | A 0     | 5    |
    """,
    ),
    Case(
        "limits hold back what is new",
        source="4.5, 0.21",
        says="""
        A subscription at its limit of unacknowledged messages is given what has come due, as it is what came back, and nothing new.""",
        table="""
 | s | publish   | requests | delivered | waits | unacked | blocked |
 | 0 | 1 1@2 1*2 | policy max_unacked_messages_per_subscription 2; A subscribe Shared; A flow 9 | A 0 2 | 1@2 | A 2 | subscription |
 | 1 |           |                                                                              |       | 1@2 | A 2 | subscription |
 | 2 |           |                                                                              | A 1   | none | A 3 | subscription |
 | 3 |           | A ack 0-2                                                                    | A 3   | none | A 1 | none |
    """,
    ),
    Case(
        "dead without a deliver time",
        source="4.26, 0.20",
        says="""
        An entry that came due and is given back too often dies as any other.""",
        table="""
        | s | publish | requests                           | delivered | waits | letters | mark-delete |
        | 0 | 1@1 1   | A subscribe Shared max 1; A flow 9 | A 1       | 0@1   | none    | -1          |
        | 1 |         |                                    | A 0       | none  | none    | -1          |
        | 2 |         | A nack 0                           | A 0+1     | none  | none    | -1          |
        | 3 |         | A nack 0; A ack 1                  |           | none  | 0+2     | 1           |
    """,
    ),
    Case(
        "put off while it waits",
        source="4.23, 5.20",
        says="""
        A message that waits can be put off like any other; the entry is acknowledged with that.""",
        table="""
        | s | publish | requests                     | delivered | waits | later | mark-delete |
        | 0 | 1@9 1   | A subscribe Shared; A flow 9 | A 1       | 0@9   | none  | -1          |
        | 1 |         | A later 0                    |           | none  | 0+1   | 0           |
    """,
    ),
    Case(
        "partitions each by themselves",
        source="0.21, design 10",
        says="""
        Due order is one of a topic partition, as positions are.""",
        partitions=2,
        table="""
        | s | publish | requests                     | delivered | waits |
        | 0 | 1@2 1@1 | A subscribe Shared; A flow 1 |           | 0@2 1@1 |
        | 1 |         |                              | A p0:1 p1:1 | 0@2 |
        | 2 |         | A flow 1                     | A p0:0 p1:0 | none |
    """,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, history):
    check(case, history[case.name])
