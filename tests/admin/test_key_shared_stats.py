"""Key_Shared as stats tell it: who owns which hashes, which drain and for whom they wait. Over hand-written rounds."""

import json
from datetime import timedelta

import numpy as np
import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.broker.committing.round_rows import CursorRanges
from pulsar_spark.cli.administration import subscriptions
from pulsar_spark.errors import SubscriptionNotFound
from pulsar_spark.protocol.acknowledgement.cursor import Range
from pulsar_spark.protocol.entries.entry_map import EntryMap
from pulsar_spark.protocol.entries.entry_ranges import pass_to, put_ranges
from pulsar_spark.protocol.keys.hash_ranges import Owners, owner
from pulsar_spark.protocol.keys.selectors import AutoSplit, ConsistentHashing, Member, Sticky
from pulsar_spark.protocol.keys.sticky_key import sticky_key_hash
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, LatestRows
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.entries import key_hashes
from pulsar_spark.storage.topics.topics import create_topic
from pulsar_spark.table_specs import MESSAGES
from pulsar_spark.testing.plain_broker import PlainBroker
from pulsar_spark.views import draining
from pulsar_spark.views.stats import Observation
from pulsar_spark.views.stats_table import STATS, stats_rows
from tests.admin.broker_double import BrokerDouble, number
from tests.conftest import START
from tests.support.commands import say

TOPIC = "persistent://public/default/flights"
A, B = "id of a", "id of b"
HASHES = [10, 40_000, 10, 65_536 + 10, 21, 50_000 + 20_000 * 65_536, 40_000, 10]
"""Of the entries at positions 0 to 7; slots up to 32768 are b's since it joined, the others a's."""
SPLIT = AutoSplit().joined(Member(A, "a")).joined(Member(B, "b"))
AUTO_SPLIT = {"subscription_key_shared_use_consistent_hashing": "0"}
JOINED = START + timedelta(seconds=10)


@pytest.fixture
def double(layout) -> BrokerDouble:
    return BrokerDouble(layout)


def flights(layout, partitions=0):
    """The topic, with an entry for each of :data:`HASHES` on every partition."""
    topic = create_topic(layout, TOPIC, partitions)
    for partition in topic.partition_indexes:
        messages = [
            dict(
                publish_id=f"{partition}" * 32,
                entry_id=at,
                batch_size=1,
                partition=partition,
                sticky_key_hash=code,
                partition_key="k",
                publish_time=START,
            )
            for at, code in enumerate(HASHES)
        ]
        AppendTable(topic.path).append(MESSAGES.rows(messages))
    number(layout, topic)
    return topic


def commit(
    double, topic, selector, ranges, *, at=20, partition=-1, rules=AUTO_SPLIT, cursor=(), joined=None, name=None
):
    """The round *at* so many seconds, in which a subscription has these owners and ranges; *joined* are read positions
    of consumers that joined of late, *name* is that of all consumers."""
    common = {"topic": TOPIC, "topic_id": topic.topic_id, "partition": partition}
    of_cursor = {**common, "subscription": "s"}
    facts = [
        {**common, "kind": "topic", "ledger_id": 1, "end_position": len(HASHES)},
        {**of_cursor, "kind": "cursor", "subscription_type": "KeyShared", "mark_delete_position": -1,
         "read_position": 8, "key_shared_mode": "AUTO_SPLIT", "properties": list(rules.items()),
         "round_time": JOINED, **dict(cursor)},
        *(
            {**of_cursor, "kind": "consumer", "consumer_id": consumer_id, "consumer_name": name or consumer_id[-1],
             "join_order": order, "read_position": (joined or {}).get(consumer_id),
             "properties": [("hash_ranges", ",".join(f"{one.start}-{one.end}" for one in own))],
             "hash_ranges": [{"start": one.start, "end": one.end} for one in own]}
            for order, consumer_id in enumerate((A, B))
            if (own := [one for one in selector.owned() if one.consumer_id == consumer_id])
        ),
    ]  # fmt: skip
    double.commit_round(
        facts, [CursorRanges(CursorKey(topic.topic_id, partition, "s"), TOPIC, ranges)], START + timedelta(seconds=at)
    )


def pending(first, last, consumer_id, delivery_round=1, *, due=None, batch_size=1, ack_set=None):
    return Range(first, last, "pending", consumer_id, delivery_round, 0, due, ack_set, batch_size)


def stats(root):
    return Admin(f"delta:{root}").stats(TOPIC)["subscriptions"]["s"]


def draining_of(found):
    return {
        consumer["consumerName"]: {one["hash"]: one["unackMsgs"] for one in consumer["drainingHashes"]}
        for consumer in found["consumers"]
    }


def test_a_hash_drains_while_another_than_its_owner_has_entries_of_it(layout, double):
    """What a got before b came and b's ranges hold now; neither a's own, nor what b got, nor what is acknowledged."""
    topic = flights(layout)
    commit(double, topic, SPLIT, [pending(0, 7, A)], at=0)
    ranges = [pending(0, 4, A), Range(5, 5, "acknowledged"), pending(6, 6, A, 2), pending(7, 7, B, 2)]
    commit(double, topic, SPLIT, ranges)
    found = stats(layout.root)
    assert draining_of(found) == {"a": {10: 2, 21: 1, 65_546: 1}, "b": {}}
    a, b = found["consumers"]
    assert (a["drainingHashesCount"], a["drainingHashesUnackedMessages"]) == (3, 4)
    assert (b["drainingHashesCount"], b["drainingHashesUnackedMessages"]) == (0, 0)
    assert (found["drainingHashesCount"], found["drainingHashesUnackedMessages"]) == (3, 4)
    assert (found["type"], found["keySharedMode"], found["allowOutOfOrderDelivery"]) == (
        "Key_Shared",
        "AUTO_SPLIT",
        False,
    )
    assert "consumersAfterMarkDeletePosition" not in found


def test_ranges_are_said_as_pulsar_does(layout, double):
    commit(double, flights(layout), SPLIT, [])
    a, b = stats(layout.root)["consumers"]
    assert (a["keyHashRanges"], b["keyHashRanges"]) == (["[32769, 65536]"], ["[0, 32768]"])
    assert (a["keyHashRangeArrays"], b["keyHashRangeArrays"]) == ([[32769, 65536]], [[0, 32768]])


def test_messages_left_of_batches_are_counted(layout, double):
    topic = flights(layout)
    commit(
        double, topic, SPLIT, [pending(0, 0, A, batch_size=5), pending(2, 2, A, batch_size=8, ack_set=(0b101,))], at=0
    )
    assert draining_of(stats(layout.root))["a"] == {10: 5 + 2}


def test_a_hash_of_which_its_owner_gave_an_entry_back_waits_until_it_is_due(layout, double):
    """It does not drain; one that another gave back does, until it comes back."""
    topic, due = flights(layout), 1
    ranges = [
        pending(0, 0, A, due=due),
        pending(1, 1, A, due=due),
        pending(5, 5, A),
        Range(6, 6, "replay", batch_size=1),
    ]
    commit(double, topic, SPLIT, ranges, at=0)
    found = stats(layout.root)
    assert draining_of(found) == {"a": {10: 1}, "b": {}}
    assert found["consumers"][0]["waitingHashes"] == [{"hash": 40_000, "unackMsgs": 1}]
    assert (found["waitingHashesCount"], found["drainingHashesCount"]) == (1, 1)


def test_where_order_is_given_up_nothing_drains(layout, double):
    topic = flights(layout)
    commit(double, topic, SPLIT, [pending(0, 7, A)], at=0, cursor={"allow_out_of_order_delivery": True})
    found = stats(layout.root)
    assert (found["allowOutOfOrderDelivery"], found["drainingHashesCount"]) == (True, 0)
    assert found["consumers"][1]["keyHashRanges"] == ["[0, 32768]"]


def test_the_classic_rule_has_consumers_after_mark_delete_instead(layout, double):
    classic = {**AUTO_SPLIT, "subscription_key_shared_use_classic_persistent_implementation": "1"}
    commit(double, flights(layout), SPLIT, [pending(0, 7, A)], at=0, rules=classic, joined={B: 8})
    found = stats(layout.root)
    assert found["consumersAfterMarkDeletePosition"] == {"b": 8}
    assert found["drainingHashesCount"] == 0


def test_what_was_delivered_since_the_last_change_is_not_read(layout, double, monkeypatch):
    """It lies with its owner; so stats of a subscription at rest read no message, however many are out."""
    topic, read = flights(layout), []

    def read_hashes(table, runs):
        runs = list(runs)
        read.extend((run.first_position, run.last_position) for run in runs)
        return found(table, runs)

    found = key_hashes.read_hashes
    monkeypatch.setattr(key_hashes, "read_hashes", read_hashes)
    for at in (0, 9, 11, 12):
        commit(double, topic, SPLIT, [pending(0, 7, A)], at=at)
    commit(double, topic, SPLIT, [pending(0, 3, A, 3), pending(4, 7, B, 4)], at=13)
    assert stats(layout.root)["drainingHashesCount"] == 0 and read == []
    commit(double, topic, SPLIT, [pending(0, 1, A, 2), pending(2, 3, A, 3), pending(4, 7, B, 4)], at=14)
    assert draining_of(stats(layout.root))["a"] == {10: 1} and read == [(0, 1)]
    commit(double, topic, SPLIT, [pending(0, 1, A, 2), Range(2, 7, "acknowledged")], at=15, cursor={"round_time": None})
    assert draining_of(stats(layout.root))["a"] == {10: 1}, "rows of before say nothing of when"


def test_few_stretches_are_read_of_entries_far_apart(layout, monkeypatch):
    stretches = []

    class Index:
        def runs(self, topic_id, partition, first, last):
            stretches.append((first, last))
            return first, last

    monkeypatch.setattr(draining, "LedgerIndex", lambda layout: Index())
    monkeypatch.setattr(key_hashes, "read_hashes", lambda table, span: np.arange(span[0], span[1] + 1, dtype="i4"))
    ranges = [pending(at, at, A) for at in (*range(0, 3000, 1000), 1_000_000, 1_000_001)]
    owners = Owners(SPLIT.owned(), SPLIT.axis)
    latest, key = LatestRows(), CursorKey("t", -1, "s")
    latest.maps[key] = EntryMap()
    put_ranges(latest.maps[key], ranges)
    pass_to(latest.maps[key], -1)
    found = draining.draining_hashes(layout, "t", latest, key, owners, None)
    assert stretches == [(0, 2000), (1_000_000, 1_000_001)]
    assert [(one.hash, one.first, one.owner_id) for one in found] == [
        (at, at, B) for at in (0, 1000, 2000, 1_000_000, 1_000_001) if at % 65_536 <= 32_768
    ]


@pytest.mark.parametrize(
    ("selector", "cursor", "name"),
    [
        (ConsistentHashing().joined(Member(A, "a")).joined(Member(B, "b")), {}, None),
        (ConsistentHashing().joined(Member(A, "x")).joined(Member(B, "x")), {}, "x"),
        (
            Sticky(is_exact=True).joined(Member(A, "a", ((0, 10), (40_000, 45_000)))),
            {"key_shared_mode": "STICKY"},
            None,
        ),
    ],
    ids=["a ring", "a name twice on a ring", "sticky ranges with gaps"],
)
def test_owners_are_those_of_the_subscriptions_selector(layout, double, selector, cursor, name):
    commit(double, flights(layout), selector, [pending(0, 7, A)], at=0, rules={}, cursor=cursor, name=name)
    elsewhere = {code for code in HASHES if owner(selector.owned(), selector.axis, code) != A}
    assert 0 < len(elsewhere) < len(set(HASHES))
    assert {one["hash"] for one in stats(layout.root)["consumers"][0]["drainingHashes"]} == elsewhere


def test_partitions_are_summed_and_ranges_said_where_they_agree(layout, double):
    topic = flights(layout, 2)
    other = AutoSplit().joined(Member(B, "b")).joined(Member(A, "a"))
    commit(double, topic, SPLIT, [pending(0, 7, A)], at=0, partition=0)
    commit(double, topic, SPLIT, [pending(0, 0, A)], at=0, partition=1)
    found = stats(layout.root)
    a, b = found["consumers"]
    assert (found["drainingHashesCount"], found["drainingHashesUnackedMessages"]) == (3 + 1, 5 + 1)
    assert (a["drainingHashesCount"], a["keyHashRanges"]) == (4, ["[32769, 65536]"])
    commit(double, topic, other, [pending(0, 0, A)], partition=1)
    found = stats(layout.root)
    assert [("keyHashRanges" in each, "keyHashRangeArrays" in each) for each in found["consumers"]] == [
        (False, False)
    ] * 2


def test_rows_have_the_counts_and_other_types_none(layout, double):
    topic = flights(layout)
    commit(double, topic, SPLIT, [pending(0, 7, A)], at=0)
    rows = STATS.rows(list(stats_rows(Observation(layout), [topic]))).to_pylist()
    assert [(row["key_shared_mode"], row["draining_hashes"], row["draining_unacked"]) for row in rows] == [
        (None, None, None),
        ("AUTO_SPLIT", 3, 5),
        ("AUTO_SPLIT", 3, 5),
        ("AUTO_SPLIT", 0, 0),
    ]
    commit(double, topic, SPLIT, [pending(0, 7, A)], cursor={"subscription_type": "Shared"})
    found = stats(layout.root)
    assert not [name for one in (found, *found["consumers"]) for name in one if "rain" in name or "keyS" in name]


def run(layout, command, *more):
    return say(layout.root, *command.split(), TOPIC, *more, columns=120)


def table(text):
    """The cells of a table that was printed, a list a row."""
    return [[cell.strip() for cell in line.strip("│┃").split("│")] for line in text.splitlines() if "│" in line]


def test_the_command_says_who_owns_what_and_what_waits_for_whom(layout, double):
    topic = flights(layout)
    commit(double, topic, SPLIT, [pending(0, 4, A), pending(5, 5, A, due=1_000_000)], at=0)
    assert table(run(layout, "subscriptions hashes", "-s", "s")) == [
        ["-1", "b", "[0, 32768]", "50.0%"],
        ["-1", "a", "[32769, 65536]", "50.0%"],
        ["-1", "10", "b", "a", "2", "0", "drains"],
        ["-1", "21", "b", "a", "1", "4", "drains"],
        ["-1", "65546", "b", "a", "1", "3", "drains"],
        ["-1", str(HASHES[5]), "a", "a", "1", "5", "given back, comes again at 1970-01-01T00:00:01+00:00"],
    ]
    found = json.loads(run(layout, "subscriptions hashes", "-s", "s", "--json"))
    assert [(one["consumer_name"], one["range_end"]) for one in found["ranges"]] == [("b", 32_768), ("a", 65_536)]
    assert [one["sticky_key_hash"] for one in found["draining"]] == sorted({10, 21, 65_546, HASHES[5]})
    assert table(run(layout, "stats"))[-1] == ["s", "AUTO_SPLIT", "no", "3", "4", "1"]


def test_many_ranges_and_hashes_are_told_in_short(layout, double, monkeypatch):
    monkeypatch.setattr(subscriptions, "_SHOWN_HASHES", 1)
    ring = ConsistentHashing().joined(Member(A, "a")).joined(Member(B, "b"))
    commit(double, flights(layout), ring, [pending(0, 7, A)], at=0, rules={})
    printed = run(layout, "subscriptions hashes", "-s", "s")
    assert len(table(printed)) == 3 and all(" more" in row[2] for row in table(printed)[:2])
    assert printed.splitlines()[-1] == "and 3 more: --json shows all"


def test_a_gap_is_nobodys(layout, double):
    sticky = Sticky(is_exact=True).joined(Member(A, "a", ((0, 16_383),)))
    commit(double, flights(layout), sticky, [], rules={}, cursor={"key_shared_mode": "STICKY"})
    assert table(run(layout, "subscriptions hashes", "-s", "s")) == [
        ["-1", "a", "[0, 16383]", "25.0%"],
        ["-1", "nobody", "[16384, 65535]", "75.0%"],
    ]


def test_other_subscriptions_have_no_hashes_and_a_wrong_name_is_said(layout, double):
    commit(double, flights(layout), SPLIT, [], cursor={"subscription_type": "Shared"})
    assert run(layout, "subscriptions hashes", "-s", "s").splitlines() == [
        "nobody is connected",
        "hashes that wait: none",
    ]
    with pytest.raises(SubscriptionNotFound, match="no subscription 'S'"):
        Admin(f"delta:{layout.root}").hash_ranges(TOPIC, "S")


def test_what_drains_over_real_rounds_is_what_the_newcomer_waits_for(root):
    """Keys of which the first consumer holds messages when another joins; until they are acknowledged."""
    client, admin = pulsar.Client(f"delta:{root}"), Admin(f"delta:{root}")
    key_shared = dict(consumer_type=pulsar.ConsumerType.KeyShared, initial_position=pulsar.InitialPosition.Earliest)
    keys = [f"customer-{number}" for number in range(20)]
    with PlainBroker(root):
        producer = client.create_producer(TOPIC)
        for key in keys * 2:
            producer.send(key.encode(), partition_key=key)
        anna = client.subscribe(TOPIC, "s", consumer_name="anna", **key_shared)
        held = [anna.receive(60_000) for _ in range(30)]
        assert admin.draining_hashes(TOPIC, "s") == [], "all is anna's"
        ben = client.subscribe(TOPIC, "s", consumer_name="ben", **key_shared)
        owned = {key: of_key(admin.hash_ranges(TOPIC, "s"), key) for key in keys}
        bens = {sticky_key_hash(key.encode()) for key in keys if owned[key] == "ben"}
        draining = admin.draining_hashes(TOPIC, "s")
        assert {one["sticky_key_hash"] for one in draining} == bens and 0 < len(bens) < len(keys)
        assert {(one["owner_name"], one["consumer_name"], one["messages"]) for one in draining} == {("ben", "anna", 2)}
        assert {each["consumerName"]: each["drainingHashesCount"] for each in stats(root)["consumers"]} == {
            "anna": len(bens),
            "ben": 0,
        }
        for key in keys:
            producer.send(key.encode(), partition_key=key)
        with pytest.raises(pulsar.Timeout):
            ben.receive(300)
        anna.acknowledge([*held, *(anna.receive(60_000) for _ in range(10))])
        got = sorted(ben.receive(60_000).data().decode() for _ in bens)
        assert got == sorted(key for key in keys if owned[key] == "ben")
        assert admin.draining_hashes(TOPIC, "s") == []
        client.close()


def of_key(ranges, key):
    """The name of the owner of a key, by the rows of the view."""
    code = sticky_key_hash(key.encode())
    (name,) = (
        each["consumer_name"]
        for each in ranges
        if each["range_start"] <= code % each["axis_size"] + each["axis_start"] <= each["range_end"]
        and code % each["sharers"] == each["share"]
    )
    return name
