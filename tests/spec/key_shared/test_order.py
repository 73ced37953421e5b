"""The order of each key: hashes that drain, and entries that come again (0.22).

With A alone everything is its own. When B joins, b c e become B's and a d stay A's.
"""

import pytest

from tests.spec.history import check
from tests.spec.table import Case

CASES = [
    Case(
        "a hash that moved drains",
        source="0.22, 2.41, golden l_draining_hashes_408",
        says="""
        Entries of a key that has moved wait until the one that had it has acknowledged all it holds of it; other keys do not wait.""",
        table="""
        | s | publish         | requests                         | delivered | pending        |
        | 0 | 1=b 1=a 1=b 1=c | A subscribe KeyShared; A flow 20 | A 0-3     | A 0-3          |
        | 1 | 1=b 1=a 1=c 1=e | B subscribe KeyShared; B flow 20 | A 5; B 7  | A 0-3 5; B 7   |
        | 2 |                 | A ack 0                          |           | A 1-3 5; B 7   |
        | 3 |                 | A ack 2                          | B 4       | A 1 3 5; B 4 7 |
        | 4 | 1=b             | A ack 3                          | B 6 8     | A 1 5; B 4 6-8 |
    """,
    ),
    Case(
        "an acknowledgement of a part does not release",
        source="0.22, 3.12",
        says="""
        A batch drains until its last index is acknowledged.""",
        table="""
        | s | publish | requests                                         | delivered |
        | 0 | 2=b     | A subscribe KeyShared; A flow 20                 | A 0       |
        | 1 | 1=b     | B subscribe KeyShared; B flow 20; A ack 0 left 1 |           |
        | 2 |         | A ack 0 left 0                                   | B 1       |
    """,
    ),
    Case(
        "anybody may acknowledge what drains",
        source="0.22, 3.11",
        says="""
        It is the entry that is waited for, whoever acknowledges it.""",
        table="""
        | s | publish | requests                         | delivered |
        | 0 | 1=b     | A subscribe KeyShared; A flow 20 | A 0       |
        | 1 | 1=b     | B subscribe KeyShared; B flow 20 |           |
        | 2 |         | B ack 0                          | B 1       |
    """,
    ),
    Case(
        "who leaves gives back in order",
        source="0.22, 2.19, 2.40",
        says="""
        What the one before held comes to the new owner, before later entries of the key and with the count it had.""",
        table="""
        | s | publish | requests                                                | delivered | pending   |
        | 0 | 1*3=b   | A subscribe KeyShared; A flow 20; B subscribe KeyShared |           | none      |
        | 1 |         | B flow 2                                                | B 0-1     | B 0-1     |
        | 2 |         | B nack 0                                                |           | B 1       |
        | 3 |         | B close                                                 | A 0+1 1-2 | A 0+1 1-2 |
    """,
    ),
    Case(
        "given back unseen for the order of a key",
        source="0.22, 0.20",
        says="""
        What a consumer gives back unseen, because an earlier entry of its key is to come again, comes behind it with the count it had;
        only what the application gave back is counted.""",
        table="""
        | s | publish | requests                                         | delivered | pending   | replay |
        | 0 | 1*3=b   | A subscribe KeyShared max 1; A flow 2            | A 0-1     | A 0-1     | none   |
        | 1 |         | A nack 0 after 2; A nack 1 unseen; A flow 9      |           | A 0       | 1      |
        | 3 |         |                                                  | A 0+1 1-2 | A 0+1 1-2 | none   |
        | 4 |         | A nack 0; A nack 1-2 unseen                      | A 1-2     | A 1-2     | none   |
    """,
    ),
    Case(
        "with few permits too",
        source="0.22, 2.19",
        says="""
        What came back goes first, so that no later entry of the key overtakes it.""",
        table="""
        | s | publish | requests                                                         | delivered | replay |
        | 0 | 1*4=b   | A subscribe KeyShared; B subscribe KeyShared; B flow 3; A flow 1 | B 0-2     | none   |
        | 1 |         | B leaves                                                         | A 0       | 1-2    |
        | 2 |         | A flow 1                                                         | A 1       | 2      |
        | 3 |         | A flow 5                                                         | A 2-3     | none   |
    """,
    ),
    Case(
        "who is killed gives back in order",
        source="0.22, 2.2",
        says="""
        A consumer that is not heard of for its lease is gone; its keys and what it held are the others'.""",
        table="""
        | s | publish     | requests                                                                   | delivered  |
        | 0 | 1=b 1=a 1=b | A subscribe KeyShared; B subscribe KeyShared lease 3; A flow 20; B flow 20 | A 1; B 0 2 |
        | 2 | 1=b         | A alive                                                                    | B 3        |
        | 3 | 1=b         | A alive                                                                    | A 0 2-4    |
    """,
    ),
    Case(
        "a hash that comes back to who drains it",
        source="2.41, golden l_draining_hashes_408",
        says="""
        When the new owner leaves, the hash is with its holder again, who goes on without waiting.""",
        table="""
        | s | publish | requests                         | delivered |
        | 0 | 1=b     | A subscribe KeyShared; A flow 20 | A 0       |
        | 1 | 1=b     | B subscribe KeyShared; B flow 20 |           |
        | 2 |         | B close                          | A 1       |
    """,
    ),
    Case(
        "a stalled consumer holds back its own keys",
        source="0.22, 2.39",
        says="""
        One without permits, and one that acknowledges nothing, keep nobody else's keys waiting.""",
        table="""
        | s | publish                 | requests                                                          | delivered  |
        | 0 | 1=b 1=a 1=b 1=a 1=b     | A subscribe KeyShared; B subscribe KeyShared; A flow 20; B flow 1 | A 1 3; B 0 |
        | 1 | 1=c 1=d 1=e 1=a 1=b 1=d |                                                                   | A 6 8 10   |
        | 2 |                         | B flow 3                                                          | B 2 4-5    |
    """,
    ),
    Case(
        "what comes again goes before later entries",
        source="0.22, golden k2",
        says="""
        What was negatively acknowledged comes again in order, and before what was never delivered.""",
        table="""
        | s | publish | requests                        | delivered       |
        | 0 | 1*6=k   | A subscribe KeyShared; A flow 4 | A 0-3           |
        | 1 |         | A nack 1                        |                 |
        | 2 |         | A flow 10                       | A 1+1 4-5       |
        | 3 |         | A redeliver                     | A 0+1 1+2 2-5+1 |
    """,
    ),
    Case(
        "several that come again go before later entries",
        source="0.22",
        says="""
        However many come back in a round, no later entry of their key is delivered before them.""",
        table="""
        | s | publish | requests                        | delivered |
        | 0 | 1*3=k   | A subscribe KeyShared; A flow 2 | A 0-1     |
        | 1 |         | A nack 0-1; A flow 1            | A 0+1     |
        | 2 |         | A flow 9                        | A 1+1 2   |
    """,
    ),
    Case(
        "what this round acknowledges takes no place",
        source="0.22",
        says="""
        An entry that waits to come again and is acknowledged meanwhile lets no later entry past the next one of its key.""",
        table="""
        | s | publish | requests                                               | delivered |
        | 0 | 1*4=b   | A subscribe KeyShared; B subscribe KeyShared; B flow 3 | B 0-2     |
        | 1 |         | B close                                                |           |
        | 2 |         | A ack 0; A flow 1                                      | A 1       |
        | 3 |         | A flow 2                                               | A 2-3     |
    """,
    ),
    Case(
        "one that is waited for holds back later ones",
        source="0.22, 4.15",
        says="""
        While a negative acknowledgement's delay runs, later entries of the key wait, earlier ones and other keys do not.""",
        table="""
        | s | publish         | requests                                     | delivered | due     |
        | 0 | 1=a 1=a 1=a 1=d | A subscribe KeyShared; A flow 20             | A 0-3     |         |
        | 1 | 1=a 1=d         | A nack 1 after 3; A nack 0 after 1; A nack 2 | A 5       | 1@4 0@2 |
        | 2 |                 |                                              | A 0+1     | 1@4     |
        | 4 |                 |                                              | A 1-2+1 4 | none    |
    """,
    ),
    Case(
        "only a holder can make others wait",
        source="0.22, 4.21",
        says="""
        A negative acknowledgement of an entry that its consumer does not have changes nothing, nor one that is taken back.""",
        table="""
        | s | publish | requests                                                                          | delivered | due  |
        | 0 | 1*4=b   | A subscribe KeyShared; B subscribe KeyShared; A flow 1; B flow 1                  | B 0       | none |
        | 1 |         | A nack 0 after 5; B nack 2 after 5; B flow 1                                      | B 1       | none |
        | 2 |         | B nack 1 after 5; B nack 0-1; B flow 4                                            | B 0-1+1 2-3 | none |
    """,
    ),
    Case(
        "an acknowledgement ends the wait",
        source="0.22, 4.18",
        says="""
        An entry that is waited for and is acknowledged meanwhile holds back nobody any more.""",
        table="""
        | s | publish | requests                         | delivered |
        | 0 | 1=a     | A subscribe KeyShared; A flow 20 | A 0       |
        | 1 | 1=a     | A nack 0 after 9                 |           |
        | 2 |         | A ack 0                          | A 1       |
    """,
    ),
    Case(
        "what moved comes again at its new owner",
        source="0.22, 2.41",
        says="""
        An entry that the holder gives back waits with its key until the holder is rid of the others.""",
        table="""
        | s | publish | requests                         | delivered | replay |
        | 0 | 1*3=b   | A subscribe KeyShared; A flow 20 | A 0-2     | none   |
        | 1 | 1=b     | B subscribe KeyShared; B flow 20 |           | none   |
        | 2 |         | A nack 1                         |           | 1+1    |
        | 3 |         | A ack 0                          |           | 1+1    |
        | 4 |         | A ack 2                          | B 1+1 3   | none   |
    """,
    ),
    Case(
        "a dead letter releases its key",
        source="0.22, 4.26",
        says="""
        An entry that dies is acknowledged, and so no longer waited for.""",
        table="""
        | s | publish | requests                               | delivered | letters |
        | 0 | 1=b     | A subscribe KeyShared max 1; A flow 20 | A 0       | none    |
        | 1 |         | A nack 0                               | A 0+1     | none    |
        | 2 | 1=b     | B subscribe KeyShared; B flow 20       |           | none    |
        | 3 |         | A nack 0                               | B 1       | 0+2     |
    """,
    ),
    Case(
        "out of order",
        source="2.35, 0.22, golden k2",
        says="""
        Where the consumers allow it no hash drains, and nothing waits for what is to come again.""",
        table="""
        | s | publish | requests                                        | delivered |
        | 0 | 1=b 1=a | A subscribe KeyShared unordered true; A flow 20 | A 0-1     |
        | 1 | 1=b     | B subscribe KeyShared unordered true; B flow 20 | B 2       |
        | 2 | 1=a     | A nack 1 after 9                                | A 3       |
    """,
    ),
    Case(
        "a seek forgets what drains",
        source="0.22, 3.26",
        says="""
        After a seek nothing is pending, so no hash drains.""",
        table="""
        | s | publish | requests                         | delivered | reset |
        | 0 | 1*2=b   | A subscribe KeyShared; A flow 20 | A 0-1     |       |
        | 1 | 1=b     | B subscribe KeyShared; B flow 20 |           |       |
        | 2 |         | seek 1; B flow 20                | B 1-2     | A B   |
    """,
    ),
    Case(
        "counts outlive the owner",
        source="0.20, 2.19",
        says="""
        When the last consumer has left, the next one finds entries and counts as they were.""",
        table="""
        | s | publish | requests                        | delivered |
        | 0 | 1*2=b   | A subscribe KeyShared; A flow 2 | A 0-1     |
        | 1 |         | A nack 0; A close               |           |
        | 2 |         | B subscribe KeyShared; B flow 9 | B 0+1 1   |
    """,
    ),
    Case(
        "each partition for itself",
        source="2.41",
        partitions=2,
        says="""
        A consumer of all partitions owns the same keys of each, and what drains of one is nothing to the other.""",
        table="""
        | s | publish | requests                         | delivered   |
        | 0 | 1=b     | A subscribe KeyShared; A flow 20 | A p0:0 p1:0 |
        | 1 | 1=b 1=a | B subscribe KeyShared; B flow 20 | A p0:2 p1:2 |
        | 2 |         | A ack 0                          | B p0:1 p1:1 |
    """,
    ),
]


@pytest.mark.default
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, history):
    check(case, history[case.name])
