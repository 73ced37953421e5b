"""What may happen in a history, drawn by hypothesis, in the words of the specification's tables (tests.spec).

A history is a list of turns: what is published and asked in each, how much time passes before it, and where the broker
dies in it, if it does. Steps are drawn without regard to sense: by consumers that are not there, about positions that
do not exist or are acknowledged, of a type that others have. What a step is about stands before the colon:
``p0/failover: a flow 3``. So a history that hypothesis has shrunk reads, and can be kept, as a case of the
specification. An acknowledgement timeout is no step of its own: what a client makes of it is a negative acknowledgement
without delay.
"""

from typing import NamedTuple

from hypothesis import strategies as st

PLACES = ("t/shared", "t/failover", "t/exclusive", "p0/shared", "p1/shared", "p0/failover", "p1/failover")
TYPES = {"shared": "Shared", "failover": "Failover", "exclusive": "Exclusive"}
LEASES = {"a": 600, "b": 8, "c": 3}
"""Seconds after which each consumer's client is gone if it says nothing. A client has one lease, whatever its
consumers."""

CRASHES = tuple(f"{when} {table}" for when in ("before", "after") for table in ("ledgers", "cursor_ledger", "letters"))


class Turn(NamedTuple):
    """A round: *steps* in order, *later_ms* after the round before.
    *crash* is the write before or after which the broker dies; ``between``: before the round."""

    later_ms: int
    steps: list[str]
    crash: str | None = None


positions = st.integers(0, 15)
spans = st.tuples(positions, st.sampled_from([0, 0, 0, 1, 4])).map(
    lambda span: f"{span[0]}-{span[0] + span[1]}" if span[1] else f"{span[0]}"
)
left = st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True).map(
    lambda indexes: "left " + ",".join(map(str, sorted(indexes)))
)
entries = st.lists(
    st.one_of(st.sampled_from(["1", "1", "1*3", "2", "4"]), st.integers(0, 20).map("1@{}".format)),
    min_size=1,
    max_size=5,
).map(" ".join)
receipt = st.sampled_from(["", " receipt"])


def words(pattern: str, *parts: st.SearchStrategy) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map(lambda drawn: pattern.format(*drawn).strip())


@st.composite
def subscribes(draw, kind: str) -> str:
    """Mostly of the subscription's own type; some bring a dead letter policy."""
    asked = draw(st.sampled_from([kind] * 6 + sorted(TYPES.values())))
    options = draw(st.sampled_from(["", "", "", "", " priority 1", " max 1", " max 2", " limit 0"]))
    return f"subscribe {asked}{options}"


def of_consumers(kind: str) -> dict[str, tuple[int, st.SearchStrategy[str]]]:
    """What consumers ask, by name: how often in proportion, and the words."""
    return {
        "subscribe": (12, subscribes(kind)),
        "flow": (26, words("flow {}", st.integers(1, 12))),
        "ack": (14, words("ack {}{}", spans, receipt)),
        "ack a part": (9, words("ack {} {}{}", positions, left, receipt)),
        "cumulative": (5 if kind != "Shared" else 1, words("cumulative {}{}", positions, receipt)),
        "cumulative in a batch": (5 if kind != "Shared" else 1, words("cumulative {} {}{}", positions, left, receipt)),
        "nack": (14, words("nack {}{}", spans, st.sampled_from(["", "", " after 2", " after 3", " unseen"]))),
        "later": (
            4,
            words("later {} times {}{}{}", positions, st.integers(1, 3), st.sampled_from(["", " dead"]), receipt),
        ),
        "later in a batch": (
            3,
            words(
                "later {} index {} {}{}",
                positions,
                st.integers(0, 3),
                st.one_of(st.just(""), left),
                st.sampled_from(["", " cumulative", " receipt"]),
            ),
        ),
        "redeliver": (5, st.just("redeliver")),
        "close": (4, st.just("close")),
        "leaves": (1, st.just("leaves")),
        "alive": (3, st.just("alive")),
        "seek": (
            2,
            st.one_of(
                words("seek {}", positions),
                words("seek second {}", positions),
                st.sampled_from(["seek latest", "seek earliest"]),
            ),
        ),
        "unsubscribe": (1, st.just("unsubscribe")),
    }


limits = st.one_of(
    words("policy max_unacked_messages_per_consumer {}", st.sampled_from([0, 1, 3, 6])),
    words("policy max_unacked_messages_per_subscription {}", st.sampled_from([0, 5, 10])),
    words("policy max_consumers_per_subscription {}", st.sampled_from([0, 2])),
    words("policy active_consumer_failover_delay_ms {}", st.sampled_from([0, 1000, 2500])),
)
expiry = st.one_of(
    words("policy message_ttl_seconds {}", st.sampled_from([0, 2, 5])),
    words("policy ttl_check_seconds {}", st.sampled_from([1, 2, 4])),
    words("policy backlog_quota_seconds {}", st.sampled_from([0, 6])),
    words("policy subscription_expiration_minutes {}", st.sampled_from([0, 1, 1])),
    words("policy backlog_quota_policy {}", st.sampled_from(["consumer_backlog_eviction", "producer_exception"])),
)
administration = st.one_of(
    words("skip {}", st.integers(1, 3)),
    words("expire {}", st.integers(0, 4)),
    st.sampled_from(["clear", "create Earliest", "create Latest", "unsubscribe", "unsubscribe force", "unload"]),
    limits,
    limits,
    expiry,
)


@st.composite
def steps(draw) -> str:
    place = draw(st.sampled_from(PLACES))
    what = draw(st.sampled_from(["ask"] * 14 + ["publish"] * 4 + ["administer"]))
    if what == "publish":
        return f"{place.partition('/')[0]}: publish {draw(entries)}"
    if what == "administer":
        return f"{place}: {draw(administration)}"
    asked = of_consumers(TYPES[place.partition("/")[2]])
    kind = draw(st.sampled_from([name for name, (weight, _) in asked.items() for _ in range(weight)]))
    consumer = draw(st.sampled_from("abc"))
    return f"{place}: {consumer} {draw(asked[kind][1])}" + (f" lease {LEASES[consumer]}" if kind == "subscribe" else "")


QUICK_MS = [1000, 1000, 0, 1, 500, 2000, 5000]
"""Between rounds, mostly."""


def turns_of(steps: st.SearchStrategy[str], *, later_ms: list[int], most: int) -> st.SearchStrategy[Turn]:
    """Rounds of up to so many steps; in some of them the broker dies."""
    crashes = st.sampled_from([None] * 17 + ["between", *CRASHES])
    return st.builds(Turn, st.sampled_from(later_ms), st.lists(steps, max_size=most), crashes)


def histories_of(
    openings: st.SearchStrategy[list[str]], turns: st.SearchStrategy[Turn], *, bundles: int
) -> st.SearchStrategy[list[Turn]]:
    """An opening and a few dozen turns. They are drawn in bundles, because hypothesis draws short lists, and shrinks
    them best."""
    drawn_turns = st.lists(st.lists(turns, min_size=1, max_size=12), max_size=bundles)
    return st.tuples(openings, drawn_turns).map(
        lambda drawn: [Turn(0, drawn[0]), *(turn for bundle in drawn[1] for turn in bundle)]
    )


turns = turns_of(steps(), later_ms=QUICK_MS * 4 + [61_000], most=10)


def openings() -> st.SearchStrategy[list[str]]:
    """Steps that give the others something to do: entries, and a consumer with permits on most subscriptions."""
    published = st.tuples(st.sampled_from(["t", "p0", "p1"]), entries).map("{0[0]}: publish {0[1]}".format)
    joined = st.tuples(st.sampled_from(PLACES), st.sampled_from(["", "", " max 1"]), st.integers(1, 20)).map(
        lambda drawn: [
            f"{drawn[0]}: a subscribe {TYPES[drawn[0].partition('/')[2]]}{drawn[1]}",
            f"{drawn[0]}: a flow {drawn[2]}",
        ]
    )
    limited = limits.map("t/shared: {}".format)
    return st.tuples(st.lists(published, max_size=6), st.lists(limited, max_size=3), st.lists(joined, max_size=14)).map(
        lambda drawn: [*drawn[0], *drawn[1], *(step for steps in drawn[2] for step in steps)]
    )


def histories() -> st.SearchStrategy[list[Turn]]:
    return histories_of(openings(), turns, bundles=12)
