"""Requests about what was set aside: retry or drop it. What fails again is set aside again. Only requests can be
dropped, and only the latest :data:`MOST_REQUESTS` are kept."""

import logging
from collections.abc import Callable, Mapping

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.committing.facts import set_aside_row
from pulsar_spark.broker.requests.drafts import RoundDraft
from pulsar_spark.broker.requests.reading import read_set_aside
from pulsar_spark.broker.requests.request import Request
from pulsar_spark.broker.requests.request_handler import RequestHandler
from pulsar_spark.broker.round.isolation import of_request
from pulsar_spark.errors import InvalidConfiguration, NotAllowedError, UnknownError, shown
from pulsar_spark.protocol.request_properties import is_true
from pulsar_spark.storage.cursor_ledger.set_aside import REQUEST, SUBSCRIPTION, TOPIC, SetAside

MOST_REQUESTS = 1_000
log = logging.getLogger(__name__)


def set_aside(bundle: Bundle, draft: RoundDraft, broken: Mapping[str, SetAside]) -> None:
    """Set aside what is *broken*; forget the oldest requests beyond the limit."""
    bundle.set_aside |= broken
    draft.facts += [set_aside_row(entry) for entry in broken.values()]
    requests = [entry for entry in bundle.set_aside.values() if entry.status == REQUEST]
    beyond = requests[: max(0, len(requests) - MOST_REQUESTS)] if broken else []
    for entry in beyond:
        del bundle.set_aside[entry.id]
        draft.facts.append(set_aside_row(entry, is_removed=True))
    if beyond:
        log.warning(
            "the %d oldest requests that were set aside are dropped, %s first: at most %d are kept",
            len(beyond),
            beyond[0].id,
            MOST_REQUESTS,
        )


class SetAsideRequests(RequestHandler):
    """*broken* are entries that failed in this round; *execute* executes a request."""

    def __init__(
        self, bundle: Bundle, draft: RoundDraft, broken: Mapping[str, SetAside], execute: Callable[[Request], bool]
    ):
        super().__init__(bundle, draft)
        self._broken, self._execute = broken, execute

    def retry(self, request: Request) -> str:
        entries = self._entries(request)
        failed = [entry for entry in entries if not self._retry(entry)]
        if failed:
            raise UnknownError(
                f"{len(entries) - len(failed)} of {len(entries)} tried again; failed again: "
                + "; ".join(
                    f"{entry.id} ({entry.error}: {entry.text})"
                    for entry in (self._broken.get(entry.id, entry) for entry in failed)
                )[:2000]
            )
        return str(len(entries))

    def drop(self, request: Request) -> str:
        entries = self._entries(request)
        if is_true(request.properties, "all"):
            entries = [entry for entry in entries if entry.status == REQUEST]
        for entry in entries:
            if entry.status != REQUEST:
                raise NotAllowedError(f"{entry.id!r} is not a request: retry it, or delete the {entry.status}")
        for entry in entries:
            self.forget(entry)
        return str(len(entries))

    def _entries(self, request: Request) -> list[SetAside]:
        if is_true(request.properties, "all"):
            return list(self.bundle.set_aside.values())
        wanted = request.properties.get("id", "")
        if wanted not in self.bundle.set_aside:
            raise InvalidConfiguration(f"nothing is set aside as {shown(wanted)}: see 'pulsar-spark set-aside list'")
        return [self.bundle.set_aside[wanted]]

    def _retry(self, entry: SetAside) -> bool:
        if entry.id in self._broken:
            return False
        if entry.status == REQUEST:
            return self._retry_request(entry)
        self.forget(entry)
        for state in self.bundle.topics.values():
            if entry.status == TOPIC and str(state.topic.name) == entry.topic:
                state.error = None
        for cursor in self.bundle.cursors.values():
            if cursor.topic == entry.topic and (
                entry.status == TOPIC
                or (entry.status == SUBSCRIPTION and cursor.key[1:] == (entry.partition, entry.subscription))
            ):
                self.draft.changes_of(cursor).left |= cursor.unacked.keys() - cursor.consumers.keys()
        return True

    def _retry_request(self, entry: SetAside) -> bool:
        if entry.requests_version is None:
            raise NotAllowedError(f"the request of {entry.id!r} cannot be located: drop it")
        batch = read_set_aside(self.bundle.layout.broker_table("requests"), entry)
        if batch.unreadable or not batch.requests:
            return False
        self.forget(entry)
        sound = [request for request in batch.requests if of_request(request).id not in self._broken]
        for request in sound:
            self._execute(request)
        return len(sound) == len(batch.requests)
