"""Requests taken in, in order.

Control requests change the bundle at once; what concerns ranges (acknowledgements, returns) is only noted, for the plan. A refused request changes nothing and
is answered with an error by name.
"""
from collections.abc import Callable

from pulsar_spark.broker.bundle import Bundle
from pulsar_spark.broker.desk import Desk
from pulsar_spark.broker.drafts import Request, RoundDraft
from pulsar_spark.broker.letter_requests import LetterRequests
from pulsar_spark.broker.members import Members
from pulsar_spark.broker.moves import Moves
from pulsar_spark.errors import InvalidConfiguration, InvalidRequest, NotAllowedError
from pulsar_spark.protocol.policies import UNACKED_LIMITS, check_policy
from pulsar_spark.protocol.topic_name import parse_topic_name

ANSWERED = {"subscribe", "seek", "unsubscribe", "create_subscription", "skip", "clear_backlog", "expire", "unload", "policy"}


class Intake(Desk):
    """Takes requests into a bundle and a round's draft."""

    def __init__(self, bundle: Bundle, draft: RoundDraft):
        super().__init__(bundle, draft)
        self.members, self.moves, entries = Members(bundle, draft), Moves(bundle, draft), LetterRequests(bundle, draft)
        self._handlers: dict[str, Callable[[Request], str | None]] = {
            "subscribe": self.members.subscribe, "flow": self.members.flow, "close": self.members.close, "unsubscribe": self.members.unsubscribe,
            "ack": entries.ack, "cumulative_ack": entries.cumulative_ack, "negative_ack": entries.negative_ack, "redeliver_all": entries.redeliver_all,
            "reconsume_later": entries.reconsume_later,
            "seek": self.moves.seek, "skip": self.moves.skip, "clear_backlog": self.moves.clear_backlog, "expire": self.moves.expire,
            "create_subscription": self._create_subscription, "policy": self._policy, "unload": self._unload, "keep_alive": lambda request: None}

    def take(self, request: Request) -> None:
        """Take one request in; refused or done, answer it if it wants an answer."""
        self.members.renew_lease(request.client_id)
        wants_answer = request.kind in ANSWERED or (request.kind == "close" and request.consumer_id) or request.properties.get("receipt") == "true"
        try:
            if request.kind not in self._handlers:
                raise InvalidConfiguration(f"request kind {request.kind!r} is not known: use a client of this release")
            text = self._handlers[request.kind](request)
        except InvalidRequest as refused:
            self.draft.refuse(request, refused, self.asker_of(request))
            if wants_answer:
                self.draft.reply(request, error=type(refused).__name__, text=str(refused))
            return
        if wants_answer:
            self.draft.reply(request, self.key_of(request), text=text)

    def _create_subscription(self, request: Request) -> None:
        if self.key_of(request) in self.bundle.cursors:
            raise NotAllowedError(f"subscription {request.subscription!r} of {request.topic} exists already")
        self.new_cursor(self.topic_of(request), request, request.properties.get("initial_position", "Latest"))

    def _policy(self, request: Request) -> None:
        """Set a policy; without a value, remove it, so that the namespace's or the default applies again."""
        name, value = request.properties.get("name"), request.properties.get("value")
        check_policy(name, value)
        owner = request.topic or request.properties.get("namespace")
        if not owner:
            raise InvalidConfiguration(f"policy {name}: name the topic or the namespace it is for")
        self.draft.facts.append(self.bundle.set_policy(owner, name, value))
        if name in UNACKED_LIMITS:
            for cursor in self.bundle.cursors.values():
                if cursor.consumers and owner in (cursor.topic, parse_topic_name(cursor.topic).namespace_name):
                    self.draft.of(cursor).has_new_limits = True

    def _unload(self, request: Request) -> None:
        """Nothing to do: what a broker holds in memory is what it committed."""
        self.topic_of(request)
