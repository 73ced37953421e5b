"""The message is the unit: one permit, one unacknowledged message, and with all its chunks acknowledged, given back,
put off, dead, expired, skipped."""

import pytest

from tests.spec.history import check
from tests.spec.table import Case

CASES = [
    Case(
        "one permit",
        source="issue 12, against 1.21: permits count entries there",
        says="""
        A message takes one permit, however many chunks it has; chunks of what is incomplete take none.""",
        table="""
        | s | publish                   | requests                        | delivered           | permits | unacked | pending   |
        | 0 | A:0-4/5 B:0-1/3 C:0-1/2   | A subscribe Exclusive; A flow 1 | A 4[0,1,2,3,4]      | A 0     | A 1     | A 4       |
        | 1 |                           | A flow 1                        | A 8[7,8]            | A 0     | A 2     | A 4 8     |
    """,
    ),
    Case(
        "one unacknowledged message",
        source="issue 12, 4.2",
        says="""
        Limits of unacknowledged messages count it once.""",
        table="""
        | s | publish                 | requests                                                                      | delivered          | blocked | unacked |
        | 0 | A:0-2/3 B:0-2/3 C:0-2/3 | policy max_unacked_messages_per_consumer 2; A subscribe Shared; A flow 9      | A 2[0,1,2] 5[3,4,5] | A      | A 2     |
        | 1 |                         | A ack 2                                                                       | A 8[6,7,8]         | A       | A 2     |
    """,
    ),
    Case(
        "acknowledged with all its chunks",
        source="1.16",
        says="""
        The id of a message acknowledges all its chunks; mark-delete does not pass the first before that.""",
        table="""
        | s | publish                     | requests                        | delivered            | mark-delete | acked |
        | 0 | 1 A:0/3 1 A:1/3 1 A:2/3 1   | A subscribe Exclusive; A flow 9 | A 0 2 4 5[1,3,5] 6   | -1          | none  |
        | 1 |                             | A ack 0; A ack 2; A ack 6       |                      | 0           | 2 6   |
        | 2 |                             | A ack 5 receipt                 |                      | 3           | 5-6   |
        | 3 |                             | A ack 4                         |                      | 6           | none  |
    """,
    ),
    Case(
        "cumulatively",
        source="1.16, 1.7",
        says="""
        A cumulative acknowledgement means the messages up to that place, by their last chunks; one that is complete behind it is not lost, though its first chunks lie before.""",
        table="""
        | s | publish               | requests                        | delivered          | mark-delete | pending | acked |
        | 0 | A:0/2 1 B:0/2 A:1/2 1 | A subscribe Exclusive; A flow 9 | A 1 3[0,3] 4       | -1          | A 1 3 4 | none  |
        | 1 |                       | A cumulative 1                  |                    | -1          | A 3 4   | 1     |
        | 2 |                       | A cumulative 4                  |                    | 1           | none    | 3-4   |
        | 3 | B:1/2                 |                                 | A 5[2,5]           | 1           | A 5     | 3-4   |
        | 4 |                       | A cumulative 5                  |                    | 5           | none    | none  |
    """,
    ),
    Case(
        "acknowledged by a part",
        source="1.16: it is the id of the message that acknowledges",
        says="""
        To acknowledge a chunk by its own position does nothing to its message, complete or not.""",
        table="""
        | s | publish             | requests                                      | delivered      | mark-delete | pending |
        | 0 | A:0/2 B:0/2 A:1/2   | A subscribe Shared; A flow 9                  | A 2[0,2]       | -1          | A 2     |
        | 1 |                     | A ack 0-1; A ack 0 left 0 receipt             |                | -1          | A 2     |
        | 2 | B:1/2               | A nack 0; A nack 1                            | A 3[1,3]       | -1          | A 2 3   |
        | 3 |                     | A ack 2; A ack 3                              |                | 3           | none    |
    """,
    ),
    Case(
        "no letter of a part",
        source="1.16",
        says="""
        A chunk is no message that could be put off.""",
        table="""
        | s | publish       | requests                       | delivered      | refused          | later | mark-delete |
        | 0 | A:0-1/2 B:0/2 | A subscribe Shared; A flow 9   | A 1[0,1]       |                  | none  | -1          |
        | 1 |               | A later 0 receipt              |                | A InvalidMessage | none  | -1          |
        | 2 |               | A later 2 receipt              |                | A InvalidMessage | none  | -1          |
        | 3 |               | A later 1 times 1 receipt      |                |                  | 1+1   | 1           |
    """,
    ),
    Case(
        "given back",
        source="1.16",
        says="""
        Nack means the message with all its chunks; it comes again as a whole, counted once.""",
        table="""
        | s | publish         | requests                        | delivered                | replay | due | permits |
        | 0 | A:0-2/3 1       | A subscribe Shared; A flow 3    | A 2[0,1,2] 3             | none   |     | A 1     |
        | 1 |                 | A nack 2                        | A 2+1[0,1,2]             | none   |     | A 0     |
        | 2 |                 | A nack 2 after 2                |                          | none   | 2@4 | A 0     |
        | 4 |                 |                                 |                          | 2+2    |     | A 0     |
        | 5 |                 | A flow 1                        | A 2+2[0,1,2]             | none   |     | A 0     |
        | 6 |                 | A redeliver; A flow 9           | A 2+3[0,1,2] 3+1         | none   |     | A 7     |
    """,
    ),
    Case(
        "its consumer leaves",
        source="2.19, chunk_ack_and_reconnect",
        says="""
        What a consumer held comes to the next one as a whole, also where chunks of others lie in between.""",
        table="""
        | s | publish                   | requests                       | delivered          | mark-delete |
        | 0 | A:0/2 B:0/2 A:1/2 B:1/2 1 | A subscribe Shared; A flow 9   | A 2[0,2] 3[1,3] 4  | -1          |
        | 1 |                           | A ack 2                        |                    | 0           |
        | 2 |                           | A close                        |                    | 0           |
        | 3 |                           | B subscribe Shared; B flow 9   | B 3[1,3] 4         | 0           |
        | 4 |                           | B ack 3-4                      |                    | 4           |
    """,
    ),
    Case(
        "dead letters",
        source="1.16, 4.21, 4.27",
        says="""
        A message that was given back too often is one dead letter, and then acknowledged with all its chunks.""",
        table="""
        | s | publish       | requests                           | delivered      | letters | mark-delete |
        | 0 | A:0-2/3 B:0/2 | A subscribe Shared max 1; A flow 9 | A 2[0,1,2]     | none    | -1          |
        | 1 |               | A nack 2                           | A 2+1[0,1,2]   | none    | -1          |
        | 2 |               | A nack 2                           |                | 2+2     | 2           |
    """,
    ),
    Case(
        "put off",
        source="4.23, 0.27",
        says="""
        Reconsume later makes one retry letter of a message, and acknowledges it with all its chunks.""",
        table="""
        | s | publish   | requests                       | delivered      | later | mark-delete |
        | 0 | A:0-2/3 1 | A subscribe Shared; A flow 9   | A 2[0,1,2] 3   | none  | -1          |
        | 1 |           | A later 2 times 1              |                | 2+1   | 2           |
    """,
    ),
    Case(
        "skipped",
        source="3.27",
        says="""
        Skip counts messages; a message that is not complete is none yet, and is delivered when it is.""",
        table="""
        | s | publish                     | requests                        | delivered    | mark-delete | acked | backlog |
        | 0 | 1 A:0/2 B:0/2 B:1/2 1 1     | create Earliest                 |              | -1          | none  | 4       |
        | 1 |                             | skip 2                          |              | 0           | 2-3   | 2       |
        | 2 |                             | skip 1                          |              | 0           | 2-4   | 1       |
        | 3 | A:1/2                       | A subscribe Exclusive; A flow 9 | A 5 6[1,6]   | 0           | 2-4   | 2       |
        | 4 |                             | A ack 5-6                       |              | 6           | none  | 0       |
    """,
    ),
    Case(
        "cleared",
        source="3.27",
        says="""
        The backlog that is cleared is of messages; one that is completed afterwards is new.""",
        table="""
        | s | publish               | requests                                       | delivered    | mark-delete | backlog | unacked |
        | 0 | A:0-1/2 B:0/2 1       | A subscribe Shared; A flow 1                   | A 1[0,1]     | -1          | 2       | A 1     |
        | 1 |                       | clear                                          |              | 1           | 0       | A 0     |
        | 2 | B:1/2                 | A flow 9                                       | A 4[2,4]     | 1           | 1       | A 1     |
    """,
    ),
    Case(
        "backlog",
        source="3.28, 0.29",
        says="""
        What is to be delivered is backlog, message by message; chunks of what is incomplete are none.""",
        table="""
        | s | publish                       | requests                     | delivered      | backlog |
        | 0 | A:0-2/3 B:0-1/3 2 C:1/2       | create Earliest              |                | 2       |
        | 1 |                               | A subscribe Shared; A flow 1 | A 2[0,1,2]     | 2       |
        | 2 | B:2/3                         | A ack 2                      |                | 2       |
        | 3 |                               | A flow 9                     | A 5 7[3,4,7]   | 2       |
        | 4 |                               | A ack 5; A ack 7             |                | 0       |
    """,
    ),
    Case(
        "older than its time to live",
        source="3.29",
        says="""
        A message is as old as its last chunk; one that is incomplete is as old as its latest, is acknowledged when that is too old, and not delivered if it is completed later.""",
        table="""
 | s | publish       | requests                                                                  | delivered    | mark-delete |
 | 0 | A:0/2 B:0/3 C:0/2 | create Earliest; policy message_ttl_seconds 2; policy ttl_check_seconds 1 |          | -1          |
 | 1 | B:1/3         |                                                                           |              | -1          |
 | 2 | A:1/2         |                                                                           |              | -1          |
 | 3 |               |                                                                           |              | -1          |
 | 4 |               |                                                                           |              | -1          |
 | 5 |               |                                                                           |              | 4           |
 | 6 | C:1/2 B:2/3 1 | A subscribe Exclusive; A flow 9                                           | A 7          | 6           |
 | 7 | C:0-1/2       | A ack 7                                                                   | A 9[8,9]     | 7           |
    """,
    ),
    Case(
        "evicted by age",
        source="3.30",
        says="""
        A quota that evicts goes by what is stored: with its first chunk a message goes, and what is incomplete as well.""",
        table="""
 | s | publish     | requests | delivered | mark-delete |
 | 0 | A:0/2 B:0/2 | create Earliest; policy backlog_quota_seconds 2; policy backlog_quota_policy consumer_backlog_eviction; policy ttl_check_seconds 1 | | -1 |
 | 1 | A:1/2 1     |                                 |     | -1 |
 | 2 |             |                                 |     | -1 |
 | 3 |             |                                 |     | 2  |
 | 4 | B:1/2 1     | A subscribe Exclusive; A flow 9 | A 5 | 4  |
    """,
    ),
    Case(
        "expired by request",
        source="3.29, pulsar-admin expire-messages",
        says="""
        Likewise what somebody asks to expire.""",
        table="""
        | s | publish         | requests                        | delivered      | mark-delete | read |
        | 0 | A:0/2 B:0/2     | create Earliest                 |                | -1          | 0    |
        | 2 | A:1/2 1         |                                 |                | -1          | 0    |
        | 3 |                 | expire 2                        |                | -1          | 2    |
        | 4 | B:1/2           | A subscribe Exclusive; A flow 9 | A 2[0,2] 3     | -1          | 5    |
        | 5 |                 | A ack 2-3                       |                | 4           | 5    |
    """,
    ),
    Case(
        "unsubscribed",
        source="issue 12",
        says="""
        A subscription of the same name begins again with all that the topic has.""",
        table="""
        | s | publish       | requests                        | delivered      | mark-delete |
        | 0 | A:0-1/2 B:0/2 | A subscribe Exclusive; A flow 9 | A 1[0,1]       | -1          |
        | 1 |               | A ack 1; A unsubscribe          |                |             |
        | 2 | B:1/2         | B subscribe Exclusive; B flow 9 | B 1[0,1] 3[2,3] | -1         |
    """,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, history):
    check(case, history[case.name])
