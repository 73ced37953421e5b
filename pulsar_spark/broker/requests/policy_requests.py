"""Set and remove policies of topics, namespaces and the root, and let cursors follow them."""

from collections.abc import Iterable

from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.delays.deliver_times import honours_delays
from pulsar_spark.broker.delays.waiting import stop_waiting, wait_again
from pulsar_spark.broker.requests.request import Request
from pulsar_spark.broker.requests.request_handler import RequestHandler
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.protocol.policies.policies import (
    BROKER,
    DEDUPLICATION,
    DELAYED_DELIVERY_ACTIVE,
    UNACKED_LIMITS,
    check_policy,
    deduplication_marks,
    policy_owners,
)
from pulsar_spark.protocol.topics.topic_name import parse_namespace


class PolicyRequests(RequestHandler):
    def set(self, request: Request) -> None:
        name, value = request.properties.get("name", ""), request.properties.get("value")
        check_policy(name, value)
        owner = request.topic or request.properties.get("namespace")
        if not owner:
            raise InvalidConfiguration(f"policy {name}: give a topic or a namespace")
        if request.topic:
            self.bundle.topic(request.topic)
        elif owner != BROKER:
            parse_namespace(owner)
        before = self._connected(owner) if name == DELAYED_DELIVERY_ACTIVE else []
        if name == DEDUPLICATION:
            for mark, text in deduplication_marks(self.bundle.policies, owner, value, self.draft.number).items():
                if self.bundle.policies.get((owner, mark)) != text:
                    self.draft.facts.append(self.bundle.set_policy(owner, mark, text))
        self.draft.facts.append(self.bundle.set_policy(owner, name, value))
        self._switch_delays(before)
        if name in UNACKED_LIMITS:
            for cursor in self.bundle.cursors.values():
                if cursor.consumers and owner in policy_owners(cursor.topic):
                    self.draft.changes_of(cursor).has_new_limits = True

    def _connected(self, owner: str) -> list[tuple[Cursor, bool]]:
        """Connected cursors of types with deliver times, and whether these count."""
        return [
            (cursor, honours_delays(self.bundle, cursor))
            for cursor in self.bundle.cursors.values()
            if cursor.consumers and not cursor.is_single_active and owner in policy_owners(cursor.topic)
        ]

    def _switch_delays(self, before: Iterable[tuple[Cursor, bool]]) -> None:
        """Begin or end waiting for deliver times where that changed."""
        for cursor, did in before:
            does = honours_delays(self.bundle, cursor)
            if does and not did:
                wait_again(self.bundle, self.draft.changes_of(cursor), self.draft.wall)
            elif did and not does:
                stop_waiting(self.draft.changes_of(cursor))
