"""A cursor in lane form is told of as in the form of exact ranges: stats, draining hashes, peek, and whether a run with
available_now is done."""

import pytest
from deltalake import DeltaTable

from pulsar_spark.admin import Admin
from pulsar_spark.broker.committing.round_rows import PageRows
from pulsar_spark.frames.consuming.backlog import Backlog
from pulsar_spark.protocol.acknowledgement.cursor import Range
from pulsar_spark.protocol.keys.lanes import hashes_by_owner
from pulsar_spark.protocol.keys.sticky_key import NONE_KEY, sticky_key_hash
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from tests.admin.broker_double import BrokerDouble
from tests.admin.test_key_shared_stats import AUTO_SPLIT, HASHES, JOINED, SPLIT, TOPIC, A, B, flights, pending
from tests.conftest import START
from tests.support.lanes import in_lanes

LANES = [*hashes_by_owner(SPLIT.owned(), SPLIT.axis).values()]


@pytest.fixture
def double(layout) -> BrokerDouble:
    return BrokerDouble(layout)


def write(double, topic, ranges, *, is_by_lane, mark_delete=-1):
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
    if is_by_lane:
        pages, rows = in_lanes(key, TOPIC, LANES, HASHES, ranges)
        facts.append({**place, "kind": "page", "page": 0, "is_removed": True})
    else:
        pages, rows = [{**place, "kind": "page", "page": 0}], [PageRows(key, TOPIC, 0, ranges)]
    double.commit_round([*facts, *pages], rows, START)


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
        ([ACKED._replace(first=2, last=2), pending(3, 3, A, due=9), REPLAY._replace(first=4, last=7)], 1),
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
    write(double, topic, ranges, is_by_lane=False, mark_delete=mark_delete)
    expected = told(layout)
    write(double, topic, ranges, is_by_lane=True, mark_delete=mark_delete)
    assert told(layout) == expected
    done = [range_ for range_ in ranges if range_.status == "acknowledged"]
    assert expected["stats"]["ackedEntries"] == mark_delete + 1 + sum(range_.size for range_ in done)
    assert expected["stats"]["nonContiguousDeletedMessagesRanges"] == len(done)


@pytest.mark.parametrize("is_by_lane", [False, True])
def test_what_was_deleted_while_it_was_out_takes_nothing_away_from_others(layout, double, is_by_lane):
    """They look like entries without a key, whose hash is of the lane of which b holds what a owns now: b holds no more
    than before, and of a hash that drains what is there is told of."""
    topic = flights(layout)
    assert sticky_key_hash(NONE_KEY) % 65_536 > 32_768, "a's since b joined"
    ranges = [pending(at, at, B if code % 65_536 > 32_768 else A) for at, code in enumerate(HASHES)]
    write(double, topic, ranges, is_by_lane=is_by_lane)
    before = told(layout)["stats"]
    DeltaTable(str(topic.path)).delete("entry_id in (2, 4)")
    after = told(layout)
    assert [(one["sticky_key_hash"], one["consumer_name"], one["entries"]) for one in after["hashes"]] == [
        (10, "a", 2),
        (40_000, "b", 2),
        (65_546, "a", 1),
        (1_310_770_000, "b", 1),
    ]
    counts = ("unackedMessages", "msgBacklog", "ackedEntries")
    assert [after["stats"][name] for name in counts] == [before[name] for name in counts] == [8, 8, 0]


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
@pytest.mark.parametrize("is_by_lane", [False, True])
def test_a_run_is_done_when_it_has_handled_its_own_of_each_lane(
    layout, double, ranges, given_back, is_handled, is_by_lane
):
    """What others hold between entries that were given back is not this run's to handle."""
    topic = flights(layout)
    backlog = Backlog(layout, topic, [-1], "s", LedgerIndex(layout))
    write(double, topic, ranges, is_by_lane=is_by_lane)
    assert backlog.is_handled(A, {-1: given_back}) is is_handled
