"""Reading a case's table: cells to requests and expectations. The notation is described in ``tests.spec``."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from pulsar_spark.protocol.acknowledgement import ack_set
from tests.support.model_chunks import PRODUCER, Chunk
from tests.support.model_keys import Key
from tests.support.requests import On, keep_alive, leave

POSITION = re.compile(
    r"(?:p(?P<partition>\d+):)?(?P<first>\d+)(?:-(?P<last>\d+))?(?:\+(?P<count>\d+))?(?:\{(?P<left>[\d,]+)\})?"
    r"(?:\[(?P<chunks>[\d,]+)\])?"
)
ADMIN = "admin"


class Place(NamedTuple):
    """An entry in a cell: where, how often redelivered, which batch indexes are left (None = all), and as what chunks
    it was delivered."""

    partition: int
    position: int
    count: int = 0
    left: tuple[int, ...] | None = None
    chunks: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Case:
    """One rule: *says* is prose, *source* where it comes from, *table* the history."""

    name: str
    source: str
    says: str
    table: str
    partitions: int = 0
    topic_name: str | None = None

    @property
    def topic(self) -> str:
        return self.topic_name or f"persistent://spec/{self.name.replace(' ', '-')}/t"

    @property
    def all_partitions(self) -> tuple[int, ...]:
        return tuple(range(self.partitions)) or (-1,)

    @cached_property
    def rows(self) -> list[dict[str, str]]:
        """One dict per round: column -> cell, stripped. Seconds begin at 0; a clock is set back where they do not
        ascend."""
        lines = [
            [cell.strip() for cell in line.strip().strip("|").split("|")] for line in self.table.strip().splitlines()
        ]
        header, rows = lines[0], lines[1:]
        for row, before in zip(rows, [None, *rows]):
            is_next = row[0] != before[0] if before else row[0] == "0"
            if len(row) != len(header) or not row[0].isdecimal() or not is_next:
                raise ValueError(f"{self.name}: a row does not fit the header, or its second does not follow: {row}")
        return [dict(zip(header, row, strict=True)) for row in rows]

    @cached_property
    def seconds(self) -> list[int]:
        return [int(row["s"]) for row in self.rows]

    @cached_property
    def by_second(self) -> dict[int, dict[str, str]]:
        """The rows, of a case whose seconds ascend."""
        found = {second: row for second, row in zip(self.seconds, self.rows)}
        if list(found) != sorted(self.seconds):
            raise ValueError(f"{self.name}: seconds that do not ascend are of a case that is played alone")
        return found

    def consumer_id(self, consumer: str) -> str:
        """Ids are unique over the cases of a file, so that a client belongs to one case only."""
        return f"{self.name}: {consumer.rpartition('/')[2]}"

    def consumer(self, consumer_id: str) -> str:
        return consumer_id.removeprefix(f"{self.name}: ")

    def published(self, row: dict[str, str]) -> list["Entry"]:
        return entries(row.get("publish", ""))

    def requests(self, row: dict[str, str]) -> list[dict]:
        """The requests of a round; on a partitioned topic each is made of every partition, as consumers of the whole
        topic do."""
        return [
            self._request(text.split(), partition)
            for text in _parts(row["requests"])
            for partition in self.all_partitions
        ]

    def places(self, cell: str) -> set[Place]:
        """``0-2 5+1`` as places, one an entry."""
        found = set()
        for token in cell.split():
            match = POSITION.fullmatch(token)
            if not match:
                raise ValueError(f"{self.name}: {token!r} is no position")
            left, chunks = (
                match[name] and tuple(int(index) for index in match[name].split(",")) for name in ("left", "chunks")
            )
            partition = int(match["partition"]) if match["partition"] else self.all_partitions[0]
            found |= {
                Place(partition, position, int(match["count"] or 0), left, chunks)
                for position in range(int(match["first"]), int(match["last"] or match["first"]) + 1)
            }
        return found

    def by_consumer(self, cell: str) -> dict[tuple[str, ...], str]:
        """``A+B 0-9; C 10`` as {("A", "B"): "0-9", ("C",): "10"}."""
        parts = [part.partition(" ") for part in _parts("" if cell == "none" else cell)]
        return {tuple(names.split("+")): rest.strip() for names, _, rest in parts}

    def _request(self, words: list[str], partition: int) -> dict:
        if words[0] in ADMIN_VERBS:
            return asked(On(self.topic, partition), words)
        consumer, *rest = words
        subscription, _, name = consumer.rpartition("/")
        return asked(On(self.topic, partition, subscription or "s"), [name, *rest], self.consumer_id)


def asked(on: On, words: list[str], consumer_id: Callable[[str], str] = str) -> dict:
    """``A ack 0-3 receipt`` or ``skip 2`` as the request about *on*; *consumer_id* gives a consumer's id by its name in
    the table."""
    if words[0] in ADMIN_VERBS:
        return ADMIN_VERBS[words[0]](on, words[1:])
    consumer, verb, *arguments = words
    named = ["name", consumer] if verb == "subscribe" and "name" not in arguments else []
    return CONSUMER_VERBS[verb](on, consumer_id(consumer), [*arguments, *named])


def _parts(cell: str) -> list[str]:
    return [part.strip() for part in cell.split(";") if part.strip()]


class Entry(NamedTuple):
    """To be published: messages, deliver time in milliseconds or None, keys, what it says as a chunk."""

    messages: int
    deliver_at_ms: int | None = None
    keys: tuple[Key, ...] = (Key(),)
    chunk: Chunk | None = None


CHUNKS = r"(?:(?P<producer>\w+)\.)?(?P<uuid>[A-Z]\w*):(?P<first>-?\d+)(?:-(?P<last>\d+))?/(?P<num_chunks>-?\d+)"
ENTRY = re.compile(rf"(?:(?P<size>\d+)(?:\*(?P<times>\d+))?|{CHUNKS})(?:=(?P<keys>[^@]*))?(?:@(?P<second>-?\d+))?")


def entries(cell: str) -> list[Entry]:
    """``1*2 4 1@7 1=k 3=k,l,m A:0-1/3 q.A:2/3`` as entries."""
    found = []
    for token in cell.split():
        match = ENTRY.fullmatch(token)
        if not match:
            raise ValueError(f"{token!r} is no entry")
        keys = (Key(),) if match["keys"] is None else tuple(map(_key, match["keys"].split(",")))
        deliver_at_ms = _ms(match["second"]) if match["second"] else None
        if match["uuid"] is None:
            found += [Entry(int(match["size"]), deliver_at_ms, keys)] * int(match["times"] or 1)
            continue
        first, num_chunks = int(match["first"]), int(match["num_chunks"])
        found += [
            Entry(1, deliver_at_ms, keys, Chunk(match["uuid"], chunk_id, num_chunks, match["producer"] or PRODUCER))
            for chunk_id in range(first, int(match["last"] or first) + 1)
        ]
    return found


def _ms(seconds: str) -> int:
    return 1000 * int(seconds)


def _key(text: str) -> Key:
    """``k``, ``k^ordering``, ``base64:AQI``."""
    partition_key, caret, ordering_key = text.removeprefix("base64:").partition("^")
    return Key(partition_key, ordering_key if caret else None, text.startswith("base64:"))


def _options(words: list[str]) -> dict[str, str]:
    """``priority 1 name B`` as a dict."""
    return dict(zip(words[::2], words[1::2], strict=True))


def _span(words: list[str]) -> tuple[int, int]:
    first, _, last = words[0].partition("-")
    return int(first), int(last or first)


SUBSCRIBE_OPTIONS = {
    "max": "max_redeliver_count",
    "limit": "max_unacked_messages",
    "sticky": "hash_ranges",
    "mode": "key_shared_mode",
    "unordered": "allow_out_of_order_delivery",
    "pending": "max_pending_chunked_message",
    "auto": "auto_ack_oldest_chunked_message_on_queue_full",
    "incomplete": "expire_time_of_incomplete_chunked_message_ms",
}
"""Properties of a request to subscribe, by their words in a table."""


def _subscribe(on: On, consumer: str, words: list[str]) -> dict:
    position = words.pop(1) if words[1] in ("Latest", "Earliest") else "Earliest"
    options = _options(words[1:])
    more = {name: options[word] for word, name in SUBSCRIBE_OPTIONS.items() if word in options}
    if "sticky" in options:
        more["key_shared_mode"] = "STICKY"
    return on.subscribe(
        consumer,
        words[0],
        initial_position=position,
        name=options["name"],
        priority_level=int(options.get("priority", 0)),
        lease_ms=1000 * int(options.get("lease", 600)),
        **more,
    )


def _left(words: list[str]) -> dict:
    """``left 0,2`` and ``receipt`` behind an ack's positions."""
    left = [int(index) for index in words[words.index("left") + 1].split(",")] if "left" in words else None
    return {"ack_set": None if left is None else list(ack_set.of_indexes(left)), "receipt": "receipt" in words}


def _later(on: On, consumer: str, words: list[str]) -> dict:
    """``3``, or ``0 index 1 left 0,2`` of a batch; ``times 2`` for the second time, ``dead`` for a dead letter,
    ``cumulative`` with all before it."""
    options = {word: int(words[words.index(word) + 1]) for word in ("index", "times") if word in words}
    return on.reconsume_later(
        int(words[0]),
        consumer=consumer,
        batch_index=options.get("index"),
        times=options.get("times", 1),
        is_dead="dead" in words,
        is_cumulative="cumulative" in words,
        **_left(words),
    )


def _seek(on: On, consumer: str | None, words: list[str]) -> dict:
    return (
        on.seek(publish_time_ms=1000 * int(words[1]), consumer=consumer)
        if words[0] == "second"
        else on.seek(words[0], consumer=consumer)
    )


CONSUMER_VERBS = {
    "subscribe": _subscribe,
    "flow": lambda on, consumer, words: on.flow(consumer, int(words[0])),
    "ack": lambda on, consumer, words: on.ack(*_span(words), consumer=consumer, **_left(words)),
    "cumulative": lambda on, consumer, words: on.cumulative_ack(int(words[0]), consumer=consumer, **_left(words)),
    "nack": lambda on, consumer, words: on.negative_ack(
        consumer, *_span(words), delay_ms=1000 * int(words[2] if "after" in words else 0), is_unseen="unseen" in words
    ),
    "later": _later,
    "redeliver": lambda on, consumer, words: on.redeliver_all(consumer),
    "close": lambda on, consumer, words: on.close(consumer),
    "leaves": lambda on, consumer, words: leave(consumer),
    "alive": lambda on, consumer, words: keep_alive(consumer),
    "seek": _seek,
    "unsubscribe": lambda on, consumer, words: on.unsubscribe(consumer),
}
ADMIN_VERBS = {
    "seek": lambda on, words: _seek(on, None, words),
    "unsubscribe": lambda on, words: on.unsubscribe(force="force" in words),
    "create": lambda on, words: on.create_subscription(words[0]),
    "skip": lambda on, words: on.skip(int(words[0])),
    "clear": lambda on, words: on.clear_backlog(),
    "unload": lambda on, words: on.unload(),
    "expire": lambda on, words: on.expire(int(words[0])),
    "policy": lambda on, words: on.policy(*words),
    "cancel": lambda on, words: on.cancel(*_span(words)),
    "reschedule": lambda on, words: on.reschedule(*_span(words), deliver_at_ms=_ms(words[1])),
}
