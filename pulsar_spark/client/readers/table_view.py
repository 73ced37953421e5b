"""TableView: the latest value of each key of a topic, kept up to date.

Rule: TableViewImpl of Pulsar's clients. An empty or null value removes its key.
"""

import threading
from collections.abc import Callable
from typing import Any

from pulsar_spark.client.model.message import Message
from pulsar_spark.client.readers.reader import Reader
from pulsar_spark.client.subscribing.listener import Listener
from pulsar_spark.described import Described
from pulsar_spark.schema import BytesSchema, Schema


class _Latest:
    """A message as a schema decodes it, detached from its rows."""

    __slots__ = ("_payload", "_properties", "_schema_version", "_sequence_id", "_topic_id", "_topic_name")

    def __init__(self, message: Message):
        self._payload, self._properties = message.data(), message.properties() or None
        self._schema_version, self._sequence_id = message.int_schema_version(), message.sequence_id()
        self._topic_id, self._topic_name = message._topic_id, message.topic_name()

    def data(self) -> bytes:
        return self._payload

    def has_null_value(self) -> bool:
        return False

    def properties(self) -> dict[str, str]:
        return dict(self._properties or ())

    def int_schema_version(self) -> int:
        return self._schema_version

    def sequence_id(self) -> int:
        return self._sequence_id

    def topic_name(self) -> str:
        return self._topic_name


class TableView(Described):
    """The latest value of each key of a topic; made by ``Client.create_table_view``. It is thread-safe."""

    def __init__(self, client: Any, reader: Reader, subscription: str | None, schema: Schema):
        self._client, self._reader, self._subscription, self._schema = client, reader, subscription, schema
        self._lock = threading.RLock()
        self._latest: dict[str, _Latest] = {}
        self._listeners: list[Callable[[str, Any], None]] = []
        self._removed = b"" if isinstance(schema, BytesSchema) else None
        while reader.has_message_available():
            self._take(self, reader.read_next())
        Listener(self, self._take, reader._take, f"view-{reader.topic()}").start()

    def _take(self, _: "TableView", message: Message) -> None:
        key = message.partition_key()
        if not key:
            return
        latest = _Latest(message)
        with self._lock:
            if latest.data():
                self._latest[key] = latest
            else:
                self._latest.pop(key, None)
            if self._listeners:
                self._call(self._listeners, key, latest if latest.data() else None)

    def _call(self, listeners: list[Callable[[str, Any], None]], key: str, latest: _Latest | None) -> None:
        """Call the *listeners*; their exceptions are logged. The caller holds the lock."""
        try:
            value = self._removed if latest is None else self._schema.decode_message(latest)
        except Exception as wrong:  # an application's schema may raise anything
            self._log("has a value that its schema cannot decode; listeners are not called", key, wrong)
            return
        for callback in list(listeners):
            try:
                callback(key, value)
            except Exception as wrong:  # an application may raise anything
                self._log("called a listener, which failed", key, wrong)

    def _log(self, what: str, key: str, wrong: Exception) -> None:
        name = type(wrong).__name__
        self._client._logger.error("%s %s: key %r: %s: %s", self, what, key, name, wrong, exc_info=wrong)

    def get(self, key: str) -> Any | None:
        """The value of *key*; None if the view does not have it."""
        latest = self._latest.get(key)
        return None if latest is None else self._schema.decode_message(latest)

    def snapshot(self) -> dict[str, Any]:
        """A dict of all current values by key."""
        with self._lock:
            now = dict(self._latest)
        return {key: self._schema.decode_message(latest) for key, latest in now.items()}

    def for_each(self, callback: Callable[[str, Any], None]) -> None:
        """Call ``callback(key, value)`` for every key in the view."""
        for key, value in self.snapshot().items():
            callback(key, value)

    def for_each_and_listen(self, callback: Callable[[str, Any], None]) -> None:
        """Call *callback* for every key there is, and then for every change, in order and in the view's thread.

        A removed key has the value None, or ``b""`` without a schema. Errors of the callback, and of decoding, are
        logged.
        """
        with self._lock:
            for key, latest in list(self._latest.items()):
                self._call([callback], key, latest)
            self._listeners.append(callback)

    def close(self) -> None:
        """Stop following the topic; its values stay readable. A second call raises ``AlreadyClosed``."""
        self._reader.close()

    def __len__(self) -> int:
        return len(self._latest)

    def __contains__(self, key: object) -> bool:
        return key in self._latest

    def _facts(self) -> dict[str, object]:
        facts = {"topic": self._reader.topic(), "keys": len(self._latest)}
        return facts if self._subscription is None else {**facts, "subscription": self._subscription}

    def __str__(self) -> str:
        subscription = "" if self._subscription is None else f", subscription={self._subscription}"
        return f"TableView(topic={self._reader.topic()}{subscription})"

    __repr__ = __str__
