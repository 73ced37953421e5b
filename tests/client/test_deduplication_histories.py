"""Producers of one name, in any order of looks and commits; some die. Each message is stored once, in order."""

import random
import time

import pytest

from pulsar_spark.client.sending.deduplication import Deduplication, Judged
from pulsar_spark.client.sending.publish_rows import Entry, Outgoing, publish_rows
from pulsar_spark.link.quota import BacklogQuota
from pulsar_spark.protocol.policies.policies import DEDUPLICATION
from pulsar_spark.storage.delta.data_files import read_added
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.topics.topics import Topic, read_topic
from pulsar_spark.table_specs import MESSAGES
from tests.support.requests import On
from tests.support.spark_engine import new_engine

TOPIC = "persistent://public/default/t"
MESSAGES_SENT = 30


def message(sequence_id: int) -> Outgoing:
    return Outgoing(b"x", None, None, None, None, None, 0, sequence_id, time.monotonic() + 60, None)


class Producing:
    """A producer that goes on behind what is stored, looks, and commits what it judged then, perhaps much later."""

    def __init__(self, layout, topic: Topic, drawn: random.Random):
        self._topic, self._drawn = topic, drawn
        self._deduplication = Deduplication(topic, "p", BacklogQuota(layout, topic))
        self._table, self._judged = AppendTable(topic.path), None
        highest = self._deduplication.highest([-1])
        self.next = drawn.randint(0, -1 if highest is None else highest) if highest else 0
        """It need not know what it sent last: it may begin anywhere at or below."""
        self._entries: list[Entry] = []

    def step(self) -> None:
        if self._judged is None:
            if not self._entries:
                sizes = [self._drawn.randint(1, 3) for _ in range(self._drawn.randint(1, 3))]
                for size in sizes:
                    self._entries.append(Entry(-1, [message(self.next + each) for each in range(size)]))
                    self.next += size
            self._judged = self._deduplication.judge(self._entries)
            return
        if not self._judged.entries or self._commit(self._judged):
            self._entries = []
        self._judged = None

    def _commit(self, judged: Judged) -> bool:
        publish_id = f"{self._drawn.getrandbits(128):032x}"
        rows, _ = publish_rows(judged.entries, publish_id, "p")
        version = self._table.append_after(judged.known, rows, judged.transactions)
        if version is not None:
            self._deduplication.stored(judged, version)
        return version is not None


@pytest.mark.parametrize("seed", range(15))
def test_each_message_is_stored_once_and_in_order(tmp_path, seed):
    engine, drawn = new_engine(None, tmp_path / "root"), random.Random(seed)
    engine.create_topic(TOPIC)
    engine.round([On(TOPIC).policy(DEDUPLICATION, 1)], 0)
    topic = read_topic(engine.layout, TOPIC)
    producing = [Producing(engine.layout, topic, drawn) for _ in range(drawn.randint(1, 3))]
    while any(each.next < MESSAGES_SENT for each in producing):
        at = drawn.randrange(len(producing))
        if drawn.random() < 0.1:
            producing[at] = Producing(engine.layout, topic, drawn)
        producing[at].step()
        if drawn.random() < 0.1:
            AppendTable(topic.path).append(publish_rows([Entry(-1, [message(0)])], f"{seed:032}", "other")[0])
    for each in producing:
        while each._entries:
            each.step()
    stored = [
        row["sequence_id"]
        for commit in TableLog(topic.path).commits(0)
        for row in read_added(topic.path, commit, MESSAGES.schema, ["producer_name", "sequence_id"]).to_pylist()
        if row["producer_name"] == "p"
    ]
    assert stored == list(range(len(stored))) and len(stored) >= MESSAGES_SENT
