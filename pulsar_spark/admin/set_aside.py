"""Requests, topics and subscriptions on which the broker failed: list, retry, drop."""

import datetime

from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.link.requester import Requester, require_root
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.bundles import layouts_of


class SetAsideVerbs:
    """Part of ``Admin`` for what the broker set aside."""

    layout: Layout
    _requester: Requester

    def set_aside(self) -> list[dict]:
        """``id``, ``status`` (request, topic, subscription), ``error``, ``text``, ``time`` and place of everything the
        broker set aside, oldest first."""
        require_root(self.layout)
        return [
            {
                "id": entry.id,
                "status": entry.status,
                "error": entry.error,
                "text": entry.text,
                "time": entry.round_time.isoformat() if isinstance(entry.round_time, datetime.datetime) else None,
                "requestId": entry.request_id,
                "topic": entry.topic,
                "partition": entry.partition,
                "subscription": entry.subscription,
                "requestsVersion": entry.requests_version,
            }
            for bundle in layouts_of(self.layout)
            for entry in read_latest(bundle, "set_aside").set_aside.values()
        ]

    def retry_set_aside(self, entry_id: str | None = None, *, all_entries: bool = False) -> int:
        """Try one entry again by its ``id`` (*entry_id*), or *all_entries*, and return their number.
        :class:`UnknownError` names those that failed again."""
        return self._ask_about("retry_set_aside", entry_id, all_entries)

    def drop_set_aside(self, entry_id: str | None = None, *, all_entries: bool = False) -> int:
        """Drop one request by its ``id`` (*entry_id*), or all requests (*all_entries*), and return their number. Topics
        and subscriptions cannot be dropped; delete them instead."""
        return self._ask_about("drop_set_aside", entry_id, all_entries)

    def _ask_about(self, kind: str, entry_id: str | None, all_entries: bool) -> int:
        if (entry_id is None) != all_entries:
            raise InvalidConfiguration(
                "give the id of an entry that 'pulsar-spark set-aside list' shows, or --all "
                "(in Python all_entries=True)" + ("" if entry_id is None else f", not both: {entry_id!r}")
            )
        require_root(self.layout)
        properties = {"all": "true"} if entry_id is None else {"id": entry_id}
        (reply,) = self._requester.ask([{"kind": kind, "properties": properties}])
        return int(reply.text or 0)
