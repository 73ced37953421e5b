"""What may happen where messages wait for their deliver time, drawn by hypothesis: as in ``strategies``, but most
entries have a deliver time, subscriptions change their type, and what waits is cancelled and moved.

``index:`` is what happens to the delay index meanwhile, of which nobody may notice anything: what is in memory becomes
a bucket and buckets are merged, all of it is made anew, its files are lost and the broker starts, or the broker dies
when a bucket is written and not committed.
"""

from collections.abc import Sequence

from hypothesis import strategies as st

from tests.differential.strategies import QUICK_MS, Turn, histories_of, left, receipt, turns_of, words

PLACES = ("t/any", "t/any", "t/keys", "p0/any", "p1/shared")
TYPES = {
    "any": ("Shared",) * 4 + ("KeyShared", "Exclusive", "Failover"),
    "keys": ("KeyShared",) * 6 + ("Shared", "Exclusive"),
    "shared": ("Shared",),
}
LEASES = {"a": 600, "b": 600, "c": 5}
INDEX = ("seal", "seal", "rebuild", "lose", "die")

positions = st.integers(0, 19)
spans = st.tuples(positions, st.sampled_from([0, 0, 1, 2, 6])).map(lambda span: f"{span[0]}-{span[0] + span[1]}")
seconds = st.one_of(st.integers(0, 30), st.integers(0, 30), st.sampled_from([-3, 100]))
keys = st.sampled_from(["", "=a", "=b", "=c"])
entries = st.lists(
    words(
        "{}{}{}",
        st.sampled_from(["1", "1", "1*2", "2", "3"]),
        keys,
        st.one_of(st.just(""), *[seconds.map("@{}".format)] * 3),
    ),
    min_size=1,
    max_size=6,
).map(" ".join)

CONSUMER_STEPS = {
    "flow": (24, words("flow {}", st.sampled_from([1, 1, 2, 3, 5, 8, 20]))),
    "ack": (20, words("ack {}{}", spans, receipt)),
    "ack a part": (6, words("ack {} {}{}", positions, left, receipt)),
    "cumulative": (2, words("cumulative {}{}", positions, receipt)),
    "nack": (12, words("nack {}{}", spans, st.sampled_from(["", "", " after 2", " after 4"]))),
    "later": (3, words("later {} times {}{}", positions, st.integers(1, 3), st.sampled_from(["", " dead"]))),
    "redeliver": (3, st.just("redeliver")),
    "close": (8, st.just("close")),
    "leaves": (1, st.just("leaves")),
    "alive": (4, st.just("alive")),
    "seek": (3, st.one_of(words("seek {}", positions), st.sampled_from(["seek latest", "seek earliest"]))),
    "unsubscribe": (1, st.just("unsubscribe")),
}
"""What consumers ask, by name: how often in proportion, and the words."""

administration = st.one_of(
    *[words("cancel {}", spans)] * 4,
    *[words("reschedule {} {}", spans, seconds)] * 4,
    words("skip {}", st.integers(1, 3)),
    words("expire {}", st.integers(0, 4)),
    st.sampled_from(["clear", "create Earliest", "create Latest", "unsubscribe force", "unload"]),
    words("policy delayed_delivery_active {}", st.sampled_from([0, 1, 1])),
    words("policy message_ttl_seconds {}", st.sampled_from([0, 2, 5])),
    words("policy ttl_check_seconds {}", st.sampled_from([1, 4])),
    words("policy max_unacked_messages_per_consumer {}", st.sampled_from([0, 1, 3])),
    words("policy max_unacked_messages_per_subscription {}", st.sampled_from([0, 4, 8])),
)


OPTIONS = ("", "", "", "", " max 1", " limit 0")
"""What a consumer asks for when it subscribes."""


@st.composite
def steps(draw, entries: st.SearchStrategy[str] = entries, publishes: int = 5, options: Sequence[str] = OPTIONS) -> str:
    """*entries* are what is published, so often in proportion."""
    place = draw(st.sampled_from(PLACES))
    asked = ["ask"] * 14 + ["subscribe"] * 4
    what = draw(st.sampled_from([*asked, *["publish"] * publishes, *["administer"] * 4, "index"]))
    if what == "publish":
        return f"{place.partition('/')[0]}: publish {draw(entries)}"
    if what == "administer":
        return f"{place}: {draw(administration)}"
    if what == "index":
        return f"index: {draw(st.sampled_from(INDEX))}"
    consumer = draw(st.sampled_from("abc"))
    if what == "subscribe":
        kind = draw(st.sampled_from(TYPES[place.partition("/")[2]]))
        return f"{place}: {consumer} subscribe {kind}{draw(st.sampled_from(options))} lease {LEASES[consumer]}"
    kind = draw(st.sampled_from([name for name, (weight, _) in CONSUMER_STEPS.items() for _ in range(weight)]))
    return f"{place}: {consumer} {draw(CONSUMER_STEPS[kind][1])}"


turns = turns_of(steps(), later_ms=QUICK_MS, most=8)


def openings(entries: st.SearchStrategy[str] = entries) -> st.SearchStrategy[list[str]]:
    """Entries, and consumers with permits on most subscriptions."""
    published = st.tuples(st.sampled_from(["t", "t", "p0", "p1"]), entries).map("{0[0]}: publish {0[1]}".format)
    joined = st.tuples(st.sampled_from(PLACES), st.integers(1, 20)).map(
        lambda drawn: [
            f"{drawn[0]}: a subscribe {TYPES[drawn[0].partition('/')[2]][0]}",
            f"{drawn[0]}: a flow {drawn[1]}",
        ]
    )
    return st.tuples(st.lists(published, max_size=6), st.lists(joined, max_size=6)).map(
        lambda drawn: [*drawn[0], *(step for steps in drawn[1] for step in steps)]
    )


def histories() -> st.SearchStrategy[list[Turn]]:
    return histories_of(openings(), turns, bundles=8)
