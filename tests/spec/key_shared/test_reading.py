"""How much everybody gets, how far reading goes past what waits, and what delays mean to a key.

Of the keys of A and B, a d are A's and b c e B's.
"""

import pytest

from tests.spec.history import check
from tests.spec.table import Case

CASES = [
    Case(
        "permits count entries",
        source="2.38",
        says="""
        A batch takes one place in what a consumer may be given at once, so permits may go far below zero.""",
        table="""
        | s | publish      | requests                        | delivered | permits | unacked |
        | 0 | 10=a 5=a 1=a | A subscribe KeyShared; A flow 2 | A 0-1     | A -13   | A 15    |
        | 1 |              | A flow 13                       |           | A 0     | A 15    |
        | 2 |              | A flow 1                        | A 2       | A 0     | A 16    |
    """,
    ),
    Case(
        "room counts entries too",
        source="2.38, 4.4",
        says="""
        So does what is missing to the limit of unacknowledged messages; at the limit the consumer is blocked, alone.""",
        table="""
        | s | publish             | requests                                                                                                       | delivered  | unacked  | blocked |
        | 0 | 3=a 3=a 3=a 1=b 1=a | policy max_unacked_messages_per_consumer 2; A subscribe KeyShared; B subscribe KeyShared; A flow 20; B flow 20 | A 0-1; B 3 | A 6; B 1 | A       |
        | 1 | 1=b                 |                                                                                                                | B 5        | A 6; B 2 | A B     |
        | 2 |                     | A ack 0-1                                                                                                      | A 2 4      | A 4; B 2 | A B     |
    """,
    ),
    Case(
        "permits are for own keys",
        source="2.38, 2.14",
        says="""
        Priority levels mean nothing here, and nobody gets another one's keys, however many permits there are.""",
        table="""
        | s | publish         | requests                                                                     | delivered  | permits   |
        | 0 | 1=a 1=b 1=d 1=c | A subscribe KeyShared priority 1; B subscribe KeyShared; A flow 20; B flow 1 | A 0 2; B 1 | A 18; B 0 |
    """,
    ),
    Case(
        "how far reading goes past what waits",
        source="2.39, keySharedLookAheadMsgInReplayThresholdPerConsumer",
        says="""
        Behind as many entries that wait as the policy says, for each consumer, nothing is read; 0 is no limit.""",
        table="""
        | s | publish                 | requests                                                                                                                              | delivered    | read |
        | 0 | 1=b 1=b 1=a 1=b 1=a 1=a | policy key_shared_look_ahead_msg_in_replay_threshold_per_consumer 2; A subscribe KeyShared; B subscribe KeyShared; A flow 9; B flow 1 | A 2 4-5; B 0 | 1    |
        | 1 | 1=b 1=b 1=b 1=a         |                                                                                                                                       |              | 1    |
        | 2 |                         | B flow 2                                                                                                                              | A 9; B 1 3   | 6    |
        | 3 | 1=b 1=a                 |                                                                                                                                       |              | 6    |
        | 4 |                         | policy key_shared_look_ahead_msg_in_replay_threshold_per_consumer 0                                                                   | A 11         | 6    |
    """,
    ),
    Case(
        "what comes again goes before what is new at the limit",
        source="0.36, 2.38, 2.39",
        says="""
        With one permit, and as many entries waiting for B as reading may pass over, A gets first what it gave back.""",
        table="""
        | s | publish             | requests                                                                                                                              | delivered | permits |
        | 0 | 1=a 1=b 1=b 1=a     | policy key_shared_look_ahead_msg_in_replay_threshold_per_consumer 1; A subscribe KeyShared; B subscribe KeyShared; A flow 1           | A 0       | A 0; B 0 |
        | 1 | 1=a                 | A nack 0                                                                                                                              |           | A 0; B 0 |
        | 2 |                     | A flow 1                                                                                                                              | A 0+1     | A 0; B 0 |
        | 3 |                     | A ack 0; A flow 1; B flow 2                                                                                                           | A 3; B 1-2 | A 0; B 0 |
    """,
    ),
    Case(
        "how far for all consumers together",
        source="2.39, keySharedLookAheadMsgInReplayThresholdPerSubscription",
        says="""
        The smaller of both limits holds.""",
        table="""
        | s | publish | requests                                                                                                                        | delivered |
        | 0 | 1=b 1=b | policy key_shared_look_ahead_msg_in_replay_threshold_per_subscription 2; A subscribe KeyShared; B subscribe KeyShared; A flow 9 |           |
        | 1 | 1=a     |                                                                                                                                 |           |
        | 2 |         | policy key_shared_look_ahead_msg_in_replay_threshold_per_subscription 3                                                         | A 2       |
    """,
    ),
    Case(
        "a subscription at its limit",
        source="4.5",
        says="""
        At the limit of the subscription nothing new goes out, but what came back does.""",
        table="""
        | s | publish | requests                                                                         | delivered | blocked      |
        | 0 | 1*9=a   | policy max_unacked_messages_per_subscription 4; A subscribe KeyShared; A flow 20 | A 0-3     | subscription |
        | 1 |         | A nack 2                                                                         | A 2+1     | subscription |
        | 2 |         | A ack 0-2                                                                        | A 4-6     | subscription |
    """,
    ),
    Case(
        "a delayed entry does not hold back its key",
        source="2.6, 5.4, 0.21",
        says="""
        Later entries of its key go before it; when its time has come it goes to whoever owns the key.""",
        table="""
        | s | publish       | requests                         | delivered | waits |
        | 0 | 1=b@3 1=b 1=a | A subscribe KeyShared; A flow 20 | A 1-2     | 0@3   |
        | 1 |               | A ack 1-2                        |           | 0@3   |
        | 2 | 1=b           | B subscribe KeyShared; B flow 20 | B 3       | 0@3   |
        | 3 |               |                                  | B 0       |       |
    """,
    ),
    Case(
        "a delayed entry whose key drains",
        source="5.4, 0.22",
        says="""
        It is due, and waits like the others of its key.""",
        table="""
        | s | publish   | requests                         | delivered |
        | 0 | 1=b 1=b@3 | A subscribe KeyShared; A flow 20 | A 0       |
        | 2 |           | B subscribe KeyShared; B flow 20 |           |
        | 4 | 1=b       |                                  |           |
        | 5 |           | A ack 0                          | B 1-2     |
    """,
    ),
    Case(
        "due entries of a key go in due order",
        source="0.21, 5.3",
        says="""
        By deliver time, then by position; before what was never delivered.""",
        table="""
        | s | publish           | requests                         | delivered |
        | 0 | 1=a@5 1=a@4 1=a@4 | A subscribe KeyShared; A flow 20 |           |
        | 4 | 1=a               |                                  | A 1-3     |
        | 5 |                   |                                  | A 0       |
    """,
    ),
    Case(
        "a consumer that knows no limits",
        source="design 4, DataFrame consumers",
        says="""
        While one is there that takes deliveries too large for limits, none holds, nor does that of reading past what waits.""",
        table="""
        | s | publish             | requests                                                                                                                                                                            | delivered |
        | 0 | 1=b 1=b 1=b 1=a 1=a | policy key_shared_look_ahead_msg_in_replay_threshold_per_subscription 1; policy max_unacked_messages_per_consumer 1; A subscribe KeyShared limit 0; B subscribe KeyShared; A flow 9 | A 3-4     |
    """,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, history):
    check(case, history[case.name])
