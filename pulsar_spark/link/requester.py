"""Sends requests to the broker and waits for the replies.

A bundle's requests go into one commit, so that a round sees all or none. They expire just before the sender stops
waiting.
"""

import time
import uuid
from collections.abc import Callable
from functools import partial

from pulsar_spark.errors import InvalidConfiguration, NotARoot, ServiceUnitNotReady
from pulsar_spark.link import interrupts
from pulsar_spark.link.inbox import Answers, Inbox, Reply, read_rows
from pulsar_spark.link.request_writer import RequestWriter
from pulsar_spark.link.requests import RequestMaker, no_answer, valid_for
from pulsar_spark.storage.delta.definitions import read_definition
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.bundles import LOOK_AGAIN_SECONDS, layout_of, layouts_of, look_again
from pulsar_spark.table_specs import CURSOR_LEDGER

POLL_SECONDS = 0.01


class Requester:
    """Occasional requests from one thread: to the bundle of their topic, without a topic to all."""

    def __init__(self, layout: Layout, *, timeout_seconds: float = 30):
        self.layout = layout
        self.timeout_seconds = timeout_seconds
        self._maker = RequestMaker(f"admin-{uuid.uuid4().hex}")

    def ask(self, requests: list[dict]) -> list[Reply]:
        """The replies to *requests*, in order. Raises the first refusal, or :class:`Timeout` without a reply."""
        replies = self.replies(requests)
        for reply in replies:
            if reply.error is not None:
                raise reply.error
        return replies

    def replies(self, requests: list[dict]) -> list[Reply]:
        """The replies to *requests*, in order, with refusals as replies."""
        for request in requests:
            _check_texts(request)
        deadline, sleep = time.monotonic() + self.timeout_seconds, interrupts.sleeper()
        found: dict[int, Reply] = {}
        left = list(range(len(requests)))
        while left:
            answers: dict[int, list[Reply]] = {place: [] for place in left}
            for layout, places in self._by_bundle(requests, left):
                replies = self._replies_of(layout, [requests[place] for place in places], deadline, sleep)
                for place, reply in zip(places, replies, strict=True):
                    answers[place].append(reply)
            for place, replies in answers.items():
                found[place] = _together(requests[place], replies)
            is_late = time.monotonic() + LOOK_AGAIN_SECONDS > deadline
            left = [place for place in left if isinstance(found[place].error, ServiceUnitNotReady) and not is_late]
            if left:
                look_again(self.layout)
                sleep(LOOK_AGAIN_SECONDS)
        return [found[place] for place in range(len(requests))]

    def _by_bundle(self, requests: list[dict], places: list[int]) -> list[tuple[Layout, list[int]]]:
        groups: dict[str, tuple[Layout, list[int]]] = {}
        for place in places:
            topic = requests[place].get("topic")
            for layout in [layout_of(self.layout, topic)] if topic else layouts_of(self.layout):
                groups.setdefault(layout.bundle, (layout, []))[1].append(place)
        return list(groups.values())

    def _replies_of(
        self, layout: Layout, requests: list[dict], deadline: float, sleep: Callable[[float], None]
    ) -> list[Reply]:
        path, timeout = layout.broker_table(CURSOR_LEDGER.name), max(0.0, deadline - time.monotonic())
        log, inbox = TableLog(path), Inbox()
        seen = log.latest()
        rows = valid_for([self._maker.make(**request) for request in requests], timeout)
        answers = Answers(rows)
        inbox.waiting = answers.awaited
        try:
            writer = RequestWriter(layout, is_ending=None)
        except FileNotFoundError:
            raise NotARoot(
                f"root {str(layout.root)!r} has no broker tables: start a broker on it or create a topic first"
            ) from None
        writer.write(rows)
        while inbox.waiting:
            if log.has(seen + 1):
                seen += 1
                inbox.receive(log.commit(seen), partial(read_rows, path))
            elif time.monotonic() > deadline:
                raise no_answer(layout.root, self.timeout_seconds)
            else:
                sleep(POLL_SECONDS)
        return answers.in_order()


def _together(request: dict, replies: list[Reply]) -> Reply:
    """Combine the replies of several bundles: counts are summed; a policy must be set in all."""
    if len(replies) == 1:
        return replies[0]
    refused = [reply for reply in replies if reply.error is not None]
    if refused and (request["kind"] == "policy" or len(refused) == len(replies)):
        return refused[0]
    texts = [reply.text for reply in replies if reply.error is None]
    counts = [int(text) for text in texts if text is not None and text.isdecimal()]
    return Reply(None, str(sum(counts)) if len(counts) == len(texts) else texts[0])


def _check_texts(request: dict) -> None:
    texts = {
        "topic": request.get("topic"),
        "subscription": request.get("subscription"),
        **(request.get("properties") or {}),
    }
    for name, value in texts.items():
        is_text = value is None or isinstance(value, str)
        if not is_text or value is not None and value.encode("utf-8", "replace").decode() != value:
            raise InvalidConfiguration(
                f"{request['kind']}: {name} {value!r} is not a text that can be encoded as UTF-8"
            )


def require_root(layout: Layout) -> None:
    """Raise :class:`NotARoot` unless the root has broker tables of a layout that this release reads."""
    try:
        read_definition(layout.broker_table(CURSOR_LEDGER.name))
    except FileNotFoundError:
        raise NotARoot(
            f"root {str(layout.root)!r} is not a root of pulsar_spark: create a topic or start a broker there, or "
            "give another root"
        ) from None
    except OSError as error:
        raise NotARoot(f"root {str(layout.root)!r} cannot be read: {error}; give another root") from error
