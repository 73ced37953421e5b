"""The counters of cursors against the reference broker: what was published is acknowledged, dead, or left."""

from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, LatestRows
from tests.support.model import Model
from tests.support.model_cursor import Cursor


def left_of(model: Model, cursor: Cursor) -> int:
    """Messages of a topic partition that a cursor has not acknowledged."""
    batches = model.batches[cursor.topic, cursor.partition]
    return sum(
        cursor.weight(position, batches)
        for position in range(cursor.mark_delete + 1, len(batches))
        if position not in cursor.acknowledged and not cursor.units.is_part(position)
    )


def published_to(model: Model, cursor: Cursor) -> int:
    """Messages of a topic partition, a chunked one once."""
    batches = model.batches[cursor.topic, cursor.partition]
    return sum(size for position, size in enumerate(batches) if not cursor.units.is_part(position))


class Counters:
    """Compares the counters of cursors after every round. A seek passes messages that nobody acknowledges, so the
    comparison begins again."""

    def __init__(self, topic_ids: dict[str, str]):
        self._topic_ids = topic_ids
        self._since: dict[tuple, tuple] = {}
        """Of each cursor: itself and its moves, and what the counters and the messages that are not left add up to."""

    def differences(self, model: Model, latest: LatestRows) -> list[str]:
        found = []
        for place, cursor in model.cursors.items():
            row = latest.cursors[CursorKey(self._topic_ids[place[0]], *place[1:])]
            counted = row["msg_ack_counter"] + row["msg_dead_counter"]
            done = published_to(model, cursor) - left_of(model, cursor)
            same, before = self._since.get(place, ((), 0))
            if same != (id(cursor), cursor.moves):
                self._since[place] = (id(cursor), cursor.moves), done - counted
            elif done - counted != before:
                found.append(f"{place}: {counted} messages are acknowledged or dead, not {done - before}")
        found += [
            f"{topic} {subscription}: {dead} messages are dead"
            for topic, subscription in {(place[0], place[2]) for place in model.cursors}
            if (dead := self._dead(latest, topic, subscription)) > len(model.letters(topic, subscription))
        ]
        return found

    def _dead(self, latest: LatestRows, topic: str, subscription: str) -> int:
        return sum(
            row["msg_dead_counter"]
            for key, row in latest.cursors.items()
            if (key.topic_id, key.subscription) == (self._topic_ids[topic], subscription)
        )
