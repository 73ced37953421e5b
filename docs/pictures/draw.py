"""Draws the pictures of the documentation: ``python docs/pictures/draw.py`` writes one SVG file for each function.

Every picture stands on a white card, so it reads the same on a light and on a dark page. The colours are those of Okabe
and Ito, which people with any kind of colour vision tell apart; nothing is said by colour alone.
"""

from __future__ import annotations

import math
import sys
import textwrap
from collections.abc import Callable
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from pulsar_spark.protocol.acknowledgement.entry_states import STATES, events_between  # noqa: E402

FOLDER = Path(__file__).parent
BLUE, ORANGE, GREEN, RED, SKY, PURPLE, YELLOW = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#56B4E9",
    "#CC79A7",
    "#F0E442",
)
INK, GREY, PALE, WHITE = "#1f2933", "#7b8794", "#eef2f6", "#ffffff"
COLOUR = {"A": BLUE, "B": ORANGE, "C": GREEN}
"""Of each consumer."""


class Picture:
    """An SVG of *width* x *height* that shapes are added to; *title* says what it shows, for people who do not see it."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self.shapes: list[str] = []

    def box(
        self, x: float, y: float, width: float, height: float, fill: str = PALE, line: str = INK, dash: str = ""
    ) -> None:
        """A rectangle with round corners."""
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" fill="{fill}" stroke="{line}"{dashes}/>'
        )

    def text(
        self, x: float, y: float, said: str, size: int = 14, fill: str = INK, anchor: str = "middle", bold: bool = False
    ) -> None:
        """Lines of text, the first with its base at *y*."""
        weight = ' font-weight="bold"' if bold else ""
        for number, line in enumerate(said.split("\n")):
            self.shapes.append(
                f'<text x="{x:g}" y="{y + number * size * 1.3:g}" font-size="{size}" fill="{fill}" text-anchor="{anchor}"{weight}>{escape(line)}</text>'
            )

    def labelled(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        said: str,
        fill: str = PALE,
        size: int = 14,
        ink: str = INK,
        line: str = INK,
        bold: bool = False,
    ) -> None:
        """A box with lines of text in its middle."""
        self.box(x, y, width, height, fill, line)
        lines = said.count("\n") + 1
        top = y + height / 2 - (lines - 1) * size * 0.65 + size * 0.35
        self.text(x + width / 2, top, said, size, ink, bold=bold)

    def arrow(
        self,
        *points: tuple[float, float],
        colour: str = INK,
        dash: str = "",
        said: str = "",
        at: tuple[float, float] | None = None,
    ) -> None:
        """A line through the *points* with a head at its end, and what is said beside it."""
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        path = " L ".join(f"{x:g} {y:g}" for x, y in points)
        self.shapes.append(f'<path d="M {path}" fill="none" stroke="{colour}" stroke-width="1.6"{dashes}/>')
        (x0, y0), (x1, y1) = points[-2:]
        turn = math.atan2(y1 - y0, x1 - x0)
        wings = [(x1 - 9 * math.cos(turn + each), y1 - 9 * math.sin(turn + each)) for each in (0.4, -0.4)]
        corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in [(x1, y1), *wings])
        self.shapes.append(f'<polygon points="{corners}" fill="{colour}"/>')
        if said:
            x, y = at or ((x0 + x1) / 2, (y0 + y1) / 2 - 7)
            self.text(x, y, said, 12, GREY)

    def line(
        self, x0: float, y0: float, x1: float, y1: float, colour: str = INK, dash: str = "", width: float = 1.4
    ) -> None:
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.shapes.append(
            f'<line x1="{x0:g}" y1="{y0:g}" x2="{x1:g}" y2="{y1:g}" stroke="{colour}" stroke-width="{width}"{dashes}/>'
        )

    def cells(
        self,
        x: float,
        y: float,
        values: list,
        fills: list[str],
        width: float = 34,
        height: float = 30,
        inks: list[str] | None = None,
        size: int = 13,
    ) -> None:
        """A row of cells without gaps."""
        for number, (value, fill) in enumerate(zip(values, fills)):
            left = x + number * width
            self.shapes.append(
                f'<rect x="{left:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}" stroke="{INK}"/>'
            )
            ink = inks[number] if inks else (INK if fill in (WHITE, PALE, YELLOW, SKY, ORANGE) else WHITE)
            self.text(left + width / 2, y + height / 2 + size * 0.35, str(value), size, ink)

    def svg(self) -> str:
        body = "\n".join(self.shapes)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" role="img" '
            f'font-family="DejaVu Sans, Verdana, Arial, sans-serif">\n<title>{escape(self.title)}</title>\n'
            f'<rect width="{self.width}" height="{self.height}" rx="10" fill="{WHITE}"/>\n{body}\n</svg>\n'
        )


def overview() -> Picture:
    picture = Picture(
        860, 300, "Producers append to topic tables; the broker's rounds commit; consumers follow the commits"
    )
    picture.labelled(20, 40, 150, 60, "Producers\nframes, clients")
    picture.labelled(20, 190, 150, 60, "Consumers\nframes, clients")
    picture.labelled(250, 40, 150, 60, "Topic tables\none row a message", SKY)
    picture.labelled(250, 190, 150, 60, "requests\na Delta table", SKY)
    picture.labelled(470, 95, 150, 100, "Broker\na streaming query;\nits micro-batches\nrun rounds", BLUE, ink=WHITE)
    picture.labelled(705, 115, 140, 60, "cursor_ledger\na Delta table", SKY)
    picture.arrow((170, 70), (250, 70), said="append")
    picture.arrow((170, 220), (250, 220), said="ask")
    picture.text(210, 240, "permits,\nacks, seeks", 12, GREY)
    picture.arrow((400, 70), (440, 70), (440, 120), (470, 120), said="new messages", at=(450, 60))
    picture.arrow((400, 220), (440, 220), (440, 170), (470, 170), said="new requests", at=(450, 238))
    picture.arrow((620, 145), (705, 145), said="one commit", at=(662, 136))
    picture.arrow(
        (775, 175),
        (775, 275),
        (95, 275),
        (95, 250),
        said="deliveries, replies: consumers follow the commits",
        at=(430, 268),
    )
    picture.arrow((775, 115), (775, 50), (545, 50), (545, 95), said="the state of every cursor", at=(660, 42))
    return picture


def topics() -> Picture:
    picture = Picture(
        860, 300, "Three publish commits of a topic with two partitions: positions are dense in each partition"
    )
    picture.text(20, 34, "topic orders: one Delta table, two partitions", 15, anchor="start", bold=True)
    for row, (name, sizes) in enumerate([("partition 0", (3, 2, 4)), ("partition 1", (2, 4, 2))]):
        y = 90 + row * 95
        picture.text(20, y + 20, name, 13, anchor="start")
        x, position = 120.0, 0
        for ledger, size in enumerate(sizes):
            fill = (SKY, YELLOW, PALE)[ledger]
            picture.cells(x, y, list(range(position, position + size)), [fill] * size, width=50)
            picture.text(x + size * 25, y + 48, f"{ledger + 1}:0 … {ledger + 1}:{size - 1}", 12, GREY)
            x, position = x + size * 50 + 16, position + size
    picture.text(120, 78, "positions, as rounds count them: 0, 1, 2 … in each partition", 12, GREY, "start")
    picture.text(20, 158, "ledger:entry", 12, GREY, "start")
    picture.text(20, 252, "ledger:entry", 12, GREY, "start")
    for ledger, (x, fill) in enumerate([(120, SKY), (330, YELLOW), (560, PALE)]):
        picture.box(x, 268, 14, 14, fill)
        picture.text(x + 20, 280, f"publish commit {ledger + 1} (ledger {ledger + 1})", 12, anchor="start")
    return picture


def a_round() -> Picture:
    picture = Picture(860, 330, "The six steps of a round, and its one commit")
    steps = [
        ("1  number", "entries of new commits\nget positions"),
        ("2  take requests", "subscribe, flow, ack, nack,\nseek; refuse by name"),
        ("3  acknowledge", "mark-delete advances\nover what is contiguous"),
        ("4  give back", "nacks, timeouts, consumers\nthat left; or dead"),
        ("5  deal out", "returned and due first,\nthen new, within permits"),
        ("6  commit", "all of it at once,\nor nothing"),
    ]
    for number, (name, what) in enumerate(steps):
        x, y = 30 + number % 3 * 280, 50 + number // 3 * 130
        fill, ink = (BLUE, WHITE) if number == 5 else (PALE, INK)
        picture.box(x, y, 240, 84, fill)
        picture.text(x + 120, y + 26, name, 15, ink, bold=True)
        picture.text(x + 120, y + 50, what, 12, ink)
        if number % 3 < 2:
            picture.arrow((x + 240, y + 42), (x + 280, y + 42))
    picture.arrow((710, 134), (710, 157), (150, 157), (150, 180))
    picture.text(30, 34, "in: topic tables, requests, the clock", 13, GREY, "start")
    picture.arrow((710, 264), (710, 300), (560, 300), said="cursor_ledger, then letters", at=(460, 305))
    return picture


def subscription_types() -> Picture:
    picture = Picture(
        860, 470, "The same ten messages of three keys on each subscription type, and after consumer A leaves"
    )
    keys = "xyxzyxzzyx"
    picture.text(20, 32, "The same ten messages, consumers A and B", 15, anchor="start", bold=True)
    picture.text(480, 32, "A leaves and has acknowledged 0 and 1", 15, anchor="start", bold=True)
    picture.text(20, 68, "key", 13, GREY, "start")
    for side in (120, 500):
        picture.cells(side, 48, list(keys), [WHITE] * 10, size=12)
    owner = {"x": "A", "y": "B", "z": "A"}
    rows = [
        (
            "Exclusive",
            "A" * 10,
            "--" + "B" * 8,
            "B is refused while A is connected",
            "B may connect now, and gets the rest",
        ),
        ("Failover", "A" * 10, "--" + "B" * 8, "B is connected and waits", "B takes over after a second, in order"),
        ("Shared", "AAAABBBBAA", "--BBBBBBBB", "runs of messages by turns", "A's others go to B first"),
        (
            "Key_Shared",
            "".join(owner[key] for key in keys),
            "-BBBBBBBBB",
            "each key stays with one consumer",
            "B owns x and z now, each in order",
        ),
    ]
    for number, (name, before, after, said, then) in enumerate(rows):
        y = 110 + number * 90
        if name == "Key_Shared":
            after = "--" + "B" * 8
        picture.text(20, y + 20, name, 14, anchor="start", bold=True)
        for side, given, words in ((120, before, said), (500, after, then)):
            fills = [PALE if each == "-" else COLOUR[each] for each in given]
            picture.cells(side, y, ["✓" if each == "-" else each for each in given], fills)
            picture.text(side, y + 48, words, 12, GREY, "start")
    return picture


def acknowledgement() -> Picture:
    picture = Picture(860, 330, "A cursor: acknowledged entries, holes, mark-delete and read position")
    states = "aaaaapaappbuuu"
    fills = {"a": GREEN, "p": ORANGE, "b": YELLOW, "u": WHITE}
    picture.text(20, 32, "One subscription's cursor", 15, anchor="start", bold=True)
    picture.cells(60, 80, list(range(14)), [fills[each] for each in states], width=54, height=36)
    picture.arrow((303, 160), (303, 120))
    picture.text(303, 178, "mark-delete 4", 13, bold=True)
    picture.text(303, 196, "everything up to here\nis acknowledged", 12, GREY)
    picture.arrow((681, 160), (681, 120))
    picture.text(681, 178, "read position 11", 13, bold=True)
    picture.text(681, 196, "the next new entry", 12, GREY)
    picture.text(438, 66, "6 and 7 are acknowledged above a hole", 12, GREY)
    legend = [
        (GREEN, "acknowledged"),
        (ORANGE, "delivered, not acknowledged"),
        (YELLOW, "batch, acknowledged in part"),
        (WHITE, "not delivered yet"),
    ]
    x = 30
    for fill, said in legend:
        picture.box(x, 242, 16, 16, fill)
        picture.text(x + 23, 255, said, 12, anchor="start")
        x += 40 + len(said) * 7.4
    picture.text(
        30,
        292,
        "An acknowledgement of 5 moves mark-delete to 7 at once. A cumulative acknowledgement of 9 moves it to 9.",
        13,
        anchor="start",
    )
    picture.text(
        30, 314, "Backlog: 7 entries (5, 8, 9, 10, 11, 12, 13). The batch at 10 counts as one.", 13, anchor="start"
    )
    return picture


def redelivery() -> Picture:
    picture = Picture(860, 360, "The life of one message: waiting, delivered, returned, retried, dead")
    picture.labelled(30, 60, 130, 56, "backlog")
    picture.labelled(290, 60, 150, 56, "delivered\ncount 0, 1, 2 …", ORANGE)
    picture.labelled(660, 60, 160, 56, "acknowledged", GREEN, ink=WHITE)
    picture.labelled(290, 200, 150, 56, "returned,\nwaits for its time", YELLOW)
    picture.labelled(520, 200, 130, 56, "retry topic\n…-RETRY", SKY)
    picture.labelled(690, 200, 140, 56, "dead letter topic\n…-DLQ", RED, ink=WHITE)
    picture.arrow((160, 88), (290, 88), said="a permit")
    picture.arrow((440, 88), (660, 88), said="acknowledge", at=(550, 80))
    picture.arrow((340, 116), (340, 200), said="negative ack,\ntimeout,\nconsumer left", at=(280, 146))
    picture.arrow((395, 200), (395, 116), said="again", at=(420, 164))
    picture.arrow((440, 110), (560, 200), said="reconsume_later", at=(556, 140))
    picture.arrow(
        (440, 228),
        (480, 228),
        (480, 290),
        (760, 290),
        (760, 256),
        said="returned once more\nthan the policy allows",
        at=(690, 308),
    )
    picture.arrow((650, 228), (690, 228))
    picture.text(670, 186, "too many times", 12, GREY)
    picture.arrow(
        (585, 256),
        (585, 335),
        (95, 335),
        (95, 116),
        said="comes again after its delay, with the same key",
        at=(340, 328),
    )
    return picture


def key_shared() -> Picture:
    picture = Picture(
        860, 380, "A key's hash belongs to one consumer: a ring of points, ranges, and a hash that drains"
    )
    picture.text(20, 32, "Consistent hashing: points on a ring", 15, anchor="start", bold=True)
    cx, cy, r = 175, 205, 110
    points = [("A", 10), ("B", 48), ("C", 95), ("A", 140), ("C", 175), ("B", 220), ("A", 262), ("B", 300), ("C", 335)]
    for number, (name, angle) in enumerate(points):
        start = math.radians(points[number - 1][1] - 90)
        end = math.radians(angle - 90)
        picture.shapes.append(
            f'<path d="M {cx + r * math.cos(start):.1f} {cy + r * math.sin(start):.1f} A {r} {r} 0 0 1 {cx + r * math.cos(end):.1f} {cy + r * math.sin(end):.1f}" fill="none" stroke="{COLOUR[name]}" stroke-width="16"/>'
        )
    for name, angle in points:
        at = math.radians(angle - 90)
        x, y = cx + r * math.cos(at), cy + r * math.sin(at)
        picture.shapes.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="10" fill="{WHITE}" stroke="{COLOUR[name]}" stroke-width="3"/>'
        )
        picture.text(x, y + 4, name, 11, bold=True)
    picture.text(cx, cy - 6, "hash of a key:\nthe next point\nclockwise owns it", 12, GREY)
    picture.text(370, 32, "Auto split: a newcomer takes half of the largest range", 15, anchor="start", bold=True)
    for row, parts in enumerate([[("A", 480)], [("B", 240), ("A", 240)], [("C", 120), ("B", 120), ("A", 240)]]):
        x = 370.0
        for name, width in parts:
            picture.labelled(x, 50 + row * 38, width, 28, name, COLOUR[name], ink=WHITE if name != "B" else INK)
            x += width
    picture.text(370, 182, "0", 12, GREY)
    picture.text(850, 182, "65,536", 12, GREY, "end")
    picture.text(370, 222, "Draining: C joins and owns the hash of key x", 15, anchor="start", bold=True)
    picture.cells(370, 240, ["x", "y", "x", "x", "z", "x"], [BLUE, ORANGE, BLUE, PALE, GREEN, PALE], width=46)
    picture.text(
        370,
        292,
        "A still has two messages of x. The next two wait, and C\ngets them when A has acknowledged or returned its own.\nKey z does not drain: C gets it at once.",
        12,
        GREY,
        "start",
    )
    picture.text(
        20, 364, "Messages of one key go to one consumer, in order, whatever joins and leaves.", 13, anchor="start"
    )
    return picture


def delayed() -> Picture:
    picture = Picture(860, 300, "Buckets of the delay index by deliver time; what has come due is promoted")
    picture.text(
        20, 32, "The delay index: one for all subscriptions, sorted by deliver time", 15, anchor="start", bold=True
    )
    picture.line(40, 200, 830, 200)
    picture.text(830, 222, "deliver time", 12, GREY, "end")
    for number, (x, width, count) in enumerate(
        [(40, 150, "120"), (200, 170, "9,000"), (380, 210, "2 million"), (600, 230, "800 million")]
    ):
        fill = GREEN if number == 0 else SKY
        picture.labelled(x, 130, width, 50, f"bucket\n{count} messages", fill, 13, WHITE if number == 0 else INK)
    picture.line(196, 70, 196, 210, RED, "5 4", 2)
    picture.text(196, 62, "now", 13, RED, bold=True)
    picture.arrow(
        (115, 130),
        (115, 92),
        (300, 92),
        said="promoted: goes out before new messages, in order of deliver time",
        at=(520, 96),
    )
    picture.text(
        40,
        250,
        "Waiting messages cost a few bytes of disk each and almost no memory. A round reads only the buckets up to now.",
        13,
        anchor="start",
    )
    picture.text(
        40, 274, "They count as backlog, hold back mark-delete and trimming, and use no permits.", 13, anchor="start"
    )
    return picture


def chunks() -> Picture:
    picture = Picture(860, 280, "A large message goes in chunks with one uuid, and arrives as one message")
    picture.labelled(30, 60, 240, 46, "one message of 12 MB", BLUE, ink=WHITE)
    picture.arrow((270, 83), (330, 83), said="split")
    picture.cells(340, 60, ["0/3", "1/3", "2/3"], [BLUE, BLUE, BLUE], width=70, height=46)
    picture.text(560, 80, "uuid p-7: producer and sequence id", 12, GREY, "start")
    picture.text(30, 150, "in the topic", 13, anchor="start")
    picture.cells(
        140, 130, ["m", "0/3", "q", "1/3", "m", "2/3", "m"], [WHITE, BLUE, ORANGE, BLUE, WHITE, BLUE, WHITE], width=60
    )
    picture.arrow((475, 165), (475, 205), said="groupBy uuid", at=(530, 190))
    picture.labelled(375, 208, 200, 40, "one message, one permit", BLUE, ink=WHITE)
    picture.text(590, 232, "in the place of its last chunk", 12, GREY, "start")
    picture.text(140, 190, "other messages lie between", 12, GREY, "start")
    return picture


def crashes() -> Picture:
    picture = Picture(860, 300, "The writes of a round in order, and what a crash between them leaves")
    steps = [
        ("ledgers", "numbers of new\nentries"),
        ("cursor_ledger", "the round:\none commit"),
        ("letters", "retry and dead\nletter topics"),
    ]
    for number, (name, what) in enumerate(steps):
        x = 90 + number * 270
        fill, ink = (BLUE, WHITE) if number == 1 else (SKY, INK)
        picture.box(x, 60, 170, 84, fill)
        picture.text(x + 85, 86, name, 15, ink, bold=True)
        picture.text(x + 85, 110, what, 12, ink)
        if number < 2:
            picture.arrow((x + 170, 102), (x + 270, 102))
    for x, said in [
        (45, "nothing has\nhappened"),
        (310, "numbers without a round:\nthe next start takes\nthem over"),
        (580, "the round stands; the next\nstart writes its letters,\neach once"),
        (815, "nothing\nis left\nto do"),
    ]:
        picture.line(x, 40, x, 170, RED, "5 4", 1.6)
        picture.text(x, 34, "crash", 12, RED)
        picture.text(x, 192, said, 12)
    picture.text(
        30,
        270,
        "Before the commit of cursor_ledger nothing has happened, after it everything has. A second broker finds the version taken, and stops.",
        12,
        anchor="start",
    )
    return picture


def the_map() -> Picture:
    picture = Picture(860, 330, "Packages in layers: imports point down only")
    rows: list[list[tuple[str, float]]] = [
        [("cli", 1), ("demo", 1), ("admin", 1)],
        [("frames", 1), ("asyncio", 1), ("client", 1), ("views", 1)],
        [("broker", 1), ("link", 1), ("schema", 1)],
        [("transforms", 1), ("storage", 2)],
        [("protocol: pure rules", 1.4), ("table_specs, columns", 1.1), ("payloads", 1)],
    ]
    fills = [PALE, SKY, BLUE, SKY, GREEN]
    notes = [
        "commands",
        "what users call",
        "rounds, and the line to them",
        "frames in, frames out; Delta and bytes",
        "no Spark, no files, no clock",
    ]
    for number, row in enumerate(rows):
        y, x, parts = 20 + number * 60, 20.0, sum(width for _, width in row)
        for name, width in row:
            wide = 590 * width / parts
            fill = fills[number]
            picture.labelled(x, y, wide - 8, 44, name, fill, 13, WHITE if fill in (BLUE, GREEN) else INK)
            x += wide
        picture.text(620, y + 27, notes[number], 12, GREY, "start")
    return picture


STATE_BOXES = {
    "unread": (40, 190),
    "pending": (350, 40),
    "replay": (350, 340),
    "dead": (660, 40),
    "acknowledged": (660, 190),
}
"""Where the box of each state begins; all are 160 wide and 60 high."""
STATE_ARROWS: dict[tuple[str, str], tuple[list[tuple[float, float]], tuple[float, float]]] = {
    ("unread", "pending"): ([(90, 190), (350, 60)], (160, 118)),
    ("pending", "unread"): ([(350, 85), (150, 190)], (290, 152)),
    ("unread", "replay"): ([(90, 250), (350, 380)], (140, 335)),
    ("replay", "unread"): ([(350, 355), (150, 250)], (235, 280)),
    ("pending", "replay"): ([(400, 100), (400, 340)], (340, 268)),
    ("replay", "pending"): ([(460, 340), (460, 100)], (512, 150)),
    ("unread", "acknowledged"): ([(200, 212), (660, 212)], (285, 190)),
    ("acknowledged", "unread"): ([(660, 236), (200, 236)], (560, 253)),
    ("pending", "acknowledged"): ([(510, 85), (680, 190)], (668, 122)),
    ("replay", "acknowledged"): ([(510, 360), (720, 250)], (645, 345)),
    ("pending", "dead"): ([(510, 62), (660, 62)], (585, 54)),
    ("dead", "acknowledged"): ([(760, 100), (760, 190)], (808, 150)),
}
"""For each two states: the points of the arrow between them, and where its events stand."""


def states() -> Picture:
    """Every two states that an event leads between, as ``protocol.acknowledgement.entry_states`` has them."""
    picture = Picture(860, 420, "The states of an entry, and the events that lead from one to another")
    fills = {"unread": WHITE, "pending": ORANGE, "replay": YELLOW, "dead": RED, "acknowledged": GREEN}
    for state in STATES:
        x, y = STATE_BOXES[state]
        picture.labelled(x, y, 160, 60, state, fills[state], 15, WHITE if state in ("dead", "acknowledged") else INK)
    for state in STATES:
        for following in STATES:
            if state != following and (events := events_between(state, following)):
                points, at = STATE_ARROWS[state, following]
                picture.arrow(*points, said=textwrap.fill(", ".join(events), 20), at=at)
    picture.arrow((20, 150), (60, 190), said="published", at=(40, 142))
    picture.arrow((760, 310), (760, 250), said="published before\nthe subscription", at=(790, 326))
    return picture


PICTURES: dict[str, Callable[[], Picture]] = {
    "overview": overview,
    "map": the_map,
    "topics": topics,
    "round": a_round,
    "subscription-types": subscription_types,
    "acknowledgement": acknowledgement,
    "redelivery": redelivery,
    "key-shared": key_shared,
    "delayed": delayed,
    "chunks": chunks,
    "crashes": crashes,
    "states": states,
}


def main() -> None:
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
