"""A cursor that is a map is told of as one of ranges in pages: stats, draining hashes, peek, and whether a run with
available_now is done."""

import pytest

from pulsar_spark.admin import Admin
from pulsar_spark.broker.committing.round_rows import PageRows
from pulsar_spark.frames.consuming.backlog import Backlog
from pulsar_spark.protocol.acknowledgement.cursor import Range
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from tests.admin.broker_double import BrokerDouble
from tests.admin.test_key_shared_stats import AUTO_SPLIT, HASHES, JOINED, SPLIT, TOPIC, A, B, flights, pending
from tests.conftest import START
from tests.support.named_entries import named


@pytest.fixture
def double(layout) -> BrokerDouble:
    return BrokerDouble(layout)


def write(double, topic, ranges, *, is_map, mark_delete=-1):
    key = CursorKey(topic.topic_id, -1, "s")
    place = {"topic": TOPIC, **key._asdict()}
    facts = [
        {"topic": TOPIC, "topic_id": topic.topic_id, "partition": -1, "kind": "topic", "ledger_id": 1,
         "end_position": len(HASHES)},
        {**place, "kind": "cursor", "subscription_type": "KeyShared", "mark_delete_position": mark_delete,
         "read_position": 8, "key_shared_mode": "AUTO_SPLIT", "properties": list(AUTO_SPLIT.items()),
         "round_time": JOINED},
        *(
            {**place, "kind": "consumer", "consumer_id": consumer_id, "consumer_name": consumer_id[-1],
             "join_order": order, "properties": [],
             "hash_ranges": [{"start": one.start, "end": one.end} for one in SPLIT.owned()
                             if one.consumer_id == consumer_id]}
            for order, consumer_id in enumerate((A, B))
        ),
    ]  # fmt: skip
    if is_map:
        page, rows = {**place, "kind": "page", "page": 0, "is_removed": True}, named(key, TOPIC, ranges)
    else:
        page, rows = {**place, "kind": "page", "page": 0}, [PageRows(key, TOPIC, 0, ranges)]
    double.commit_round([*facts, page], rows, START)


def told(layout) -> dict:
    admin = Admin(f"delta:{layout.root}")
    stats = admin.stats(TOPIC)["subscriptions"]["s"]
    for each in (stats, *stats["consumers"]):
        each.pop("oldestUnackedSeconds"), each.pop("msgRateOut"), each.pop("msgRateRedeliver")
    return {
        "stats": stats,
        "hashes": admin.draining_hashes(TOPIC, "s"),
        "peek": [str(each.message_id()) for each in admin.peek_messages(TOPIC, "s", 99)],
        "peek at": [str(each.message_id()) for each in admin.peek_messages(TOPIC, "s", 2, at=3)],
    }


ACKED = Range(0, 0, "acknowledged")
REPLAY = Range(0, 0, "replay", None, None, 1, None, None, 1)


@pytest.mark.parametrize(
    ("ranges", "mark_delete"),
    [
        ([pending(0, 7, A)], -1),
        ([pending(0, 3, A), ACKED._replace(first=4, last=5), pending(6, 7, B)], -1),
        ([pending(2, 2, A, due=9), ACKED._replace(first=3, last=3), REPLAY._replace(first=4, last=7)], 1),
        ([pending(0, 0, B), pending(1, 1, A), pending(2, 4, B), pending(5, 6, A), pending(7, 7, B)], -1),
        (
            [pending(0, 0, B), ACKED._replace(first=1, last=3), pending(4, 4, A), ACKED._replace(first=5, last=6)]
            + [pending(7, 7, B)],
            -1,
        ),
    ],
)
def test_in_either_form_the_same_is_told(layout, double, ranges, mark_delete):
    topic = flights(layout)
    write(double, topic, ranges, is_map=False, mark_delete=mark_delete)
    expected = told(layout)
    write(double, topic, ranges, is_map=True, mark_delete=mark_delete)
    assert told(layout) == expected
    done = [range_ for range_ in ranges if range_.status == "acknowledged"]
    assert expected["stats"]["ackedEntries"] == mark_delete + 1 + sum(range_.size for range_ in done)
    assert expected["stats"]["nonContiguousDeletedMessagesRanges"] == len(done)


@pytest.mark.parametrize(
    ("ranges", "given_back", "is_handled"),
    [
        ([pending(0, 7, B)], [], True),
        ([pending(0, 6, B), pending(7, 7, A)], [], False),
        ([pending(0, 1, B), REPLAY._replace(first=2, last=5), pending(6, 7, B)], [(2, 5)], True),
        ([pending(0, 1, B), REPLAY._replace(first=2, last=5), pending(6, 7, B)], [(2, 3), (5, 5), (7, 7)], False),
        ([REPLAY._replace(first=0, last=0), pending(1, 1, B), REPLAY._replace(first=2, last=2), pending(3, 3, B),
          REPLAY._replace(first=4, last=4), pending(5, 6, B), REPLAY._replace(first=7, last=7)],
         [(0, 0), (2, 2), (4, 4), (7, 7)], True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_map", [False, True])
def test_a_run_is_done_when_it_has_handled_its_own(layout, double, ranges, given_back, is_handled, is_map):
    """What others hold between entries that were given back is not this run's to handle."""
    topic = flights(layout)
    backlog = Backlog(layout, topic, [-1], "s", LedgerIndex(layout))
    write(double, topic, ranges, is_map=is_map)
    assert backlog.is_handled(A, {-1: given_back}) is is_handled
