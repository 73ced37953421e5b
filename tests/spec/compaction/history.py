"""What becomes of the cases of a file: on the reference, which is as dull as can be, without Spark, and on Spark."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pulsar_spark as pulsar
from pulsar_spark.broker.compaction import compaction
from pulsar_spark.broker.compaction.compaction_plan import Write
from pulsar_spark.client.schema.payloads import PayloadOpener
from pulsar_spark.payloads.encoding import ENCODING_COLUMNS
from pulsar_spark.storage.compaction.compacted import CompactedView
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import create_topic, read_topic
from tests.payloads.keys import Keys

TOPIC = "persistent://spec/compaction/t"


class Case(NamedTuple):
    """One rule: *says* is prose, *source* where it comes from, *table* what is published and what stays."""

    name: str
    source: str
    says: str
    table: str

    @property
    def rows(self) -> list[tuple[str, str]]:
        """What is published, and what the view is then."""
        lines = [line.strip().strip("|").split("|") for line in self.table.strip().splitlines()[1:]]
        return [(publish.strip(), view.strip()) for publish, view in lines]


class Said(NamedTuple):
    """A message of a cell; ``payload`` None is a null value."""

    key: str | None
    payload: str | None
    chunks: int
    is_compressed: bool
    is_encrypted: bool


def messages(cell: str) -> list[list[Said]]:
    """The entries of a cell, each with its messages; a message in chunks is one."""
    entries = re.findall(r"\[[^\]]*\]|\S+", cell)
    return [[_message(text) for text in entry.strip("[]").split()] for entry in entries]


def _message(text: str) -> Said:
    found = re.fullmatch(r"(?P<secret>~?)(?P<key>\w*)=(?P<payload>-|\w*)(/(?P<chunks>\d+))?(?P<packed>~?)", text)
    payload = None if found["payload"] == "-" else found["payload"]
    chunks = int(found["chunks"] or 1)
    return Said(found["key"] or None, payload, chunks, bool(found["packed"]), bool(found["secret"]))


class Reference:
    """A list of what was published, of which the last of each key stays, unless it is empty."""

    def __init__(self):
        self._sent: list[tuple[int, int, Said]] = []
        self._end = 0

    def play(self, publish: str) -> str:
        """The view behind a publish."""
        for entry in messages(publish):
            self._end += entry[0].chunks
            self._sent += [(self._end - 1, index if len(entry) > 1 else -1, each) for index, each in enumerate(entry)]
        kept = []
        for number, (position, index, said) in enumerate(self._sent):
            is_last = all(later.key != said.key for _, _, later in self._sent[number + 1 :])
            if said.key is not None and is_last and said.payload:
                kept.append(_shown(said.key, said.payload, position, index))
        return " ".join(kept)


def _shown(key: str, payload: str, position: int, index: int) -> str:
    return f"{key}={payload}@{position}" + ("" if index < 0 else f"{{{index}}}")


def on_reference(cases: Sequence[Case]) -> dict[str, list[str]]:
    """The views of each case, row by row."""
    references = {case.name: Reference() for case in cases}
    return {case.name: [references[case.name].play(publish) for publish, _ in case.rows] for case in cases}


def on_tables(root: Path, cases: Sequence[Case], by_spark: Write | None) -> dict[str, list[str]]:
    """The same of a topic that has a partition for each case; by Spark, where that is given."""
    layout = Layout(root)
    create_topic(layout, TOPIC, len(cases))
    client = pulsar.Client(f"delta:{root}")
    found: dict[str, list[str]] = {case.name: [] for case in cases}
    for number in range(max(len(case.rows) for case in cases)):
        for partition, case in enumerate(cases):
            for publish, _ in case.rows[number : number + 1]:
                _publish(client, f"{TOPIC}-partition-{partition}", publish)
        topic = read_topic(layout, TOPIC)
        compaction.compact(layout, topic, topic.partition_indexes, by_spark)
        for partition, case in enumerate(cases):
            if number < len(case.rows):
                found[case.name].append(_view(CompactedView(topic.path), partition))
    client.close()
    return found


def _publish(client: pulsar.Client, topic: str, publish: str) -> None:
    for entry in messages(publish):
        said, more = entry[0], {}
        if said.chunks > 1:
            more = {"chunking_enabled": True, "chunk_max_message_size": len(said.payload) // said.chunks}
        if said.is_compressed:
            more["compression_type"] = pulsar.CompressionType.ZLib
        if said.is_encrypted:
            more |= {"encryption_key": "a", "crypto_key_reader": Keys("a")}
        producer = client.create_producer(topic, batching_enabled=len(entry) > 1, **more)
        for each in entry:
            key = {} if each.key is None else {"partition_key": each.key}
            payload = None if each.payload is None else each.payload.encode()
            producer.send_async(payload, lambda result, message_id: None, **key)
        producer.flush()
        producer.close()


def _view(view: CompactedView, partition: int) -> str:
    opener = PayloadOpener(Keys("a"), pulsar.ConsumerCryptoFailureAction.FAIL)
    shown = []
    for rows in view.rows_after(partition, 0):
        for row in rows.to_pylist():
            payload = row["payload"]
            if any(row[name] for name in ENCODING_COLUMNS):
                payload = opener.opened(payload, _field(row)).payload
            index = -1 if row["batch_index"] is None else row["batch_index"]
            shown.append(_shown(row["partition_key"], payload.decode(), row["position"], index))
    return " ".join(shown)


def _field(row: dict) -> Callable[[str], object]:
    return row.__getitem__
