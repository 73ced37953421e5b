"""Owners of sticky-key hashes of a Key_Shared subscription, and hashes that wait."""

from collections.abc import Callable, Iterable

from pulsar_spark.protocol.suggestions import no_subscription
from pulsar_spark.protocol.topics.topic_name import check_subscription
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, read_latest
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.bundles import layout_of
from pulsar_spark.storage.topics.topics import resolve_topic
from pulsar_spark.views.key_shared import KeyShared, draining_rows, range_rows, rows_of_cursors


class KeyHashes:
    """Part of ``Admin`` for hashes of Key_Shared subscriptions. Others, and those without
    consumers, have none."""

    layout: Layout

    def hash_ranges(self, topic: str, subscription: str) -> list[dict]:
        """The owners of hash ranges, by partition and position: the columns of the view ``hash_ranges``."""
        return self._of_key_shared(topic, subscription, range_rows)

    def draining_hashes(self, topic: str, subscription: str) -> list[dict]:
        """The hashes whose next entries wait for delivered ones, by partition and hash: the columns of the view
        ``draining_hashes``."""
        rows = self._of_key_shared(topic, subscription, draining_rows)
        return [row | {"due_time": row["due_time"] and row["due_time"].isoformat()} for row in rows]

    def _of_key_shared(
        self, topic: str, subscription: str, rows_of: Callable[[KeyShared], Iterable[dict]]
    ) -> list[dict]:
        check_subscription(subscription)
        found, partitions = resolve_topic(self.layout, topic)
        layout = layout_of(self.layout, found.name)
        latest = read_latest(layout)
        keys = [CursorKey(found.topic_id, partition, subscription) for partition in partitions]
        if not any(key in latest.cursors for key in keys):
            known = {key.subscription for key in latest.cursors if key.topic_id == found.topic_id}
            raise no_subscription(str(found.name), subscription, known)
        return list(rows_of_cursors(layout, latest, keys, rows_of))
