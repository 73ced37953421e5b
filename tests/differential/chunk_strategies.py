"""What may happen where messages come in chunks, drawn by hypothesis: as in ``delay_strategies``, but what is published
is mostly chunks, as producers send them and as they do not: dropped, repeated, out of order, cut off and gone on with
later, of several messages between each other, with one uuid of two producers, with counts that lie.
"""

from hypothesis import strategies as st

from tests.differential import delay_strategies
from tests.differential.delay_strategies import seconds
from tests.differential.strategies import QUICK_MS, Turn, histories_of, turns_of

GROUPS = ("A", "A", "B", "C", "q.A", "q.B")
"""Uuids, few, so that what was cut off is gone on with and sent anew; two of them of two producers."""

FLAWS = (None,) * 6 + ("drop", "repeat", "swap", "lie", "beyond", "cut")


@st.composite
def sent(draw) -> list[str]:
    """The chunks of one message, as entries of a table."""
    group, count = draw(st.sampled_from(GROUPS)), draw(st.sampled_from([2, 2, 3, 4, 1]))
    more = draw(st.sampled_from(["", "", "", "=a", "=b"]))
    more += draw(st.one_of(st.just(""), st.just(""), st.just(""), seconds.map("@{}".format)))
    ids = list(range(draw(st.sampled_from([0, 0, 0, 0, 1, 2])), count))
    flaw, at = draw(st.sampled_from(FLAWS)), draw(st.integers(0, 3))
    said = [f"{chunk}/{count}" for chunk in ids]
    if said and flaw:
        at %= len(said)
        said = {
            "drop": said[:at] + said[at + 1 :],
            "repeat": said[: at + 1] + said[at:],
            "swap": said[:at] + said[at:][::-1],
            "lie": said[:at] + [f"{ids[at]}/{count + 1}"] + said[at + 1 :],
            "beyond": said[:at] + [f"{count + at}/{count}"] + said[at:],
            "cut": said[:at],
        }[flaw]
    return [f"{group}:{each}{more}" for each in said]


@st.composite
def entries(draw) -> str:
    """Of up to three messages in between each other, and small ones and batches between them."""
    lines = draw(st.lists(sent(), min_size=1, max_size=3))
    lines.append(draw(st.lists(st.sampled_from(["1", "1=a", "2", "3=a,b", "1@4"]), max_size=2)))
    drawn = []
    while any(lines):
        line = draw(st.sampled_from([line for line in lines if line]))
        drawn.append(line.pop(0))
    return " ".join(drawn) or "1"


LIMITS = (" pending 1", " pending 2", " pending 1 auto true", " pending 2 auto true", " incomplete 3000")

turns = turns_of(delay_strategies.steps(entries(), 8, delay_strategies.OPTIONS + LIMITS), later_ms=QUICK_MS, most=8)


def histories() -> st.SearchStrategy[list[Turn]]:
    return histories_of(delay_strategies.openings(entries()), turns, bundles=8)
