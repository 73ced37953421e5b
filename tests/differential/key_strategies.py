"""What may happen on Key_Shared subscriptions, drawn by hypothesis: as in ``strategies``, but few keys, entries and
subscriptions, and consumers that come and go often.

Consumers stall by asking for no permits or by acknowledging nothing, and are killed by a lease that ends. How a
subscription goes on is decided by policies drawn at the beginning, and by its first consumer.
"""

from hypothesis import strategies as st

from tests.differential.strategies import QUICK_MS, Turn, histories_of, left, receipt, turns_of, words

PLACES = ("t/keys", "t/keys", "p0/keys", "p1/other")
CONSUMERS = "abcd"
LEASES = {"a": 600, "b": 8, "c": 3, "d": 600}

KEYS = ("k0", "k0", "k1", "k2", "k3", "k4", "k5")
RANGES = ("0-32767", "32768-65535", "0-20000", "20001-50000", "30000-60000", "50001-65535")

positions = st.integers(0, 19)
spans = st.tuples(positions, st.sampled_from([0, 0, 1, 2, 6])).map(lambda span: f"{span[0]}-{span[0] + span[1]}")
keys = st.one_of(st.sampled_from(KEYS).map("={}".format), st.sampled_from(["", "=k1^k0"]))
entries = st.lists(
    st.one_of(
        words("{}{}", st.sampled_from(["1", "1", "1*2", "2", "3"]), keys), words("1{}@{}", keys, st.integers(0, 20))
    ),
    min_size=1,
    max_size=6,
).map(" ".join)

CONSUMER_STEPS = {
    "subscribe": (
        16,
        words(
            "subscribe KeyShared{}{}",
            st.sampled_from(["", "", "", "", " max 1", " max 2", " limit 0"]),
            st.sampled_from([""] * 9 + [" unordered true", " mode STICKY"]),
        ),
    ),
    "subscribe sticky": (3, words("subscribe KeyShared sticky {}", st.sampled_from(RANGES))),
    "subscribe as another type": (1, st.sampled_from(["subscribe Shared", "subscribe Failover"])),
    "flow": (26, words("flow {}", st.sampled_from([1, 1, 2, 3, 5, 8, 20]))),
    "ack": (20, words("ack {}{}", spans, receipt)),
    "ack a part": (5, words("ack {} {}{}", positions, left, receipt)),
    "cumulative": (1, words("cumulative {}{}", positions, receipt)),
    "nack": (14, words("nack {}{}", spans, st.sampled_from(["", "", " after 2", " after 4", " unseen"]))),
    "later": (2, words("later {} times {}{}", positions, st.integers(1, 3), st.sampled_from(["", " dead"]))),
    "redeliver": (5, st.just("redeliver")),
    "close": (6, st.just("close")),
    "leaves": (2, st.just("leaves")),
    "alive": (4, st.just("alive")),
    "seek": (1, st.one_of(words("seek {}", positions), st.sampled_from(["seek latest", "seek earliest"]))),
    "unsubscribe": (1, st.just("unsubscribe")),
}
"""What consumers ask, by name: how often in proportion, and the words."""

limits = st.one_of(
    words("policy max_unacked_messages_per_consumer {}", st.sampled_from([0, 2, 4])),
    words("policy max_unacked_messages_per_subscription {}", st.sampled_from([0, 4, 8])),
    words("policy key_shared_look_ahead_msg_in_replay_threshold_per_consumer {}", st.sampled_from([0, 1, 3])),
    words("policy key_shared_look_ahead_msg_in_replay_threshold_per_subscription {}", st.sampled_from([0, 1, 4])),
)
administration = st.one_of(
    words("skip {}", st.integers(1, 3)),
    st.sampled_from(["clear", "create Earliest", "unsubscribe force", "unload"]),
    limits,
    limits,
    limits,
)

RULES = (
    "subscription_key_shared_use_consistent_hashing 0",
    "subscription_key_shared_one_owner_per_point 1",
    "subscription_key_shared_consistent_hashing_replica_points 1",
    "subscription_key_shared_use_classic_persistent_implementation 1",
)


@st.composite
def steps(draw) -> str:
    place = draw(st.sampled_from(PLACES))
    what = draw(st.sampled_from(["ask"] * 16 + ["publish"] * 5 + ["administer"]))
    if what == "publish":
        return f"{place.partition('/')[0]}: publish {draw(entries)}"
    if what == "administer":
        return f"{place}: {draw(administration)}"
    kind = draw(st.sampled_from([name for name, (weight, _) in CONSUMER_STEPS.items() for _ in range(weight)]))
    consumer = draw(st.sampled_from(CONSUMERS))
    lease = f" lease {LEASES[consumer]}" if kind.startswith("subscribe") else ""
    return f"{place}: {consumer} {draw(CONSUMER_STEPS[kind][1])}{lease}"


turns = turns_of(steps(), later_ms=QUICK_MS, most=8)


def openings() -> st.SearchStrategy[list[str]]:
    """Rules, entries, and consumers with permits on most subscriptions."""
    ruled = st.tuples(st.sampled_from(["t/keys", "p0/keys"]), st.sampled_from(RULES)).map(
        "{0[0]}: policy {0[1]}".format
    )
    published = st.tuples(st.sampled_from(["t", "t", "p0", "p1"]), entries).map("{0[0]}: publish {0[1]}".format)
    joined = st.tuples(st.sampled_from(PLACES), st.sampled_from("ad"), st.integers(1, 20)).map(
        lambda drawn: [f"{drawn[0]}: {drawn[1]} subscribe KeyShared", f"{drawn[0]}: {drawn[1]} flow {drawn[2]}"]
    )
    return st.tuples(st.lists(ruled, max_size=2), st.lists(published, max_size=6), st.lists(joined, max_size=6)).map(
        lambda drawn: [*drawn[0], *drawn[1], *(step for steps in drawn[2] for step in steps)]
    )


def histories() -> st.SearchStrategy[list[Turn]]:
    return histories_of(openings(), turns, bundles=8)
