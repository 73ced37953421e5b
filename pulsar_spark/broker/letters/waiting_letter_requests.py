"""Requests to retry or drop waiting letters, by topic and subscription, or one by ``letter`` = "round-number". The
reply is the number of messages."""

from pulsar_spark.broker.requests.request import Request
from pulsar_spark.broker.requests.request_handler import RequestHandler
from pulsar_spark.errors import InvalidConfiguration, InvalidMessage
from pulsar_spark.protocol.redelivery.letters import letters_in
from pulsar_spark.storage.cursor_ledger.cursor_ledger import WaitingKey


class WaitingLetterRequests(RequestHandler):
    def retry(self, request: Request) -> str:
        keys = self._keys_of(request)
        self.bundle.waiting_letters.try_again(keys, self.draft.now)
        return self._messages(keys)

    def drop(self, request: Request) -> str:
        if not request.topic and "letter" not in request.properties and request.properties.get("all") != "true":
            raise InvalidConfiguration("drop_waiting_letters: give a topic or a letter, or all=true")
        keys = self._keys_of(request)
        text = self._messages(keys)
        self.bundle.waiting_letters.drop(keys)
        return text

    def _keys_of(self, request: Request) -> list[WaitingKey]:
        rows = self.bundle.waiting_letters.rows
        named = request.properties.get("letter")
        if named is not None:
            found = [key for key in rows if str(key) == named]
            if not found:
                raise InvalidMessage(f"no letter {named!r} waits: see pulsar-spark dlq waiting")
            return found
        return [
            key
            for key, row in rows.items()
            if request.topic in (None, row["topic"]) and request.subscription in (None, row["subscription"])
        ]

    def _messages(self, keys: list[WaitingKey]) -> str:
        return str(sum(letters_in(self.bundle.waiting_letters.rows[key]) for key in keys))
