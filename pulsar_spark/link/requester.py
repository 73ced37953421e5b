"""Asking the broker and waiting for its answer, without a JVM.

Requests are appended to the bundle's ``requests`` table in one commit, so that a round sees all of them or none; their
replies are rows of the commit of ``cursor_ledger`` that decided them. A request says until when it holds, a little less
long than its answer is waited for, so one that failed with Timeout is not carried out later.
"""

import time
import uuid

from pulsar_spark.errors import InvalidConfiguration, NotARoot
from pulsar_spark.link import interrupts
from pulsar_spark.link.inbox import Answers, Inbox, Reply
from pulsar_spark.link.request_writer import RequestWriter
from pulsar_spark.link.requests import RequestMaker, no_answer, valid_for
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.tables import read_definition
from pulsar_spark.table_specs import CURSOR_LEDGER

POLL_SECONDS = 0.01


class Requester:
    """One asker of one bundle, for who asks now and then; not to be shared between threads. Who also receives has a
    :class:`~pulsar_spark.link.channel.Channel`, which writes and hears in the same way, on a thread of its own."""

    def __init__(self, layout: Layout, *, timeout_seconds: float = 30):
        self.layout = layout
        self.timeout_seconds = timeout_seconds
        self._maker = RequestMaker(f"admin-{uuid.uuid4().hex}")
        self._path = layout.broker_table(CURSOR_LEDGER.name)

    def ask(self, requests: list[dict]) -> list[Reply]:
        """The replies to *requests*, in their order; the first refusal is raised under its own name, :class:`Timeout`
        when no broker answers."""
        replies = self.replies(requests)
        for reply in replies:
            if reply.error is not None:
                raise reply.error
        return replies

    def replies(self, requests: list[dict]) -> list[Reply]:
        """The same, with refusals as replies."""
        if not requests:
            return []
        for request in requests:
            _check_texts(request)
        log, inbox = TableLog(self._path), Inbox()
        seen = log.latest()
        rows = valid_for([self._maker.make(**request) for request in requests], self.timeout_seconds)
        answers = Answers(rows)
        inbox.waiting = answers.awaited
        try:
            writer = RequestWriter(self.layout, is_ending=lambda: True)
        except FileNotFoundError:
            raise NotARoot(
                f"root {str(self.layout.root)!r} has no broker tables: start a broker on it or create a topic first"
            ) from None
        writer.write(rows)
        sleep, deadline = interrupts.sleeper(), time.monotonic() + self.timeout_seconds
        while inbox.waiting:
            if log.has(seen + 1):
                seen += 1
                inbox.hear(self._path, log.commit(seen))
            elif time.monotonic() > deadline:
                raise no_answer(self.layout.root, self.timeout_seconds)
            else:
                sleep(POLL_SECONDS)
        return answers.in_order()


def _check_texts(request: dict) -> None:
    """:class:`InvalidConfiguration` where what is to be a text of a request is none that can be stored."""
    texts = {
        "topic": request.get("topic"),
        "subscription": request.get("subscription"),
        **(request.get("properties") or {}),
    }
    for name, value in texts.items():
        is_text = value is None or isinstance(value, str)
        if not is_text or value is not None and value.encode("utf-8", "replace").decode() != value:
            raise InvalidConfiguration(f"{request['kind']}: {name} {value!r} is no text: give one that UTF-8 can hold")


def require_root(layout: Layout) -> None:
    """Raise :class:`NotARoot` unless the root's broker tables are there and of a layout this release reads."""
    try:
        read_definition(layout.broker_table(CURSOR_LEDGER.name))
    except FileNotFoundError:
        raise NotARoot(
            f"root {str(layout.root)!r} is not a root of pulsar_spark: create a topic or start a broker there, or "
            "give another root"
        ) from None
    except OSError as error:
        raise NotARoot(f"root {str(layout.root)!r} cannot be read: {error}; give another root") from error
