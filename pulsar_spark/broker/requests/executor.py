"""Execute requests in order. Acknowledgements and returns are noted for the plan. A refused request changes nothing; it
is answered, or logged if no client waits."""

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from operator import attrgetter

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.cursors.members import Members
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.delays.deliver_times import honours_delays
from pulsar_spark.broker.delays.waiting import stop_waiting, wait_again
from pulsar_spark.broker.letters.letter_requests import LetterRequests
from pulsar_spark.broker.letters.waiting_letter_requests import WaitingLetterRequests
from pulsar_spark.broker.requests.acknowledgements import NOTED
from pulsar_spark.broker.requests.drafts import RoundDraft
from pulsar_spark.broker.requests.moves import Moves
from pulsar_spark.broker.requests.request import Request, validated
from pulsar_spark.broker.requests.request_handler import RequestHandler
from pulsar_spark.broker.requests.set_aside import SetAsideRequests
from pulsar_spark.broker.round.isolation import isolated, of_request
from pulsar_spark.errors import (
    InvalidConfiguration,
    InvalidRequest,
    NotAllowedError,
    ServiceUnitNotReady,
    UnknownError,
    shown,
)
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
from pulsar_spark.storage.cursor_ledger.set_aside import SetAside

ANSWERED = {
    "subscribe",
    "seek",
    "unsubscribe",
    "create_subscription",
    "skip",
    "clear_backlog",
    "expire",
    "unload",
    "policy",
    "reschedule",
    "retry_set_aside",
    "drop_set_aside",
    "retry_waiting_letters",
    "drop_waiting_letters",
    "rebuild_delay_index",
}


_ALIKE = attrgetter("kind", "client_id", "consumer_id", "topic", "partition", "subscription")
"""Attributes that are equal in consecutive requests when one consumer requests one thing for many entries."""

SENT_ON = {"ack", "cumulative_ack", "reconsume_later"}
"""Kinds sent on to another bundle's broker if their topic moved there meanwhile; executing them twice is harmless. The
receipt is sent once the request is in that bundle's table, where it cannot get lost."""

MANY = 100
"""Consecutive similar requests from which they are noted together, which is quicker."""


class RequestExecutor(RequestHandler):
    """Executes requests on a bundle and a draft; *broken* is set aside."""

    def __init__(self, bundle: Bundle, draft: RoundDraft, broken: Mapping[str, SetAside]):
        super().__init__(bundle, draft)
        self._broken = broken
        self.sent_on: list[Request] = []
        """Requests for other bundles (see other_bundles)."""
        self.members, self.moves = Members(bundle, draft), Moves(bundle, draft)
        self.acknowledgements = acks = LetterRequests(bundle, draft)
        aside = SetAsideRequests(bundle, draft, broken, self.execute)
        waiting = WaitingLetterRequests(bundle, draft)
        self._handlers: dict[str, Callable[[Request], str | None]] = {
            "subscribe": self.members.subscribe,
            "flow": self.members.flow,
            "close": self.members.close,
            "unsubscribe": self.members.unsubscribe,
            "ack": acks.ack,
            "cumulative_ack": acks.cumulative_ack,
            "negative_ack": acks.negative_ack,
            "reschedule": acks.reschedule,
            "redeliver_all": acks.redeliver_all,
            "reconsume_later": acks.reconsume_later,
            "retry_waiting_letters": waiting.retry,
            "drop_waiting_letters": waiting.drop,
            "seek": self.moves.seek,
            "skip": self.moves.skip,
            "clear_backlog": self.moves.clear_backlog,
            "expire": self.moves.expire,
            "create_subscription": self._create_subscription,
            "policy": self._policy,
            "unload": self.members.unload,
            "rebuild_delay_index": lambda request: str(bundle.delay_index.rebuild()),
            "keep_alive": lambda request: None,
            "retry_set_aside": aside.retry,
            "drop_set_aside": aside.drop,
        }

    def execute_all(self, requests: Iterable[Request]) -> None:
        """Execute requests in order. The first of many similar ones is checked for all."""
        for (kind, *_), alike in groupby(requests, _ALIKE):
            first, *rest = alike
            others: Iterable[Request] = rest
            is_done = self.execute(first)
            if is_done and kind in NOTED and len(rest) >= MANY and not self._broken:
                others = self.acknowledgements.note(validated(first, now=self.draft.wall), rest)
            for request in others:
                self.execute(request)

    def execute(self, request: Request) -> bool:
        """Execute one request, and reply if needed; returns whether it was done."""
        unit = of_request(request)
        if self._broken and (entry := self._broken.get(unit.id)):
            self.draft.reply(
                request,
                error=UnknownError.__name__,
                text=f"set aside as {entry.id!r}, because the broker failed on it ({entry.error}: "
                f"{entry.text[:500]}): see 'pulsar-spark set-aside list'",
            )
            return False
        with isolated(unit):
            return self._execute(request)

    def _execute(self, request: Request) -> bool:
        wants_answer = (
            request.kind in ANSWERED
            or (request.kind == "close" and request.consumer_id)
            or request.properties.get("receipt") == "true"
        )
        try:
            if request.kind not in self._handlers:
                raise InvalidConfiguration(
                    f"request kind {shown(request.kind)} is unknown: use a client of this release"
                )
            request = validated(request, now=self.draft.wall)
            self.members.renew_lease(request.client_id)
            self.bundle.cursors.wake([self.key_of(request)])
            text = self._handlers[request.kind](request)
        except ServiceUnitNotReady as elsewhere:
            if request.kind in SENT_ON:
                self.sent_on.append(request)
                if wants_answer:
                    self.draft.reply(request)
            elif wants_answer:
                self.draft.reply(request, error=type(elsewhere).__name__, text=str(elsewhere))
            return False
        except (InvalidRequest, UnknownError) as refused:
            self.draft.refuse(request, refused, self.consumer_name_of(request))
            if wants_answer:
                self.draft.reply(request, error=type(refused).__name__, text=str(refused))
            return False
        if wants_answer:
            self.draft.reply(request, self.key_of(request), text=text)
        return True

    def _create_subscription(self, request: Request) -> None:
        if self.key_of(request) in self.bundle.cursors:
            raise NotAllowedError(f"subscription {request.subscription!r} of {request.topic} exists already")
        self.new_cursor(self.topic_of(request), request, request.properties.get("initial_position", "Latest"))

    def _policy(self, request: Request) -> None:
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
