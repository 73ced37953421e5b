"""Execute requests in order. Acknowledgements and returns are noted for the plan. A refused request changes nothing; it
is answered, or logged if no client waits."""

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from operator import attrgetter

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.cursors.subscribe_requests import SubscribeRequests
from pulsar_spark.broker.letters.letter_requests import LetterRequests
from pulsar_spark.broker.letters.waiting_letter_requests import WaitingLetterRequests
from pulsar_spark.broker.requests.acknowledgements import NOTED
from pulsar_spark.broker.requests.drafts import RoundDraft
from pulsar_spark.broker.requests.moves import Moves
from pulsar_spark.broker.requests.policy_requests import PolicyRequests
from pulsar_spark.broker.requests.request import Request, validated
from pulsar_spark.broker.requests.request_handler import RequestHandler
from pulsar_spark.broker.requests.set_aside import SetAsideRequests
from pulsar_spark.broker.round.isolation import isolated, of_request
from pulsar_spark.errors import InvalidConfiguration, InvalidRequest, ServiceUnitNotReady, UnknownError, shown
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
        self.members, self.moves = SubscribeRequests(bundle, draft), Moves(bundle, draft)
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
            "create_subscription": self.members.create_subscription,
            "policy": PolicyRequests(bundle, draft).set,
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
