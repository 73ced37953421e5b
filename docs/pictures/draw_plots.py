"""Draws examples of ``pulsar_spark.plots`` from small fixed data: ``python docs/pictures/draw_plots.py``.

Each example is one SVG file in ``docs/pictures/plots``, drawn by the code that draws the pictures of a real root. Text
stays text, and the card is white on light and dark pages alike.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[2]))
from pulsar_spark.plots import drawing  # noqa: E402

FOLDER = Path(__file__).parent / "plots"
START = pd.Timestamp("2026-03-02 09:00:00")
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "pulsar_spark", "figure.facecolor": "white"}
HASHES = 65_536


def seconds(number: float) -> pd.Timestamp:
    return START + pd.Timedelta(seconds=number)


def progress() -> pd.DataFrame:
    """A minute of rounds: 40 messages a second come for 35 seconds; the consumer of ``mail`` stops for 15 seconds."""
    rows = []
    delivered, acknowledged = {"billing": 0, "mail": 0}, {"billing": 0, "mail": 0}
    for second in range(61):
        published = 40 * min(second, 35)
        for name, capacity in (("billing", 55), ("mail", 0 if 15 <= second < 30 else 60)):
            acknowledged[name] = min(acknowledged[name] + capacity, delivered[name])
            delivered[name] = min(acknowledged[name] + 100, published)
            rows.append((seconds(second), name, published, acknowledged[name], delivered[name]))
    return pd.DataFrame(rows, columns=["time", "subscription", "published", "acknowledged", "delivered"])


def backlog() -> matplotlib.axes.Axes:
    return drawing.draw_backlog(progress(), "orders")


def rates() -> matplotlib.axes.Axes:
    return drawing.draw_rates(progress(), "orders", "mail")


def rounds() -> matplotlib.axes.Axes:
    """One broker serves for 30 seconds, then a second one takes over; a round a second where nothing happens."""
    rows = [
        (seconds(second + number / 10), "4f1d22aa" if second < 30 else "b07c9e51")
        for second in (*range(30), *range(34, 60))
        for number in range(8 - (second % 5 == 3) if second < 48 else 1)
    ]
    return drawing.draw_rounds(pd.DataFrame(rows, columns=["time", "broker_id"]))


def who_got_what() -> matplotlib.axes.Axes:
    """Three consumers take turns; ``carl`` leaves, and his last messages go to the others again."""
    turns = [("anna", 0, 19), ("ben", 20, 34), ("carl", 35, 54), ("anna", 55, 69), ("ben", 70, 89), ("anna", 90, 99)]
    again = [("anna", 45, 49), ("ben", 50, 54)]
    deliveries = pd.DataFrame(turns + again, columns=["consumer_name", "first", "last"])
    return drawing.draw_who_got_what(deliveries, "orders", "billing")


def hash_owners() -> matplotlib.axes.Axes:
    """``ben`` and ``carl`` join by taking half of the largest range; later ``anna`` leaves."""
    quarter = HASHES // 4
    rows = [
        ("anna", 0, 12, 0, HASHES - 1),
        ("ben", 12, 25, 0, 2 * quarter - 1),
        ("anna", 12, 40, 2 * quarter, HASHES - 1),
        ("carl", 25, 60, 0, quarter - 1),
        ("ben", 25, 40, quarter, 2 * quarter - 1),
        ("ben", 40, 60, quarter, HASHES - 1),
    ]
    owned = pd.DataFrame(rows, columns=["consumer_name", "first_round", "last_round", "start", "end"])
    return drawing.draw_hash_owners(owned, "orders", "by-key")


def due_times() -> matplotlib.axes.Axes:
    """Reminders for two days: most are due in working hours."""
    hours = [0, 0, 0, 0, 0, 1, 4, 12, 30, 34, 31, 25, 18, 26, 30, 28, 20, 11, 6, 4, 2, 1, 0, 0]
    midnight = START.normalize()
    due = [
        midnight + pd.Timedelta(days=day, hours=hour, minutes=number * 60 / count)
        for day in range(2)
        for hour, count in enumerate(hours)
        for number in range(count)
    ]
    return drawing.draw_due_times(pd.Series(due), "reminders", 48)


def message_history() -> matplotlib.axes.Axes:
    """``mail`` acknowledges at once; ``billing`` returns the message twice, and it dies."""
    rows = [
        (0.2, "delivered", "mail", "mailer"),
        (0.6, "acknowledged", "mail", "mailer"),
        (0.2, "delivered", "billing", "anna"),
        (1.0, "negatively_acknowledged", "billing", "anna"),
        (2.1, "delivered", "billing", "ben"),
        (2.9, "negatively_acknowledged", "billing", "ben"),
        (4.0, "dead_lettered", "billing", None),
    ]
    events = pd.DataFrame(rows, columns=["time", "event", "subscription", "consumer_name"])
    return drawing.draw_message_history(events.assign(time=events["time"].map(seconds)), "orders", 17)


EXAMPLES: dict[str, Callable[[], matplotlib.axes.Axes]] = {
    "backlog": backlog,
    "rates": rates,
    "rounds": rounds,
    "who_got_what": who_got_what,
    "hash_owners": hash_owners,
    "due_times": due_times,
    "message_history": message_history,
}
"""By the name of the function of ``pulsar_spark.plots`` whose output each one shows."""


def svg(example: Callable[[], matplotlib.axes.Axes]) -> str:
    """An example as text that depends on nothing but the data and matplotlib's release."""
    with matplotlib.rc_context(STYLE):
        figure = example().figure
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata={"Date": None})
        matplotlib.pyplot.close(figure)
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines()) + "\n"


def main() -> None:
    matplotlib.use("Agg")
    FOLDER.mkdir(exist_ok=True)
    for name, example in EXAMPLES.items():
        (FOLDER / f"{name}.svg").write_text(svg(example), encoding="utf-8")


if __name__ == "__main__":
    main()
