"""Shared: everyone receives, within permits and limits. Which one gets which entry is open (0.28); how many is not."""

import pytest

from tests.spec.history import check
from tests.spec.table import Case

CASES = [
    Case(
        "permits bound what each consumer gets",
        source="2.15, 2.16, 4.2",
        says="""
        A consumer without permits gets nothing; the others get no more than they asked for.""",
        table="""
        | s | publish | requests                                                                       | delivered | permits       | unacked       |
        | 0 | 1*10    | A subscribe Shared; B subscribe Shared; C subscribe Shared; A flow 3; B flow 2 | A+B 0-4   | A 0; B 0; C 0 | A 3; B 2; C 0 |
        | 1 |         | C flow 1; A flow 1                                                             | A+C 5-6   | A 0; B 0; C 0 | A 4; B 2; C 1 |
    """,
    ),
    Case(
        "equal consumers get equal shares",
        source="2.16, 0.28",
        says="""
        Consumers of one level share a backlog evenly as far as their permits go; what one cannot take goes to the other.""",
        table="""
        | s | publish | requests                                                       | delivered     | permits            | unacked         |
        | 0 | 1*100   | A subscribe Shared; B subscribe Shared; A flow 500; B flow 500 | A+B 0-99      | A 450; B 450       | A 50; B 50      |
        | 1 |         | C subscribe Shared; C flow 30                                  |               | A 450; B 450; C 30 | A 50; B 50; C 0 |
        | 2 | 1*330   |                                                                | A+B+C 100-429 | A+B 600; C 0       | A+B 400; C 30   |
    """,
    ),
    Case(
        "a better priority is served first",
        source="2.14, golden f",
        says="""
        Level 1 gets what level 0 has no permits for.""",
        table="""
        | s | publish | requests                                                                      | delivered      | permits      |
        | 0 |         | low subscribe Shared priority 1; low flow 9; top subscribe Shared; top flow 2 |                | low 9; top 2 |
        | 1 | 1*3     |                                                                               | top 0-1; low 2 | low 8; top 0 |
        | 2 | 1*3     | top flow 3                                                                    | top 3-5        | low 8; top 0 |
    """,
    ),
    Case(
        "an entry is never split",
        source="2.17, golden k1",
        says="""
        A batch goes out whole to a consumer with one permit; its permits are then below zero, and it waits until they are above.""",
        table="""
        | s | publish | requests                     | delivered | permits | unacked |
        | 0 | 100 1   | A subscribe Shared; A flow 1 | A 0       | A -99   | A 100   |
        | 1 |         | A flow 99                    |           | A 0     | A 100   |
        | 2 |         | A flow 1                     | A 1       | A 0     | A 101   |
    """,
    ),
    Case(
        "permits that are left give one entry more",
        source="2.16, 2.17",
        says="""
        25 permits are three batches of 10 in one round, and end 5 below zero. Entries of several sizes count as the largest
        that permits reach.""",
        table="""
        | s | publish   | requests                      | delivered | permits | unacked |
        | 0 | 10*5      | A subscribe Shared; A flow 25 | A 0-2     | A -5    | A 30    |
        | 1 |           | A flow 26                     | A 3-4     | A 1     | A 50    |
        | 2 | 2 2 2 10  |                               | A 5       | A -1    | A 52    |
        | 3 |           | A flow 12                     | A 6-7     | A 7     | A 56    |
        | 4 |           |                               | A 8       | A -3    | A 66    |
    """,
    ),
    Case(
        "what comes again of batches leaves its permits to whole ones",
        source="2.16, 2.17, 4.7, 0.28",
        says="""
        Two batches come again, of each of which two messages are left. They count as what they are, so that a whole one
        behind them goes out with the permits that are left, in the same round.""",
        table="""
        | s | publish | requests                               | delivered             | permits | unacked |
        | 0 | 10*4    | A subscribe Shared; A flow 20          | A 0-1                 | A 0     | A 20    |
        | 1 |         | A ack 0 left 2,7; A ack 1 left 0,1     |                       | A 0     | A 4     |
        | 2 |         | A nack 0-1                             |                       | A 0     | A 0     |
        | 3 |         | A flow 5                               | A 0+1{2,7} 1+1{0,1} 2 | A -9    | A 14    |
        | 4 |         | A nack 0-1; A flow 12                  | A 0+2{2,7} 1+2{0,1}   | A -1    | A 14    |
        | 5 |         | A nack 0-1; A flow 2                   | A 0+3{2,7}            | A -1    | A 12    |
        | 6 |         | B subscribe Shared; B flow 1; A flow 9 | A+B 1+3{0,1} 3        | A+B -3  | A+B 24  |
    """,
    ),
    Case(
        "replay goes before new entries",
        source="4.7, 4.8",
        says="""
        What came back is delivered first, by position; new entries follow.""",
        table="""
        | s | publish | requests                     | delivered | pending       | replay  |
        | 0 | 1*4     | A subscribe Shared; A flow 3 | A 0-2     | A 0-2         | none    |
        | 1 | 1       | A nack 2                     |           | A 0-1         | 2+1     |
        | 2 |         | A nack 0                     |           | A 1           | 0+1 2+1 |
        | 3 |         | A flow 1                     | A 0+1     | A 0+1 1       | 2+1     |
        | 4 |         | A flow 2                     | A 2+1 3   | A 0+1 1 2+1 3 | none    |
    """,
    ),
    Case(
        "a consumer is blocked at its limit",
        source="4.4 [4.x], recorded on 4.0.8: max_unacked_per_consumer_blocks",
        says="""
        At the limit of unacknowledged messages it gets nothing more, whatever its permits; at half of the limit it goes on.""",
        table="""
        | s | publish | requests                                                                   | delivered | unacked | blocked |
        | 0 | 1*14    | policy max_unacked_messages_per_consumer 6; A subscribe Shared; A flow 100 | A 0-5     | A 6     | A       |
        | 1 |         | A ack 0                                                                    |           | A 5     | A       |
        | 2 |         | A ack 1                                                                    |           | A 4     | A       |
        | 3 |         | A ack 2                                                                    | A 6-8     | A 6     | A       |
        | 4 |         | A ack 3-8                                                                  | A 9-13    | A 5     | none    |
    """,
    ),
    Case(
        "asking for redelivery unblocks",
        source="4.4, golden k1",
        says="""
        A negative acknowledgement that brings something back unblocks its consumer, even above half of the limit.""",
        table="""
        | s | publish | requests                                                                   | delivered           | unacked | blocked |
        | 0 | 1*9     | policy max_unacked_messages_per_consumer 6; A subscribe Shared; A flow 100 | A 0-5               | A 6     | A       |
        | 1 |         | A ack 0                                                                    |                     | A 5     | A       |
        | 2 |         | A nack 5                                                                   | A 5+1 6             | A 6     | A       |
        | 3 |         | A ack 1                                                                    |                     | A 5     | A       |
        | 4 |         | A redeliver; A ack 2                                                       | A 3-4+1 5+2 6+1 7-8 | A 6     | A       |
    """,
    ),
    Case(
        "asking for redelivery of what is no longer held unblocks too",
        source="4.4",
        says="""
        It is the request that unblocks, also when the entry it names has been acknowledged meanwhile.""",
        table="""
        | s | publish | requests                                                                   | delivered | unacked | blocked |
        | 0 | 1*9     | policy max_unacked_messages_per_consumer 6; A subscribe Shared; A flow 100 | A 0-5     | A 6     | A       |
        | 1 |         | A ack 0                                                                    |           | A 5     | A       |
        | 2 |         | A nack 0                                                                   | A 6       | A 6     | A       |
        | 3 |         | A ack 1; A nack 1                                                          | A 7       | A 6     | A       |
    """,
    ),
    Case(
        "a delayed negative acknowledgement unblocks when due",
        source="4.4, 4.15",
        says="""
        The request for redelivery is the one made when the delay is over; until then nothing comes back, so nothing is unblocked.""",
        table="""
        | s | publish | requests                                                                   | delivered | unacked | blocked |
        | 0 | 1*9     | policy max_unacked_messages_per_consumer 6; A subscribe Shared; A flow 100 | A 0-5     | A 6     | A       |
        | 1 |         | A ack 0; A nack 5 after 2                                                  |           | A 5     | A       |
        | 2 |         |                                                                            |           | A 5     | A       |
        | 3 |         |                                                                            | A 5+1 6   | A 6     | A       |
    """,
    ),
    Case(
        "permits given to a blocked consumer count",
        source="4.4",
        says="""
        A flow of a blocked consumer is not lost: it adds to its permits.""",
        table="""
        | s | publish | requests                                                                 | delivered | permits | blocked |
        | 0 | 1*9     | policy max_unacked_messages_per_consumer 2; A subscribe Shared; A flow 2 | A 0-1     | A 0     | A       |
        | 1 |         | A flow 3                                                                 |           | A 3     | A       |
        | 2 |         | A ack 0-1                                                                | A 2-3     | A 1     | A       |
    """,
    ),
    Case(
        "a batch may overshoot the limit",
        source="4.4, 2.17",
        says="""
        A consumer below its limit may be sent a whole batch; the limit is checked afterwards.""",
        table="""
        | s | publish | requests                                                                   | delivered | unacked | blocked |
        | 0 | 10 10   | policy max_unacked_messages_per_consumer 4; A subscribe Shared; A flow 100 | A 0       | A 10    | A       |
        | 1 |         | A ack 0                                                                    | A 1       | A 10    | A       |
    """,
    ),
    Case(
        "a subscription is blocked at its limit",
        source="4.5, golden k1",
        says="""
        At the limit of the subscription nothing new goes out, but what came back does; below half of it new entries go on.""",
        table="""
        | s | publish | requests                                                                       | delivered | unacked | blocked      |
        | 0 | 1*14    | policy max_unacked_messages_per_subscription 6; A subscribe Shared; A flow 100 | A 0-5     | A 6     | subscription |
        | 1 |         | A ack 0-1                                                                      |           | A 4     | subscription |
        | 2 |         | A nack 3                                                                       | A 3+1     | A 4     | subscription |
        | 3 |         | A ack 2                                                                        |           | A 3     | subscription |
        | 4 |         | A ack 3                                                                        | A 6-9     | A 6     | subscription |
    """,
    ),
    Case(
        "a limit that is raised",
        source="4.4, 4.5",
        says="""
        Whoever is held back by a limit goes on when it is raised, or taken away, without having to acknowledge first.""",
        table="""
        | s | publish | requests                                                                       | delivered | unacked | blocked      |
        | 0 | 1*14    | policy max_unacked_messages_per_consumer 2; A subscribe Shared; A flow 100     | A 0-1     | A 2     | A            |
        | 1 |         | policy max_unacked_messages_per_consumer 6                                     | A 2-5     | A 6     | A            |
        | 2 |         | policy max_unacked_messages_per_subscription 6                                 |           | A 6     | A subscription |
        | 3 |         | policy max_unacked_messages_per_consumer 0                                     |           | A 6     | subscription |
        | 4 |         | policy max_unacked_messages_per_subscription 0                                 | A 6-13    | A 14    | none         |
    """,
    ),
    Case(
        "a limit that is lowered",
        source="4.4, 4.5",
        says="""
        A lower limit holds from the next delivery on; what is out stays out.""",
        table="""
        | s | publish | requests                                                                       | delivered | unacked | blocked      |
        | 0 | 1*3     | A subscribe Shared; A flow 100                                                 | A 0-2     | A 3     | none         |
        | 1 |         | policy max_unacked_messages_per_consumer 2                                     |           | A 3     | A            |
        | 2 | 1       | A ack 0                                                                        |           | A 2     | A            |
        | 3 |         | A ack 1                                                                        | A 3       | A 2     | A            |
    """,
    ),
    Case(
        "a consumer that knows no limits",
        source="design 4, DataFrame consumers",
        says="""
        A consumer of large deliveries joins: no limit holds for the subscription while it is there, also for those held back before.""",
        table="""
        | s | publish | requests                                                                       | delivered | unacked  | blocked        |
        | 0 | 1*9     | policy max_unacked_messages_per_consumer 2; A subscribe Shared; A flow 3       | A 0-1     | A 2      | A              |
        | 1 |         | policy max_unacked_messages_per_subscription 2                                 |           | A 2      | A subscription |
        | 2 |         | B subscribe Shared limit 0; B flow 3                                           | A+B 2-5   | A+B 6    | none           |
        | 3 |         | B close                                                                        |           | A 3      | A subscription |
    """,
    ),
    Case(
        "limits leave exclusive alone",
        source="4.4, 4.5",
        says="""
        The limits of unacknowledged messages are for types that acknowledge one by one.""",
        table="""
        | s | publish | requests                                                                                   | delivered | blocked |
        | 0 |         | policy max_unacked_messages_per_consumer 2; policy max_unacked_messages_per_subscription 2 |           |         |
        | 1 | 1*9     | A subscribe Exclusive; A flow 100                                                          | A 0-8     | none    |
    """,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, history):
    check(case, history[case.name])
