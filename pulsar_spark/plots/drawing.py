"""How the pictures look: each function draws pandas rows on *axes* and returns them; None makes a new figure."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#000000")
DASHES = ("-", "--", "-.", ":")
HATCHES = ("", "//", "xx", "..", "\\\\", "++")
EVENT_MARKS = {
    "delivered": ("o", "#0072B2"),
    "acknowledged": ("s", "#009E73"),
    "negatively_acknowledged": ("v", "#E69F00"),
    "retry_lettered": ("^", "#CC79A7"),
    "dead_lettered": ("X", "#D55E00"),
}
"""Mark and colour; of other events black diamonds."""


def draw_backlog(progress: pd.DataFrame, topic: str, axes: Axes | None = None) -> Axes:
    """Draw ``published - acknowledged`` of each ``subscription`` by ``time``, one row of *progress* a round."""
    axes = _axes(axes)
    for number, (name, rounds) in enumerate(progress.groupby("subscription")):
        waiting = rounds["published"] - rounds["acknowledged"]
        axes.step(rounds["time"], waiting, where="post", label=name, **_style(number))
    return _over_time(axes, f"Backlog of {topic}", "entries")


def draw_rates(progress: pd.DataFrame, topic: str, subscription: str, axes: Axes | None = None) -> Axes:
    """Draw how much ``published``, ``delivered`` and ``acknowledged`` of one *subscription* grow each second."""
    axes = _axes(axes)
    of_one = progress[progress["subscription"] == subscription].set_index("time")
    for number, name in enumerate(("published", "delivered", "acknowledged")):
        per_second = of_one[name].resample("1s").last().ffill().diff().fillna(0)
        axes.plot(per_second.index, per_second, label=name, **_style(number))
    return _over_time(axes, f"Rates of {topic}, {subscription}", "per second")


def draw_rounds(rounds: pd.DataFrame, axes: Axes | None = None) -> Axes:
    """Draw how many rows, each with a ``time`` and a ``broker_id``, each second has."""
    axes = _axes(axes)
    for number, (broker, of_one) in enumerate(rounds.groupby("broker_id", sort=False)):
        per_second = of_one.set_index("time")["broker_id"].resample("1s").count()
        axes.step(per_second.index, per_second, where="mid", label=_shortened(f"broker {broker}"), **_style(number))
    axes.set_ylim(bottom=0)
    return _over_time(axes, "Rounds", "rounds per second")


def draw_who_got_what(deliveries: pd.DataFrame, topic: str, subscription: str, axes: Axes | None = None) -> Axes:
    """Draw a bar from ``first`` to ``last`` in the row of ``consumer_name``, hatched where an earlier row has some of
    these positions. Rows are in order of time."""
    axes, deliveries = _axes(axes), deliveries.assign(is_again=_repetitions(deliveries["first"], deliveries["last"]))
    names = sorted(deliveries["consumer_name"].dropna().unique())
    for number, name in enumerate(names):
        of_one = deliveries[deliveries["consumer_name"] == name]
        for is_again, runs in of_one.groupby("is_again"):
            bars = list(zip(runs["first"], runs["last"] - runs["first"] + 1))
            look: dict[str, Any] = {"hatch": "//", "edgecolors": "black"} if is_again else {"edgecolors": "none"}
            axes.broken_barh(bars, (number - 0.4, 0.8), facecolors=COLOURS[number % len(COLOURS)], **look)
    axes.set(title=f"Who got what of {topic}, {subscription}", xlabel="position", ylabel="consumer")
    axes.set_yticks(range(len(names)), names)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if deliveries["is_again"].any():
        again = Patch(facecolor="white", edgecolor="black", hatch="//", label="delivered again")
        axes.legend(handles=[again], loc="center left", bbox_to_anchor=(1, 0.5))
    return axes


def draw_hash_owners(owned: pd.DataFrame, topic: str, subscription: str, axes: Axes | None = None) -> Axes:
    """Draw a bar from hash ``start`` to ``end``, from ``first_round`` to ``last_round`` for ``consumer_name``."""
    axes, names = _axes(axes), sorted(owned["consumer_name"].unique())
    for number, name in enumerate(names):
        of_one = owned[owned["consumer_name"] == name]
        axes.bar(
            of_one["first_round"],
            of_one["end"] - of_one["start"] + 1,
            width=of_one["last_round"] - of_one["first_round"],
            bottom=of_one["start"],
            align="edge",
            **_bar(number),
        )
    axes.set(title=f"Who owns which hashes of {topic}, {subscription}", xlabel="round", ylabel="hash")
    if len(owned):
        axes.set(xlim=(owned["first_round"].min(), owned["last_round"].max()), ylim=(0, owned["end"].max() + 1))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(handles=_patches(names), loc="center left", bbox_to_anchor=(1, 0.5))
    return axes


def draw_due_times(due: pd.Series, topic: str, bins: int = 60, axes: Axes | None = None) -> Axes:
    """Draw how many of the times *due* lie in each of *bins* intervals."""
    axes = _axes(axes)
    axes.hist(due, bins=bins, color=COLOURS[0])
    return _over_time(axes, f"Delayed messages of {topic}: {len(due):,}", "messages", is_labelled=False)


def draw_message_history(events: pd.DataFrame, topic: str, position: int, axes: Axes | None = None) -> Axes:
    """Draw each ``event`` as a mark at its ``time`` in its ``subscription``'s row; name consumers at deliveries."""
    axes, names = _axes(axes), sorted(events["subscription"].dropna().unique())
    for event, of_one in events.dropna(subset=["subscription"]).groupby("event"):
        heights = [names.index(name) for name in of_one["subscription"]]
        mark, colour = EVENT_MARKS.get(str(event), ("D", "black"))
        axes.scatter(of_one["time"], heights, label=event, marker=mark, color=colour, s=70)
    for row in events[events["event"] == "delivered"].itertuples():
        axes.annotate(row.consumer_name, (row.time, names.index(row.subscription)), (0, 8), textcoords="offset points")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(-0.5, max(len(names), 1) - 0.3)
    return _over_time(axes, f"Entry {position} of {topic}", "subscription")


def _repetitions(firsts: Iterable[int], lasts: Iterable[int]) -> list[bool]:
    """Whether each range shares a number with an earlier one.

    >>> _repetitions([0, 10, 5, 20], [9, 19, 6, 29])
    [False, False, True, False]
    """
    found = []
    begins: list[int] = []  # of the ranges before, joined where they touch the same numbers, in order
    ends: list[int] = []
    for first, last in zip(firsts, lasts, strict=True):
        low, high = bisect_left(ends, first), bisect_right(begins, last)
        found.append(low < high)
        if low < high:
            first, last = min(first, begins[low]), max(last, ends[high - 1])
        begins[low:high], ends[low:high] = [first], [last]
    return found


def _shortened(label: str, most: int = 40) -> str:
    return label if len(label) <= most else f"{label[: most // 2]}…{label[-most // 2 + 1 :]}"


def _axes(axes: Axes | None) -> Axes:
    return axes if axes is not None else plt.subplots(figsize=(9, 4), layout="constrained")[1]


def _style(number: int) -> dict:
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": DASHES[number % len(DASHES)]}


def _bar(number: int) -> dict:
    return {"color": COLOURS[number % len(COLOURS)], "hatch": HATCHES[number % len(HATCHES)]}


def _patches(names: Iterable[str]) -> list[Patch]:
    return [
        Patch(facecolor=COLOURS[number % len(COLOURS)], hatch=HATCHES[number % len(HATCHES)], label=name)
        for number, name in enumerate(names)
    ]


def _over_time(axes: Axes, title: str, unit: str, *, is_labelled: bool = True) -> Axes:
    axes.set(title=title, ylabel=unit, xlabel="time (UTC)")
    locator = AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    if is_labelled and axes.get_legend_handles_labels()[1]:
        axes.legend()
    return axes
