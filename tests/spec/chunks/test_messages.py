"""Which chunks make up a message: it is delivered in the place of the chunk that completes it, and nothing else is."""

import pytest

from tests.spec.history import check
from tests.spec.table import Case

CASES = [
    Case(
        "in the place of the last chunk",
        source="1.9, 1.11, 1.7",
        says="""
        Nothing of a message is delivered before its last chunk is there; then it lies where that lies.""",
        table="""
        | s | publish     | requests                        | delivered        | mark-delete | read | acked |
        | 0 | 1 A:0-1/3 1 | A subscribe Exclusive; A flow 9 | A 0 3            | -1          | 4    | none  |
        | 1 |             | A ack 0; A ack 3                |                  | 0           | 4    | 3     |
        | 2 | 1 A:2/3 1   |                                 | A 4 5[1,2,5] 6   | 0           | 7    | 3     |
        | 3 |             | A ack 5                         |                  | 3           | 7    | 5     |
        | 4 |             | A ack 4                         |                  | 5           | 7    | none  |
    """,
    ),
    Case(
        "of one chunk",
        source="1.2, 1.11",
        says="""
        A message of one chunk is complete at once, with a uuid too.""",
        table="""
        | s | publish         | requests                        | delivered | pending | mark-delete |
        | 0 | A:0/1 A:0/1 1   | A subscribe Exclusive; A flow 9 | A 0[0] 1[1] 2 | A 0-2 | -1        |
        | 1 |                 | A ack 0-2                       |           | none    | 2           |
    """,
    ),
    Case(
        "interleaved",
        source="1.20, 1.6",
        says="""
        Messages of one producer and of several whose chunks lie in between each other are complete one by one.""",
        table="""
        | s | publish                             | requests                       | delivered                |
        | 0 | A:0/2 q.B:0/3 A:1/2 q.B:1/3 C:0/2   | A subscribe Shared; A flow 9   | A 2[0,2]                 |
        | 1 | q.B:2/3 1 C:1/2                     |                                | A 5[1,3,5] 6 7[4,7]      |
    """,
    ),
    Case(
        "two producers with one uuid",
        source="issue 12: a uuid shared by two producers",
        says="""
        A group is of a producer and a uuid; who takes another's uuid disturbs nobody.""",
        table="""
        | s | publish                           | requests                       | delivered         | mark-delete |
        | 0 | A:0/2 q.A:0/3 q.A:1/3 A:1/2       | A subscribe Shared; A flow 9   | A 3[0,3]          | -1          |
        | 1 | q.A:2/3                           | A ack 3                        | A 4[1,2,4]        | 0           |
        | 2 |                                   | A ack 4                        |                   | 4           |
    """,
    ),
    Case(
        "sent again from the start",
        source="1.10",
        says="""
        Chunk 0 of a message in progress begins it anew; what it had before is of no message, and holds nothing back.""",
        table="""
        | s | publish             | requests                        | delivered    | mark-delete | acked |
        | 0 | A:0-1/3             | A subscribe Exclusive; A flow 9 |              | -1          | none  |
        | 1 | A:0-1/3 1           |                                 | A 4          | 1           | none  |
        | 2 | A:2/3               | A ack 4                         | A 5[2,3,5]   | 1           | 4     |
        | 3 |                     | A ack 5                         |              | 5           | none  |
    """,
    ),
    Case(
        "a chunk again",
        source="1.12",
        says="""
        A chunk that is there already is dropped, and its message goes on.""",
        table="""
        | s | publish                        | requests                        | delivered    | mark-delete |
        | 0 | A:0/3 A:1/3 A:1/3 A:1/3        | A subscribe Exclusive; A flow 9 |              | -1          |
        | 1 | A:2/3 A:2/3                    |                                 | A 4[0,1,4]   | -1          |
        | 2 |                                | A ack 4                         |              | 5           |
    """,
    ),
    Case(
        "sent again as a whole",
        source="1.10, 1.5",
        says="""
        A message that is sent again when it was complete is another message.""",
        table="""
        | s | publish         | requests                        | delivered            | mark-delete |
        | 0 | A:0-1/2 A:0-1/2 | A subscribe Exclusive; A flow 9 | A 1[0,1] 3[2,3]      | -1          |
        | 1 |                 | A ack 1                         |                      | 1           |
        | 2 | A:1/2 1         | A ack 3                         | A 5                  | 4           |
    """,
    ),
    Case(
        "a hole",
        source="1.13",
        says="""
        A chunk behind the next one throws its message away, even where the missing one comes later.""",
        table="""
        | s | publish                  | requests                        | delivered    | mark-delete |
        | 0 | A:0/3                    | A subscribe Exclusive; A flow 9 |              | -1          |
        | 1 | A:2/3                    |                                 |              | 1           |
        | 2 | A:1/3 A:2/3 1            |                                 | A 4          | 3           |
        | 3 | A:0-2/3                  |                                 | A 7[5,6,7]   | 3           |
    """,
    ),
    Case(
        "the first chunk lost",
        source="1.13, rawchunk_missing_first",
        says="""
        Chunks without a first one are of no message and keep nobody waiting.""",
        table="""
        | s | publish                 | requests                        | delivered   | mark-delete |
        | 0 | A:1/2 1 B:0-1/2         | A subscribe Exclusive; A flow 9 | A 1 3[2,3]  | 0           |
        | 1 |                         | A ack 1; A ack 3                |             | 3           |
        | 2 | A:1/2 A:0/2             |                                 |             | 4           |
    """,
    ),
    Case(
        "num_chunks_from_msg lies",
        source="issue 12: num_chunks_from_msg that lies",
        says="""
        A chunk that says another number of chunks than the first one throws the message away: one of them lies.""",
        table="""
        | s | publish                   | requests                     | delivered | mark-delete |
        | 0 | A:0/3 A:1/2 A:1/3 A:2/3 1 | A subscribe Shared; A flow 9 | A 4       | 3           |
        | 1 | B:0/2 B:1/9 C:0/2 C:1/1 1 | A ack 4                      | A 9       | 8           |
    """,
    ),
    Case(
        "beyond the end",
        source="issue 12: chunk ids beyond the end",
        says="""
        A chunk id that is none of its message's throws the message away; a count of none, or less, makes none.""",
        table="""
        | s | publish                                | requests                     | delivered        | mark-delete |
        | 0 | A:0/2 A:2/2 A:1/2 A:7/2 A:-1/2 1       | A subscribe Shared; A flow 9 | A 5              | 4           |
        | 1 | B:0/0 B:0/-3 B:-1/-1 B:5/0 1           | A ack 5                      | A 10             | 9           |
        | 2 | C:0/2 C:-1/2 C:1/2 D:0/2 D:1/2         | A ack 10                     | A 15[14,15]      | 13          |
    """,
    ),
    Case(
        "an incomplete one is completed later",
        source="rawchunk_incomplete_then_completed",
        says="""
        What is incomplete stays in the topic, whoever comes and goes; it is delivered when it is complete.""",
        table="""
        | s | publish   | requests                        | delivered    | mark-delete | read |
        | 0 | A:0-1/3 1 | A subscribe Exclusive; A flow 9 | A 2          | -1          | 3    |
        | 1 |           | A ack 2; A close                |              | -1          | 3    |
        | 2 |           | B subscribe Exclusive; B flow 9 |              | -1          | 3    |
        | 3 | A:2/3     |                                 | B 3[0,1,3]   | -1          | 4    |
        | 4 |           | B ack 3                         |              | 3           | 4    |
    """,
    ),
    Case(
        "each subscription has it",
        source="1.9",
        says="""
        Which chunks make up a message is the same for all subscriptions; each gets it once.""",
        table="""
        | s | publish     | requests                                                                 | delivered                    | mark-delete |
        | 0 | A:0/2 1     | A subscribe Exclusive; A flow 9; other/A subscribe Failover; other/A flow 1 | A 1; other/A 1            | -1          |
        | 1 | A:1/2       | A ack 1; other/A flow 1                                                  | A 2[0,2]; other/A 2[0,2]     | -1          |
        | 2 |             | A ack 2                                                                  |                              | 2           |
    """,
    ),
    Case(
        "small ones in a batch between chunks",
        source="issue 12: batch of small ones between chunks",
        says="""
        Batches that lie between the chunks of a message go as ever.""",
        table="""
        | s | publish              | requests                        | delivered                 | unacked | mark-delete |
        | 0 | A:0/3 4 A:1/3 3      | A subscribe Shared; A flow 20   | A 1 3                     | A 7     | -1          |
        | 1 | A:2/3 2              | A ack 1 left 0,2                | A 4[0,2,4] 5              | A 8     | -1          |
        | 2 |                      | A ack 4                         |                           | A 7     | 0           |
        | 3 |                      | A ack 1; A ack 3                |                           | A 2     | 4           |
    """,
    ),
    Case(
        "partitions",
        source="issue 12: partitions; 1.5",
        says="""
        A message is of one partition: chunks of one uuid in two of them do not come together.""",
        table="""
        | s | publish  | requests                        | delivered                      |
        | 0 | A:0/2 1  | A subscribe Shared; A flow 9    | A p0:1 p1:1                    |
        | 1 | A:1/2    |                                 | A p0:2[0,2] p1:2[0,2]          |
    """,
        partitions=2,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, history):
    check(case, history[case.name])
