"""The requests, topics and subscriptions that a bundle has set aside, by id."""

from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.storage.cursor_ledger.set_aside import SUBSCRIPTION, TOPIC, SetAside


class Aside(dict[str, SetAside]):
    """An entry of an earlier topic with the same name does not count."""

    def topic(self, topic: str, topic_id: str) -> SetAside | None:
        return self._find(SetAside(TOPIC, "", "", topic=topic, topic_id=topic_id)) if self else None

    def cursor(self, cursor: Cursor) -> SetAside | None:
        return self._find(SetAside(SUBSCRIPTION, "", "", topic=cursor.topic, **cursor.key._asdict())) if self else None

    def has(self, cursor: Cursor) -> bool:
        """Is the cursor, or its topic, set aside?"""
        return bool(self) and (self.cursor(cursor) or self.topic(cursor.topic, cursor.key.topic_id)) is not None

    def _find(self, wanted: SetAside) -> SetAside | None:
        entry = self.get(wanted.id)
        return entry if entry is not None and entry.topic_id == wanted.topic_id else None
