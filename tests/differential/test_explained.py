"""Random histories: the word by which ``explain`` says why a message is where it is, against the reference broker's
account of it, for every entry and subscription after every round; and the deliveries in lives, in the end."""

import tempfile
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, read_latest
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.topics import read_topic
from pulsar_spark.views.explain import undelivered
from pulsar_spark.views.explain.entry import Entry
from pulsar_spark.views.explain.explanation import read_life, why
from pulsar_spark.views.explain.reasons import Seen
from tests.differential.drawing import drawn
from tests.differential.duel import Duel
from tests.differential.strategies import Turn
from tests.differential.test_histories import KINDS
from tests.support.model import Model
from tests.support.model_cursor import Cursor

SCARCE = {"unread", "no_permits"}
ORDER = {"key_drains", "key_waits", "recently_joined", "no_owner"}


def expected(model: Model, cursor: Cursor, at: int, now_ms: int) -> set[str]:
    """The words that the reference broker's account allows."""
    if cursor.is_done(at):
        return {"acknowledged"}
    if at in cursor.pending:
        return {"pending" if cursor.pending[at].due_ms is None else "given_back"}
    until = cursor.replay[at].due_ms if at in cursor.replay else cursor.delays.deliver_ms[at]
    if (until or 0) > now_ms and (at in cursor.replay or cursor.knows_delays()):
        return {"delayed"}
    if not cursor.consumers:
        return {"no_consumers"}
    if cursor.is_single_active():
        if cursor.reads_after_ms > now_ms:
            return {"activating"}
        assert cursor.consumers[cursor.active_id].permits <= 0
        return SCARCE
    is_again = at in cursor.replay
    if not is_again and (cursor.is_blocked or cursor.is_blocked_by_broker):
        return {"unacked_limit"}
    takers = [*cursor.consumers.values()]
    if cursor.keys:
        cursor.out = cursor.pending
        if cursor.waits(at, now_ms):
            return ORDER
        takers = [cursor.consumers[cursor.keys.owner_of(cursor.hashes[at])]]
    open_to = [each for each in takers if not each.is_blocked]
    if not open_to:
        return {"unacked_limit"}
    return SCARCE if all(each.permits <= 0 for each in open_to) else {"unread", "next_round"}


def explained(duel: type[Duel]) -> type[Duel]:
    """The kind of duel, which looks at every entry after each round."""

    class Explained(duel):
        words: set[str] = set()

        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self.entries: dict[tuple, Entry] = {}
            self.account: dict[tuple, list[str]] = defaultdict(list)

        def play(self, turns: list[Turn]) -> None:
            super().play(turns)
            layout = self.engine.layout
            seen = Seen(layout, read_latest(layout), LedgerIndex(layout), 1000 * self.now_ms)
            for (topic_id, partition, at), entry in [*self.entries.items()][:: max(len(self.entries) // 20, 1)]:
                if entry.position != at:
                    continue  # a chunk, which is delivered with the last one
                names = [key.subscription for key in seen.latest.cursors if key[:2] == (topic_id, partition)]
                life = [each for each in read_life(seen, entry, names) if each.event == "delivered"]
                for name in names:
                    found = [each.consumer_id for each in life if each.subscription == name]
                    assert found == self.account[topic_id, partition, name, at], (
                        f"{at} on {name}: {found}, not {self.account[topic_id, partition, name, at]}"
                    )

        def _compare(self, found: dict, of_model: dict, where: str) -> None:
            super()._compare(found, of_model, where)
            for each in found["deliveries"]:
                topic_id = self.engine.topic_ids[each.topic]
                place = topic_id, each.partition, each.subscription, each.position
                self.account[place].append(each.consumer_id)
            layout = self.engine.layout
            index = LedgerIndex(layout)
            seen = Seen(layout, read_latest(layout), index, 1000 * self.now_ms)
            for cursor in self.model.cursors.values():
                topic = read_topic(layout, cursor.topic)
                key = CursorKey(topic.topic_id, cursor.partition, cursor.subscription)
                for at in range(len(self.model.batches[cursor.topic, cursor.partition])):
                    entry = self.entries.get((*key[:2], at))
                    if entry is None or entry.is_chunk:
                        (run,) = index.runs(*key[:2], at, at)
                        entry = Entry(index, topic, cursor.partition, MessageId(-1, run.ledger_id, run.first_entry_id))
                        self.entries[*key[:2], at] = entry
                    if entry.position != at or entry.is_incomplete:
                        continue
                    word = why(seen, entry, key).word
                    self.words.add(word)
                    allowed = expected(self.model, cursor, at, self.now_ms)
                    assert word in allowed, f"{where}: {word} of {at} of {key}, not {allowed}"

    return Explained


def play(kind: str, examples: int) -> set[str]:
    histories, duel = KINDS[kind]
    explaining = explained(duel)

    @drawn(examples)
    @given(histories(), st.sampled_from([0, 0, 6, 14]))
    def of(history, limit):
        with tempfile.TemporaryDirectory(prefix="pulsar_spark_history_") as root:
            explaining(None, Path(root), max_unacked_messages_per_broker=limit).play(history)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(undelivered, "no_broker", lambda seen: None)  # rounds run in the test itself
        of()
    return explaining.words


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_words_are_those_of_the_reference_account(kind):
    words = play(kind, 2)
    assert words & {"acknowledged", "pending"}, "two histories may have only one of them"
    assert kind != "keys" or words & ORDER
    assert kind != "delays" or "delayed" in words
