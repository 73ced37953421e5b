"""``pulsar-spark top``: the table of ``stats``, live, with keys."""

import sys
from collections import deque
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.cells import set_cell_size

from pulsar_spark.admin import Admin
from pulsar_spark.cli.common import Json, Root, service_url
from pulsar_spark.cli.monitor.frames import (
    KEYS,
    KEYS_OF_ONE,
    LEAST_LINES,
    ROUNDS,
    Details,
    OldMessage,
    details,
    heading,
    rounds,
    table,
)
from pulsar_spark.cli.monitor.root_stats import look, overview_of, print_root
from pulsar_spark.cli.monitor.terminal import REVERSE, Terminal
from pulsar_spark.cli.signals import clean_up_on_sigterm
from pulsar_spark.link.requester import require_root
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.storage.delta.scan import LOOK_FAILED
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import is_root
from pulsar_spark.views.overview import Overview, RootState, RoundState, SubscriptionState
from pulsar_spark.views.overview.values import severity

KEY_SECONDS, OLDEST = 0.2, 5
"""How often the size of the terminal is looked at, and how many of the oldest messages are shown."""
Name = tuple[str, str]
"""A topic and one of its subscriptions."""
ORDERS: dict[str, Callable[[SubscriptionState], Any]] = {
    "b": severity,
    "a": lambda state: -(state.backlog_age_seconds or -1.0),
    "i": lambda state: -state.rate_in,
    "o": lambda state: -state.rate_out,
    "u": lambda state: -state.unacked,
    "r": lambda state: -state.redelivered,
    "d": lambda state: -state.dead,
    "t": lambda state: (state.topic, state.subscription),
}
"""By key: what the lines are sorted by."""


class Top:
    """What is shown of a root, and what keys do; :meth:`look` before all else."""

    def __init__(self, root: str, overview: Overview):
        self._root, self._layout, self._overview = root, Layout(root), overview
        self._admin = Admin(service_url(root))
        self._found: RootState | None = None
        self._error: str | None = None
        self._rounds: deque[RoundState] = deque(maxlen=ROUNDS)
        self._order, self._is_inside = "b", False
        self._chosen: Name | None = None
        self._details: tuple[tuple, Details] | None = None
        self.is_done = False

    def look(self) -> None:
        """Look at the root; :class:`NotARoot` if it is gone. Another fault is shown until a look succeeds."""
        if not is_root(self._layout):
            require_root(self._layout)
        try:
            self._found, self._error = look(self._overview), None
            self._rounds.extend(self._found.rounds)
        except LOOK_FAILED as error:
            if self._found is None:
                raise
            self._error = f"{type(error).__name__}: {error}"

    def _states(self) -> list[SubscriptionState]:
        assert self._found is not None, "looked at"
        return sorted(self._found.totals, key=ORDERS[self._order])

    def _place(self, states: list[SubscriptionState]) -> int:
        """Where the chosen subscription is; the first, if it is gone."""
        names = [(state.topic, state.subscription) for state in states]
        return names.index(self._chosen) if self._chosen in names else 0

    def press(self, key: str, page: int) -> None:
        """React to a key; a *page* has so many lines."""
        states = self._states()
        if key == "q":
            self.is_done = True
        elif key in ORDERS:
            self._order, self._chosen = key, self._chosen if self._is_inside else None
        elif key == "escape":
            self._is_inside = False
        elif key == "enter":
            self._is_inside = bool(states)
        moves = {"up": -1, "down": 1, "page up": -page, "page down": page, "home": -len(states), "end": len(states)}
        if states and (key in moves or key == "enter"):
            at = min(max(self._place(states) + moves.get(key, 0), 0), len(states) - 1)
            self._chosen = states[at].topic, states[at].subscription

    def frame(self, width: int, height: int) -> list[str]:
        """The lines of the screen."""
        assert self._found is not None, "looked at"
        states, has_rounds = self._states(), height >= LEAST_LINES
        top = heading(self._root, self._found, self._error, width)
        bottom = rounds(self._rounds, width) if has_rounds and self._rounds else []
        room = height - len(top) - 1 - (ROUNDS + 1 if has_rounds else 0)
        at = self._place(states)
        is_inside = self._is_inside and bool(states)
        if is_inside:
            now = self._found.time.timestamp()
            middle = details(states[at], self._details_of(states[at]), now, width, room)
        else:
            middle = table(states, at, width, room)
        middle = middle[:room] + [""] * (room - len(middle)) if has_rounds else middle[:room]
        keys = KEYS_OF_ONE if is_inside else KEYS
        found = [*top, *middle, *bottom][: height - 1]
        return [*found, *[""] * (height - 1 - len(found)), REVERSE + set_cell_size(keys, width)]

    def _details_of(self, state: SubscriptionState) -> Details:
        """Read from the topic itself, again only if something happened to the subscription."""
        counts = state.delivered, state.acknowledged, state.end_position, state.mark_delete_position
        happened = state.topic, state.subscription, counts, tuple(each.consumer_id for each in state.consumers)
        if self._details is None or self._details[0] != happened:
            self._details = happened, self._read(state)
        return self._details[1]

    def _read(self, state: SubscriptionState) -> Details:
        try:
            ranges: dict[str, list[str]] = {}
            if state.subscription_type == "KeyShared":
                found = self._admin.stats(state.topic)["subscriptions"].get(state.subscription, {"consumers": []})
                ranges = {each["consumerName"]: each.get("keyHashRanges", []) for each in found["consumers"]}
            return Details(ranges, self._oldest(state))
        except LOOK_FAILED as error:
            return Details(error=f"{type(error).__name__}: {error}")

    def _oldest(self, state: SubscriptionState) -> tuple[OldMessage, ...]:
        """The oldest messages, of the partition with the oldest backlog."""
        assert self._found is not None, "looked at"
        parts = [
            part
            for part in self._found.subscriptions
            if (part.topic, part.subscription) == (state.topic, state.subscription) and part.backlog
        ]
        if not parts:
            return ()
        part = max(parts, key=lambda part: part.backlog_age_seconds or 0.0)
        topic = str(parse_topic_name(part.topic).partition(-1 if part.partition is None else part.partition))
        return tuple(
            OldMessage(str(each.message_id()), each.publish_timestamp(), each.partition_key() or None, each.length())
            for each in self._admin.peek_messages(topic, state.subscription, OLDEST)
        )


def run(top: Top, terminal: Terminal, seconds: float, clock: Callable[[], float]) -> None:
    """Show *top* until it is done or the terminal is gone; look each so many *seconds* of the *clock*."""
    top.look()
    looked, size = clock(), terminal.size()
    terminal.show(top.frame(*size), anew=True)
    while not top.is_done:
        try:
            key = terminal.key(min(KEY_SECONDS, seconds))
        except EOFError:
            return
        if key is not None:
            top.press(key, page=max(size[1] - 5, 1))
        is_due, before, size = clock() - looked >= seconds, size, terminal.size()
        if is_due:
            top.look()
            looked = clock()
        if key is not None or is_due or size != before:
            terminal.show(top.frame(*size), anew=size != before)


def top(
    root: Root,
    interval: Annotated[float, typer.Option("--interval", "-i", min=0.1, help="Seconds between two looks.")] = 1.0,
    as_json: Json = False,
):
    """Show all subscriptions of the root, live, the worst backlog first. Keys sort the lines, and look into one
    subscription: its consumers, permits and hash ranges, and the oldest messages of its backlog. Without a terminal, or
    with --json, print them once, as 'pulsar-spark stats' does."""
    if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return print_root(root, as_json)
    import time

    clean_up_on_sigterm()
    shown = Top(root, overview_of(root))
    with Terminal(sys.stdin.fileno(), sys.stdout.fileno()) as terminal:
        run(shown, terminal, interval, time.monotonic)
