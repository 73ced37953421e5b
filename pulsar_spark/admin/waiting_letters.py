"""Letters that could not be written yet: list, retry, drop. Only listing needs no broker."""

import datetime

from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.link.requester import Requester, require_root
from pulsar_spark.protocol.redelivery.letters import dead_letters_to, letters_in
from pulsar_spark.protocol.topics.topic_name import check_subscription, parse_topic_name
from pulsar_spark.storage.cursor_ledger.cursor_ledger import WaitingKey, read_latest
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.bundles import layouts_of


class WaitingLetters:
    """Part of ``Admin`` for waiting letters. *letter* is a name from
    :meth:`waiting_letters`."""

    layout: Layout
    _requester: Requester

    def waiting_letters(self, topic: str | None = None, subscription: str | None = None) -> list[dict]:
        """The letters that could not be written so far, oldest first: owner, number of messages, topic, reason, since
        when, next try."""
        require_root(self.layout)
        wanted = None if topic is None else str(parse_topic_name(topic).partitioned_topic)
        return [
            _shown(key, row)
            for bundle in layouts_of(self.layout)
            for key, row in sorted(read_latest(bundle, "waiting_letter").waiting_letters.items())
            if wanted in (None, row["topic"]) and subscription in (None, row["subscription"])
        ]

    def retry_waiting_letters(
        self, topic: str | None = None, subscription: str | None = None, *, letter: str | None = None
    ) -> int:
        """Try waiting letters again now, all or the one named *letter*, and return the number of their messages.
        :meth:`waiting_letters` shows the outcome."""
        return self._ask_waiting(
            "retry_waiting_letters", topic, subscription, {} if letter is None else {"letter": letter}
        )

    def drop_waiting_letters(
        self,
        topic: str | None = None,
        subscription: str | None = None,
        *,
        letter: str | None = None,
        drop_all: bool = False,
    ) -> int:
        """Drop one waiting *letter*, or all with *drop_all*, and return the number of their messages, which get no
        letter."""
        if topic is None and letter is None and not drop_all:
            raise InvalidConfiguration(
                "no letters selected to drop: give a topic or a letter, or --all (in Python drop_all=True)"
            )
        return self._ask_waiting(
            "drop_waiting_letters",
            topic,
            subscription,
            ({} if letter is None else {"letter": letter}) | {"all": str(drop_all).lower()},
        )

    def _ask_waiting(self, kind: str, topic: str | None, subscription: str | None, properties: dict[str, str]) -> int:
        if subscription is not None:
            check_subscription(subscription)
        name = None if topic is None else str(parse_topic_name(topic).partitioned_topic)
        (reply,) = self._requester.ask(
            [{"kind": kind, "topic": name, "subscription": subscription, "properties": properties}]
        )
        return int(reply.text or 0)


def _shown(key: WaitingKey, row: dict) -> dict:
    properties = dict(row["properties"] or [])
    target = properties.get("letter_topic") or dead_letters_to(properties, row["topic"], row["subscription"])
    return {
        "letter": str(key),
        "topic": row["topic"],
        "partition": row["partition"],
        "subscription": row["subscription"],
        "kind": row["status"],
        "firstPosition": row["first"],
        "lastPosition": row["last"],
        "messages": letters_in(row),
        "letterTopic": target,
        "error": row["error"],
        "text": row["text"],
        "tries": row["msg_out_counter"] or 0,
        "since": _time(row["round_time"]),
        "nextTry": _time(row["due_time"]),
    }


def _time(time: datetime.datetime | None) -> str | None:
    return None if time is None else time.isoformat()
