"""What is waited for before an id is taken for one of nothing."""

import time
from types import SimpleNamespace

import pytest

from pulsar_spark.client.receiving.places import await_numbering
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import create_topic
from pulsar_spark.table_specs import MESSAGES


@pytest.mark.parametrize(
    ("partition", "ledger_id", "numbered", "is_done"),
    [(1, 1, 0, False), (1, 1, 1, True), (0, 1, 0, True), (1, 0, 0, True), (1, 2, 0, True)],
    ids=["not numbered", "numbered", "of another partition", "the topic's definition", "above everything"],
)
def test_only_what_was_published_to_the_partition_is_waited_for(tmp_path, partition, ledger_id, numbered, is_done):
    topic = create_topic(Layout(tmp_path / "root"), "t", 2)
    AppendTable(topic.path).append(MESSAGES.rows([dict(publish_id="p", entry_id=0, batch_size=1, partition=1)]))
    ledgers = SimpleNamespace(last_ledger_id=lambda topic_id, of: numbered)
    subscription = SimpleNamespace(topic=topic, partition=partition)
    assert (
        await_numbering(ledgers, subscription, ledger_id, time.monotonic() + (0.05 if not is_done else 60)) == is_done
    )
