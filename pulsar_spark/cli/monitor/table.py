"""The table of a root's subscriptions, a line each, that fits a terminal: for ``stats`` and ``top``."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from rich.cells import cell_len, set_cell_size

from pulsar_spark.cli.common import on_one_line
from pulsar_spark.protocol.topics.topic_name import DEFAULT_NAMESPACE, SCHEME
from pulsar_spark.views.overview import SubscriptionState

_DEFAULT, _SCHEME = f"{SCHEME}://{'/'.join(DEFAULT_NAMESPACE)}/", f"{SCHEME}://"


class Column(NamedTuple):
    """A heading, at most as wide as the column's texts, and the text of a subscription."""

    heading: str
    text: Callable[[SubscriptionState], str]


COLUMNS = (
    Column("BACKLOG", lambda state: number(state.backlog, 7)),
    Column("AGE", lambda state: "" if state.backlog_age_seconds is None else duration(state.backlog_age_seconds)),
    Column("IN/S", lambda state: number(state.rate_in, 4)),
    Column("OUT/S", lambda state: number(state.rate_out, 5)),
    Column("UNACK", lambda state: number(state.unacked, 5)),
    Column("REDEL", lambda state: number(state.redelivered, 5)),
    Column("DEAD", lambda state: number(state.dead, 4)),
    Column("DELAY", lambda state: number(state.delayed, 5)),
    Column("CONS", lambda state: number(len(state.consumers), 4)),
)
"""Right-aligned; the reason of a block and the names follow."""


def short_topic(topic: str) -> str:
    """The name as people give it to commands.

    >>> short_topic("persistent://public/default/orders"), short_topic("persistent://acme/shop/orders")
    ('orders', 'acme/shop/orders')
    """
    return topic.removeprefix(_DEFAULT).removeprefix(_SCHEME)


def number(value: float, width: int) -> str:
    """*value* in at most *width* characters, at least four; exact if it fits.

    >>> [number(value, 5) for value in (0, 0.25, 0.004, 12.34, 99999, 123456, 9_990_000, 12_345_678_901)]
    ['0', '0.2', '<0.1', '12.3', '99999', '123k', '9990k', '12G']
    >>> [number(value, 4) for value in (12.34, 9999.6, 99_999, 999_999, 1_500_000)]
    ['12.3', '10k', '100k', '1.0M', '1.5M']
    """
    if value % 1 and value < 99.95:
        return "<0.1" if value < 0.05 else f"{value:.1f}"
    text = f"{value:.0f}"
    for unit in "kMGTP":
        if len(text) <= width:
            break
        value /= 1000
        text = f"{value:.1f}{unit}" if value < 9.95 else f"{value:.0f}{unit}"
    return text


def duration(seconds: float) -> str:
    """*seconds* in at most four characters, rounded down.

    >>> [duration(each) for each in (0.4, 59.9, 119, 7_199, 86_400 * 3, 86_400 * 800)]
    ['0s', '59s', '1m', '119m', '3d', '800d']
    """
    for size, least, unit in ((86_400, 2 * 86_400, "d"), (3_600, 2 * 3_600, "h"), (60, 60, "m")):
        if seconds >= least:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def fitted(text: str, width: int) -> str:
    """*text* in exactly *width* cells of a terminal: padded, or with its middle left out.

    >>> fitted("orders", 8), fitted("orders-of-europe", 8)
    ('orders  ', 'orde…ope')
    """
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    tail = max(width - 1, 0) // 2
    return set_cell_size(set_cell_size(text, width - 1 - tail) + "…" + set_cell_size(text[::-1], tail)[::-1], width)


def cut(text: str, width: int) -> str:
    """*text* in at most *width* cells: its end is left out.

    >>> cut("orders", 8), cut("orders of europe", 8)
    ('orders', 'orders …')
    """
    return text if cell_len(text) <= width else set_cell_size(text, max(width - 1, 0)) + "…"


def lines(states: Iterable[SubscriptionState], width: int | None = None) -> list[str]:
    """A heading, and a line for each of *states*; names are shortened to the *width* of a terminal."""
    found = [*states]
    cells = [[column.text(state) for column in COLUMNS] for state in found]
    blocked = [state.blocked or "" for state in found]
    names = [(on_one_line(short_topic(state.topic)), on_one_line(state.subscription)) for state in found]
    widths = [max(map(len, column)) for column in zip([column.heading for column in COLUMNS], *cells)]
    widest = max(map(len, ["BLOCKED", *blocked]))
    topic, subscription = _shares(
        max(map(cell_len, ["TOPIC", *(each for each, _ in names)])),
        max((cell_len(each) for _, each in names), default=0),
        None if width is None else width - sum(widths) - len(widths) - widest - 2,
    )

    def line(cells: Sequence[Any], blocked: str, names: tuple[str, str]) -> str:
        numbers = " ".join(cell.rjust(size) for cell, size in zip(cells, widths))
        of_names = f"{fitted(names[0], topic)} {fitted(names[1], subscription)}"
        return f"{numbers} {blocked.ljust(widest)} {of_names}".rstrip()

    of_topic = line([column.heading for column in COLUMNS], "BLOCKED", ("TOPIC", ""))
    heading = f"{of_topic.ljust(sum(widths) + len(widths) + widest + 1 + topic)} SUBSCRIPTION"
    return [heading if width is None else heading[:width], *map(line, cells, blocked, names)]


def _shares(topic: int, subscription: int, room: int | None) -> tuple[int, int]:
    """The widths of two columns of names that need so many cells, in *room* for both."""
    if room is None or topic + subscription <= room:
        return topic, subscription
    room = max(room, 8)
    fair = room // 2
    if topic <= fair:
        return topic, room - topic
    return (room - subscription, subscription) if subscription <= fair else (room - fair, fair)
