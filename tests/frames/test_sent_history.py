"""What was delivered of a subscription, round by round: by ranges, and named entry by entry."""

import pytest

from pulsar_spark.broker.committing.round_rows import CursorRanges, rows_of_round
from pulsar_spark.frames.sinks.sent_history import History
from pulsar_spark.protocol.acknowledgement.cursor import Range
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledger_rows import ledger_rows
from pulsar_spark.storage.ledgers.publishes import number_commit
from pulsar_spark.storage.topics.topics import create_topic
from pulsar_spark.table_specs import LEDGERS, MESSAGES
from tests.support.named_entries import named

HASHES = [10, 50_000, 20, 60_000, 30, 40_000, 40, 10]


@pytest.fixture
def topic(layout: Layout):
    """A message for each of :data:`HASHES`, numbered."""
    topic = create_topic(layout, "t")
    rows = [
        {
            "publish_id": "p" * 32,
            "entry_id": entry,
            "batch_size": 1,
            "partition": -1,
            "partition_key": "k",
            "payload": b"",
            "sticky_key_hash": each,
        }
        for entry, each in enumerate(HASHES)
    ]
    AppendTable(topic.path).append(MESSAGES.rows(rows))
    (commit,) = TableLog(topic.path).commits(0)
    numbered = number_commit(topic.path, commit, {}, set())
    rows = ledger_rows(str(topic.name), topic.topic_id, numbered)
    AppendTable(layout.broker_table("ledgers")).append(LEDGERS.rows(rows))
    return topic


def commit(layout, topic, number: int, ranges: list[Range], *, is_named: bool, mark_delete: int = -1) -> None:
    key = CursorKey(topic.topic_id, -1, "s")
    entries = named(key, str(topic.name), ranges) if is_named else [CursorRanges(key, str(topic.name), ranges)]
    cursor = {"kind": "cursor", "topic": str(topic.name), "mark_delete_position": mark_delete, **key._asdict()}
    rows = rows_of_round(number, [{"kind": "round"}, cursor], entries)
    AppendTable(layout.broker_table("cursor_ledger")).append(rows)


def pending(consumer: str, number: int, *positions: int) -> list[Range]:
    return [Range(at, at, "pending", consumer, number, 0, None, None, 1) for at in positions]


@pytest.mark.parametrize("is_named", [False, True])
def test_who_was_sent_which_entries(layout, topic, is_named):
    """The entries of others between the ends of a delivery were not sent; what is below mark-delete is forgotten."""
    commit(layout, topic, 1, sorted(pending("a", 1, 0, 2, 4, 6) + pending("b", 1, 1, 3)), is_named=is_named)
    later = sorted(pending("a", 1, 2, 4, 6) + pending("b", 2, 5, 1, 3))
    commit(layout, topic, 2, later, is_named=is_named, mark_delete=0)
    history = History(layout, topic.topic_id, "s")
    history.read_up_to(2)

    def sent(consumer: str, *spans: tuple[int, int]) -> list[tuple]:
        found = history.overlapping(-1, spans, consumer)
        rows = zip(*(column.tolist() for column in found[:4]))
        return sorted({(name, round_, at) for name, round_, first, last in rows for at in range(first, last + 1)})

    assert sent("c", (1, 3), (5, 7)) == [
        ("a", 1, 2),
        ("a", 1, 6),
        ("b", 1, 1),
        ("b", 1, 3),
        ("b", 2, 1),
        ("b", 2, 3),
        ("b", 2, 5),
    ]
    assert sent("b", (1, 1), (3, 3)) == [] and sent("a", (2, 2), (4, 4)) == []
    assert sent("b", (1, 7)) == [("a", 1, 2), ("a", 1, 4), ("a", 1, 6)]
