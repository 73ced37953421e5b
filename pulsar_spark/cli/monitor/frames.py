"""What ``top`` shows: lines of text for one size of a terminal."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pulsar_spark.cli.common import on_one_line
from pulsar_spark.cli.monitor.root_stats import summary
from pulsar_spark.cli.monitor.table import cut, duration, fitted, lines, number
from pulsar_spark.cli.monitor.terminal import BOLD, REVERSE
from pulsar_spark.protocol.delays.instants import from_micros
from pulsar_spark.views.overview import ConsumerState, RootState, RoundState, SubscriptionState
from pulsar_spark.views.overview.values import BLOCKED

ROUNDS, LEAST_LINES = 4, 16
"""How many rounds are shown, and from how many lines of the screen on."""
KEYS = "b backlog a age i in o out u unack r redel d dead t topic  Enter into  q quit"
KEYS_OF_ONE = "Esc back  up, down other subscriptions  q quit"


class OldMessage(NamedTuple):
    """A message of a backlog: no payload."""

    id: str
    publish_time: int
    """Milliseconds since 1970."""
    key: str | None
    size: int


class Details(NamedTuple):
    """What a look into one subscription adds: hash ranges by consumer, and the oldest messages of its backlog."""

    hash_ranges: dict[str, list[str]] = {}
    oldest: tuple[OldMessage, ...] = ()
    error: str | None = None


def heading(root: str, found: RootState, error: str | None, width: int) -> list[str]:
    """The root, what it has, and its brokers; *error* if the last look failed."""
    of_root, *brokers = summary(found)
    if len(brokers) > 1:
        missing = sum(not broker.is_serving for broker in found.brokers)
        brokers = [f"{len(brokers)} bundles, {missing} without a broker"]
    line = cut(f"{found.time:%H:%M:%S}Z {of_root}, root {on_one_line(root)}", width)
    is_well = error is None and all(broker.is_serving for broker in found.brokers)
    return [line, ("" if is_well else BOLD) + cut(on_one_line(error or brokers[0]), width)]


def table(states: Sequence[SubscriptionState], at: int, width: int, height: int) -> list[str]:
    """As many *states* as fit, with the one *at* a place in sight and marked."""
    if not states:
        return ["no subscriptions"]
    room = max(height - 1, 1)
    first = min(max(at - room // 2, 0), max(len(states) - room, 0))
    head, *rows = lines(states[first : first + room], width)
    rows = [(REVERSE if first + index == at else "") + fitted(row, width) for index, row in enumerate(rows)]
    return [BOLD + head, *rows]


def rounds(found: Iterable[RoundState], width: int) -> list[str]:
    """A heading, and a line for each round: its counts, and the milliseconds of its steps."""
    head = "    ROUND TIME       PUBL  REQ DELIV ACKED  BACK DEAD  NUM READ GATH PLAN WRIT"
    return [BOLD + head[:width], *(_round(each)[:width] for each in found)]


def _round(each: RoundState) -> str:
    counts = (each.published, each.requests, each.delivered, each.acknowledged, each.returned, each.dead)
    cells = [number(count or 0, size).rjust(size) for count, size in zip(counts, (5, 4, 5, 5, 5, 4))]
    steps = (each.number_ms, each.requests_ms, each.gather_ms, each.plan_ms, each.write_before_ms)
    times = [("" if step is None else number(round(step), 4)).rjust(4) for step in steps]
    return f"{each.round:>9} {each.time:%H:%M:%S}Z {' '.join(cells + times)}"


def details(state: SubscriptionState, more: Details, now: float, width: int, height: int) -> list[str]:
    """One subscription: why it is blocked, its consumers, the oldest messages of its backlog."""
    found = lines([state], width)
    found[0] = BOLD + found[0]
    found.append(
        f"{state.subscription_type or 'no type'}, delivered {state.delivered:,}, acknowledged {state.acknowledged:,}, "
        f"mark-delete {state.mark_delete_position:,}, end {state.end_position:,}"
    )
    if state.blocked:
        found.append(f"{state.blocked}: {BLOCKED[state.blocked]}")
    found += [on_one_line(text) for text in (state.error, more.error) if text]
    messages = _messages(more.oldest, now)
    room = max(height - len(found) - len(messages) - 2, 2)
    found += ["", *_consumers(state.consumers, more.hash_ranges, room), ""[: len(messages)], *messages]
    return [line if line.startswith("\x1b") else cut(line, width) for line in found]


def _consumers(consumers: Sequence[ConsumerState], hash_ranges: dict[str, list[str]], most: int) -> list[str]:
    if not consumers:
        return []
    found = [f"{BOLD}PERMITS UNACK OLDEST OUT/S REDEL       CONSUMER"]
    for each in consumers[:most]:
        state = "blocked" if each.is_blocked else {True: "active", False: "standby", None: ""}[each.is_active]
        oldest = "" if each.oldest_unacked_seconds is None else duration(each.oldest_unacked_seconds)
        cells = f"{number(each.permits, 7):>7} {number(each.unacked, 5):>5} {oldest:>6} {number(each.rate_out, 5):>5}"
        hashes = " ".join(owned.replace(", ", "-") for owned in hash_ranges.get(each.consumer_name, []))
        name = f"{on_one_line(each.consumer_name)} {hashes}".rstrip()
        found.append(f"{cells} {number(each.redelivered, 5):>5} {state:7} {name}")
    if len(consumers) > most:
        found[-1] = f"and {len(consumers) - most + 1} more"
    return found


def _messages(oldest: Iterable[OldMessage], now: float) -> list[str]:
    found = [f"{BOLD}{'OLDEST':20} {'PUBLISHED':20} {'AGE':>4} {'BYTES':>6} KEY"]
    for each in oldest:
        published, age = from_micros(each.publish_time * 1000), duration(max(now - each.publish_time / 1000, 0))
        cells = f"{fitted(each.id, 20)} {published:%Y-%m-%dT%H:%M:%S}Z {age:>4} {number(each.size, 6):>6}"
        found.append(f"{cells} {on_one_line(each.key or '')}".rstrip())
    return found if len(found) > 1 else []
