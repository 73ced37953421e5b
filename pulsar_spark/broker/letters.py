"""Dead letters: written from the rows of the round that declared entries dead.

A projection of ``cursor_ledger``: the round says which entries died, and this writes their letters behind it, once, because each append bears the round's number as its
transaction. A crash in between leaves a round whose letters are missing; it is the latest round, since the next one begins after the letters, so whoever starts
writes the letters of the latest round again, which does nothing where they are there.
"""
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice

import pyarrow as pa

from pulsar_spark.broker.bundle import Bundle, TopicState
from pulsar_spark.broker.drafts import Request
from pulsar_spark.protocol import ack_set as ack_sets
from pulsar_spark.protocol.letters import CAUSE_REDELIVERED, dead_letter_properties, dead_letter_topic
from pulsar_spark.protocol.message_id import MessageId
from pulsar_spark.protocol.publish_id import publish_id
from pulsar_spark.schemas import MESSAGES
from pulsar_spark.storage.entries import read_entries
from pulsar_spark.storage.tables import AppendTable
from pulsar_spark.storage.topics import resolve_topic

LETTERS_A_COMMIT = 20_000


def write_letters(bundle: Bundle, round_number: int, now: int, facts: Iterable[dict]) -> list[Request]:
    """Write the letters that the ``letter`` rows of a round ask for; the subscriptions to make on topics written to, as requests of the next round."""
    asked = []
    for fact in facts:
        if fact["kind"] != "letter":
            continue
        state = bundle.topic_by_id(fact["topic_id"])
        if state is None:
            continue
        policy = dict(fact["properties"])
        topic, _ = resolve_topic(bundle.layout, policy.get("dead_letter_topic") or dead_letter_topic(fact["topic"], fact["subscription"]), create=True)
        table = AppendTable(topic.path)
        rows = _letters(state, fact)
        for part in iter(lambda: list(islice(rows, LETTERS_A_COMMIT)), []):
            app_id = f"letters/{fact['topic_id']}/{fact['partition']}/{fact['subscription']}/{part[0]['sequence_id']}"
            identity = zlib.crc32(app_id.encode()) << 32 | round_number
            letters = [dict(row, publish_id=publish_id(now // 1000, identity), entry_id=number, sequence_id=None, publish_time=now,
                            partition=topic.partition_indexes[0]) for number, row in enumerate(part)]
            table.append_once(MESSAGES.rows(letters), app_id, round_number)
        if policy.get("initial_subscription_name"):
            asked.append(Request(f"letters-{round_number}-{len(asked)}", "create_subscription", None, None, str(topic.name), topic.partition_indexes[0],
                                 policy["initial_subscription_name"], None, None, None, None, None, {"initial_position": "Earliest"}))
    return asked


def _letters(state: TopicState, fact: dict) -> Iterator[dict]:
    """A row per message of the dead entries that is not acknowledged; ``sequence_id`` holds the position, to tell commits of a round apart."""
    unacked = None if fact["ack_set"] is None else set(ack_sets.indexes(fact["ack_set"]))
    for run, rows in read_entries(state.topic.path, state.ledgers(fact["partition"]), [(fact["first"], fact["last"])]):
        for row in _python_rows(rows):
            index = -1 if row["batch_index"] is None else row["batch_index"]
            if unacked is not None and index not in unacked:
                continue
            message_id = MessageId(fact["partition"], run.ledger_id, row["entry_id"], index)
            yield dict(row, batch_index=None, batch_size=1, deliver_at_time=None, producer_name=f"{fact['topic']}-{fact['subscription']}-DLQ",
                       sequence_id=run.first_position + row["entry_id"] - run.first_entry_id,
                       properties=list(dead_letter_properties(dict(row["properties"] or []), topic=fact["topic"], subscription=fact["subscription"],
                                                              message_id=str(message_id), cause=CAUSE_REDELIVERED, attempts=fact["redelivery_count"]).items()))


def _python_rows(rows: pa.Table) -> Iterator[dict]:
    for batch in rows.to_batches(max_chunksize=1000):
        yield from batch.to_pylist()
