"""Types of subscriptions: which consumers may be connected at a time."""

import pytest

from tests.spec.history import check
from tests.spec.table import Case

CASES = [
    Case(
        "exclusive takes one consumer",
        source="2.2, golden k3",
        says="""
        A second consumer is refused while the first is connected. The one refused leaves no trace: its flow counts for nothing.""",
        table="""
        | s | publish | requests                         | delivered | refused        | pending | replay | permits | active | type      |
        | 0 | 1*3     | A subscribe Exclusive; A flow 10 | A 0-2     |                | A 0-2   | none   | A 7     | A      | Exclusive |
        | 1 | 1       | B subscribe Exclusive; B flow 10 | A 3       | B ConsumerBusy | A 0-3   | none   | A 6     | A      | Exclusive |
        | 2 |         | A close                          |           |                | none    | 0-3    |         | none   | none      |
        | 3 |         | B subscribe Exclusive; B flow 10 | B 0-3     |                | B 0-3   | none   | B 6     | B      | Exclusive |
    """,
    ),
    Case(
        "a connected type keeps others out",
        source="2.1, golden k1",
        says="""
        Consumers of another type are refused, whichever it is; when the last consumer has left, any type may come.""",
        table="""
        | s | publish | requests                                    | delivered | refused                                | type     |
        | 0 |         | A subscribe Shared                          |           |                                        | Shared   |
        | 1 |         | B subscribe Failover; C subscribe Exclusive |           | B SubscriptionBusy; C SubscriptionBusy | Shared   |
        | 2 |         | A close; B subscribe Failover               |           |                                        | Failover |
        | 3 |         | A subscribe Shared                          |           | A SubscriptionBusy                     | Failover |
    """,
    ),
    Case(
        "unload lets go of everybody",
        source="2.19, 3.25, 0.20; observed on 4.0.8",
        says="""
        A topic that is unloaded has no consumers: clients subscribe again, and what was not acknowledged comes again, with the count it had. Who subscribes again may
        do so as another type.""",
        table="""
        | s | publish | requests                                        | delivered | acked | pending | replay  | permits  | type      |
        | 0 | 1*5     | A subscribe Shared; A flow 9                    | A 0-4     | none  | A 0-4   | none    | A 4      | Shared    |
        | 1 |         | A ack 1; A nack 2                               | A 2+1     | 1     | A 0 2+1 3-4 | none | A 3     | Shared    |
        | 2 | 1       | unload                                          |           | 1     | none    | 0 2+1 3-4 | none   | none      |
        | 3 |         | A flow 9                                        |           | 1     | none    | 0 2+1 3-4 | none   | none      |
        | 4 |         | A subscribe Exclusive; A flow 9                 | A 0 2+1 3-5 | 1   | A 0 2+1 3-5 | none | A 4     | Exclusive |
    """,
    ),
    Case(
        "max consumers per subscription",
        source="2.3",
        says="""
        A policy bounds how many consumers a subscription takes; 0 is no bound. Those who are there stay.""",
        table="""
        | s | publish | requests                                                    | delivered | refused        | permits  |
        | 0 |         | policy max_consumers_per_subscription 2; A subscribe Shared |           |                | A 0      |
        | 1 |         | B subscribe Shared; C subscribe Shared                      |           | C ConsumerBusy | A 0; B 0 |
        | 2 |         | B close; C subscribe Shared                                 |           |                | A 0; C 0 |
    """,
    ),
    Case(
        "permits are entries to a single active consumer",
        source="4.2, 4.6, golden k3",
        says="""
        A read is as many entries as there are permits, and what a read of an Exclusive or Failover subscription brings is sent: permits count its messages
        afterwards, and nothing more goes out until they are above zero.""",
        table="""
        | s | publish | requests                        | delivered | permits | read |
        | 0 | 10*5    | A subscribe Exclusive; A flow 3 | A 0-2     | A -27   | 3    |
        | 1 |         | A flow 27                       |           | A 0     | 3    |
        | 2 |         | A flow 1                        | A 3       | A -9    | 4    |
    """,
    ),
    Case(
        "a single read of many entries",
        source="4.6",
        says="""
        Permits beyond a hundred are messages again: of large batches no more go out than permits say, but a hundred entries in any case.""",
        table="""
        | s | publish | requests                            | delivered | permits |
        | 0 | 10*130  | A subscribe Exclusive; A flow 110   | A 0-99    | A -890  |
        | 1 |         | A flow 1190                         | A 100-129 | A 0     |
    """,
    ),
    Case(
        "an initial position",
        source="3.15",
        says="""
        Latest starts behind the last entry, Earliest before the first. It matters for a new subscription only.""",
        table="""
        | s | publish | requests                                                                               | delivered          | mark-delete | read |
        | 0 | 1*3     | A subscribe Shared Latest; A flow 9; early/B subscribe Shared Earliest; early/B flow 9 | early/B 0-2        | 2           | 3    |
        | 1 | 1*2     | A close; C subscribe Shared Earliest; C flow 9                                         | C 3-4; early/B 3-4 | 2           | 5    |
    """,
    ),
    Case(
        "a subscription without a consumer",
        source="3.15, Admin",
        says="""
        A subscription may be created before anyone consumes; it waits where it was told to.""",
        table="""
        | s | publish | requests                        | delivered | mark-delete | read | type |
        | 0 | 1*2     | create Latest                   |           | 1           | 2    | none |
        | 1 | 1*2     |                                 |           | 1           | 2    | none |
        | 2 |         | A subscribe Exclusive; A flow 9 | A 2-3     | 1           | 4    |      |
    """,
    ),
    Case(
        "subscriptions do not know of each other",
        source="design 3",
        says="""
        Each subscription of a topic gets all its entries, at its own pace and with its own type.""",
        table="""
        | s | publish | requests                                                                  | delivered          | mark-delete | pending |
        | 0 | 1*4     | A subscribe Shared; A flow 2; other/B subscribe Exclusive; other/B flow 9 | A 0-1; other/B 0-3 | -1          | A 0-1   |
        | 1 |         | other/B cumulative 3; A ack 0                                             |                    | 0           | A 1     |
        | 2 |         | other/B close; A flow 9                                                   | A 2-3              | 0           | A 1-3   |
    """,
    ),
    Case(
        "unsubscribe needs to be alone",
        source="PersistentSubscription.doUnsubscribe",
        says="""
        A subscription that others use is not removed, unless by force; a consumer is told so by the name that Pulsar's
        clients have for ServerMetadataException. Whoever subscribes next starts again.""",
        table="""
        | s | publish | requests                                         | delivered | refused                                       |
        | 0 | 1*2     | A subscribe Shared; A flow 9; B subscribe Shared | A 0-1     |                                               |
        | 1 |         | A unsubscribe; unsubscribe                       |           | A BrokerMetadataError; admin SubscriptionBusy |
        | 2 |         | A ack 0-1; unsubscribe force                     |           |                                               |
        | 3 |         | unsubscribe                                      |           | admin SubscriptionNotFound                    |
        | 4 |         | A subscribe Exclusive Earliest; A flow 9         | A 0-1     |                                               |
        | 5 |         | A unsubscribe                                    |           |                                               |
    """,
    ),
    Case(
        "a client that falls silent",
        source="design 4, step 2; contract of requests",
        says="""
        Every request of a client renews its lease. When it ends, all its consumers are gone and their entries come back, the count as it was.""",
        table="""
        | s | publish | requests                                                           | delivered | replay | pending | permits  |
        | 0 | 1*2     | A subscribe Shared lease 3; A flow 2; B subscribe Shared lease 600 | A 0-1     | none   | A 0-1   | A 0; B 0 |
        | 1 |         |                                                                    |           | none   | A 0-1   | A 0; B 0 |
        | 2 |         | A alive                                                            |           | none   | A 0-1   | A 0; B 0 |
        | 3 |         |                                                                    |           | none   | A 0-1   | A 0; B 0 |
        | 4 |         | B flow 1                                                           |           | none   | A 0-1   | A 0; B 1 |
        | 5 |         |                                                                    | B 0       | 1      | B 0     | B 0      |
        | 6 |         | B flow 1                                                           | B 1       | none   | B 0-1   | B 0      |
    """,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, history):
    check(case, history[case.name])
