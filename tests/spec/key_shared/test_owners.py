"""Whose a key is, and what becomes of it as consumers come and go.

On the ring of consistent hashing, A and B own a d g and b c e; with C they own a d and b c, and C e g. Auto split gives
the lower half of the slots, with a d e, to who came second.
"""

import pytest

from tests.spec.history import check
from tests.spec.table import Case

CASES = [
    Case(
        "consistent hashing",
        source="0.2, 0.4, 0.11, 2.26, 2.27, golden c",
        says="""
        By default hashes lie on a ring, with a hundred points of each consumer; a newcomer takes from everybody.""",
        table="""
        | s | publish                 | requests                                                           | delivered              |
        | 0 | 1=a 1=b 1=c 1=d 1=e 1=g | A subscribe KeyShared; B subscribe KeyShared; A flow 20; B flow 20 | A 0 3 5; B 1-2 4       |
        | 1 |                         | A ack 0-5; C subscribe KeyShared; C flow 20                        |                        |
        | 2 | 1=a 1=b 1=c 1=d 1=e 1=g |                                                                    | A 6 9; B 7-8; C 10-11  |
        | 3 |                         | A ack 6-11; C close                                                |                        |
        | 4 | 1=a 1=b 1=c 1=d 1=e 1=g |                                                                    | A 12 15 17; B 13-14 16 |
    """,
    ),
    Case(
        "fewer points on the ring",
        source="0.11, 2.26",
        says="""
        How many points each consumer has on the ring is a policy; with a single one b is A's, and g B's.""",
        table="""
        | s | publish                 | requests                                                           | delivered        |
        | 0 |                         | policy subscription_key_shared_consistent_hashing_replica_points 1 |                  |
        | 1 | 1=a 1=b 1=c 1=d 1=e 1=g | A subscribe KeyShared; B subscribe KeyShared; A flow 20; B flow 20 | A 0-1 3; B 2 4-5 |
    """,
    ),
    Case(
        "consumers of one name",
        source="0.4, 2.27, golden c_consistent_323",
        says="""
        They have the same points on the ring, and share the hashes by their remainder: an even hash is the first one's.""",
        table="""
        | s | publish                 | requests                                                                       | delivered  |
        | 0 | 1=a 1=b 1=c 1=d 1=e 1=i | A subscribe KeyShared name P; B subscribe KeyShared name P; A flow 9; B flow 9 | A 0; B 1-5 |
    """,
    ),
    Case(
        "one owner of each point",
        source="0.4, 2.28, golden c_consistent_408",
        says="""
        The ring of 4.0 is an option: it lies over slots, and of a point that several consumers have the first is the owner.""",
        table="""
        | s | publish                 | requests                                                           | delivered        |
        | 0 |                         | policy subscription_key_shared_one_owner_per_point 1               |                  |
        | 1 | 1=a 1=b 1=c 1=d 1=e 1=g | A subscribe KeyShared; B subscribe KeyShared; A flow 20; B flow 20 | A 0-1 3-4; B 2 5 |
    """,
    ),
    Case(
        "auto split",
        source="0.3, 0.11, 2.24, golden b",
        says="""
        Without consistent hashing the biggest range is split, and the newcomer takes its lower half: C gets d of B's.""",
        table="""
        | s | publish                 | requests                                                           | delivered             |
        | 0 |                         | policy subscription_key_shared_use_consistent_hashing 0            |                       |
        | 1 | 1=a 1=b 1=c 1=d 1=e 1=g | A subscribe KeyShared; B subscribe KeyShared; A flow 20; B flow 20 | A 2 5; B 0-1 3-4      |
        | 2 |                         | A ack 0-5; C subscribe KeyShared; C flow 20                        |                       |
        | 3 | 1=a 1=b 1=c 1=d 1=e 1=g |                                                                    | A 8 11; B 6-7 10; C 9 |
    """,
    ),
    Case(
        "auto split when consumers leave",
        source="2.25, golden b",
        says="""
        The range of who leaves goes to its neighbour on the right; that of the last one to its neighbour on the left.""",
        table="""
        | s | publish                 | requests                                                                                                      | delivered        |
        | 0 |                         | policy subscription_key_shared_use_consistent_hashing 0                                                       |                  |
        | 1 |                         | A subscribe KeyShared; B subscribe KeyShared; C subscribe KeyShared; A flow 20; B flow 20; C flow 20; C close |                  |
        | 2 | 1=a 1=b 1=c 1=d 1=e 1=g |                                                                                                               | A 2 5; B 0-1 3-4 |
        | 3 |                         | A ack 0-5; A close                                                                                            |                  |
        | 4 | 1=c 1=d                 |                                                                                                               | B 6-7            |
    """,
    ),
    Case(
        "sticky ranges",
        source="2.29, golden d_exclusive_408",
        says="""
        A range that somebody has, that ends before it begins, or that is none at all is refused; who is refused leaves no trace. One beyond the last slot is accepted.""",
        table="""
        | s | publish | requests                                             | delivered | refused               |
        | 0 | 1=a 1=c | A subscribe KeyShared sticky 0-30000; A flow 9       | A 0       |                       |
        | 1 |         | B subscribe KeyShared sticky 30000-65535             |           | B ConsumerAssignError |
        | 2 |         | B subscribe KeyShared sticky 50000-40000             |           | B ConsumerAssignError |
        | 3 |         | B subscribe KeyShared mode STICKY                    |           | B ConsumerAssignError |
        | 4 |         | B subscribe KeyShared sticky 40000-50000,50000-65535 |           | B ConsumerAssignError |
        | 5 |         | B flow 9                                             |           |                       |
        | 6 |         | B subscribe KeyShared sticky 30001-70000; B flow 9   | B 1       |                       |
    """,
    ),
    Case(
        "a hole between two ranges of one consumer",
        source="2.30, golden d_exclusive",
        says="""
        Before 4.0 a slot is owned where the nearest borders on both sides are one consumer's: m, between A's ranges, is A's until somebody asks for it, and then e is nobody's, between C and A.""",
        table="""
        | s | publish     | requests                                                                                                       | delivered  |
        | 0 |             | policy subscription_key_shared_use_classic_persistent_implementation 1                                         |            |
        | 1 | 1=m 1=d 1=c | A subscribe KeyShared sticky 0-10000,20000-30000; B subscribe KeyShared sticky 40000-65535; A flow 9; B flow 9 | A 0-1; B 2 |
        | 2 |             | A ack 0-1; B ack 2; C subscribe KeyShared sticky 12000-16000; C flow 9                                         |            |
        | 3 | 1=m 1=e 1=d |                                                                                                                | A 5; C 3   |
    """,
    ),
    Case(
        "a hole between ranges without an owner",
        source="2.30 [4.x], golden d_exclusive_408",
        says="""
        From 4.0 on, and by default, ranges mean the slots in them: m waits until somebody asks for it.""",
        table="""
        | s | publish     | requests                                                   | delivered |
        | 0 | 1=m 1=d 1=j | A subscribe KeyShared sticky 0-10000,20000-30000; A flow 9 | A 1-2     |
        | 1 |             | C subscribe KeyShared sticky 12000-16000; C flow 9         | C 0       |
    """,
    ),
    Case(
        "a refused first consumer leaves no subscription",
        source="2.29",
        says="""
        Nothing is created for a consumer that is refused.""",
        table="""
        | s | publish | requests                               | delivered | refused               |
        | 0 | 1=a     | A subscribe KeyShared sticky 9-3       |           | A ConsumerAssignError |
        | 1 |         | A subscribe KeyShared Latest; A flow 9 |           |                       |
        | 2 | 1=a     |                                        | A 1       |                       |
    """,
    ),
    Case(
        "a key that nobody owns",
        source="2.31, golden k2",
        says="""
        Entries of a hash without owner wait until somebody covers it, in order, and hold up nobody else; they hold back mark-delete.""",
        table="""
        | s | publish             | requests                                           | delivered | mark-delete | acked |
        | 0 | 1=c 1=a 1=c 1=a 1=b | A subscribe KeyShared sticky 0-32767; A flow 9     | A 1 3-4   | -1          | none  |
        | 1 |                     | A ack 1; A ack 3-4                                 |           | -1          | 1 3-4 |
        | 2 |                     | B subscribe KeyShared sticky 50000-65535; B flow 9 | B 0 2     | -1          | 1 3-4 |
        | 3 |                     | B ack 0-2                                          |           | 4           | none  |
    """,
    ),
    Case(
        "another mode",
        source="2.4 [4.x]",
        says="""
        While consumers are connected, one that asks for another mode or another order is refused; when all have left, the next may.""",
        table="""
        | s | publish | requests                                                | delivered | refused            |
        | 0 |         | A subscribe KeyShared                                   |           |                    |
        | 1 |         | B subscribe KeyShared sticky 0-65535                    |           | B SubscriptionBusy |
        | 2 |         | B subscribe KeyShared unordered true                    |           | B SubscriptionBusy |
        | 3 | 1=a     | A close; B subscribe KeyShared sticky 0-65535; B flow 9 | B 0       |                    |
    """,
    ),
    Case(
        "another mode on the classic implementation",
        source="2.4, golden k2",
        says="""
        3.2.3 does not compare: the newcomer goes by the mode there is.""",
        table="""
        | s | publish | requests                                                                        | delivered |
        | 0 |         | policy subscription_key_shared_use_classic_persistent_implementation 1          |           |
        | 1 | 1=a 1=b | A subscribe KeyShared; B subscribe KeyShared sticky 0-65535; A flow 9; B flow 9 | A 0; B 1  |
    """,
    ),
    Case(
        "another type",
        source="2.1, 0.31",
        says="""
        While consumers are connected another type is refused; when the last one has left, one of another type may come.""",
        table="""
        | s | publish | requests                              | delivered | refused            | type      |
        | 0 | 1=a     | A subscribe KeyShared; A flow 9       | A 0       |                    | KeyShared |
        | 1 |         | B subscribe Shared                    |           | B SubscriptionBusy | KeyShared |
        | 2 |         | A close; B subscribe Shared; B flow 9 | B 0       |                    | Shared    |
    """,
    ),
    Case(
        "cumulative acknowledgement",
        source="2.5",
        says="""
        It is refused, as on Shared, and changes nothing.""",
        table="""
        | s | publish | requests                        | delivered | refused                                    | pending |
        | 0 | 1*2=a   | A subscribe KeyShared; A flow 9 | A 0-1     |                                            | A 0-1   |
        | 1 |         | A cumulative 1 receipt          |           | A CumulativeAcknowledgementNotAllowedError | A 0-1   |
    """,
    ),
    Case(
        "as many consumers as allowed",
        source="2.3",
        says="""
        The limit of consumers holds here too.""",
        table="""
        | s | publish | requests                                               | delivered | refused        |
        | 0 |         | policy max_consumers_per_subscription 1                |           |                |
        | 1 | 1=b     | A subscribe KeyShared; B subscribe KeyShared; A flow 9 | A 0       | B ConsumerBusy |
    """,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, history):
    check(case, history[case.name])
