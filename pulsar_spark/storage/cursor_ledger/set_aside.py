"""Rows of kind ``set_aside`` in ``cursor_ledger``: requests, topics and subscriptions that the broker failed on.

The latest row of an id counts. A request without a row number means the versions up to ``last``.
"""

from datetime import datetime
from typing import NamedTuple

REQUEST, TOPIC, SUBSCRIPTION = "request", "topic", "subscription"


class SetAside(NamedTuple):
    """``first`` is a request's row in its commit, ``error`` the exception's type, ``text`` its message."""

    status: str
    error: str
    text: str
    round_time: datetime | int | None = None
    request_id: str | None = None
    requests_version: int | None = None
    first: int | None = None
    last: int | None = None
    topic: str | None = None
    topic_id: str | None = None
    partition: int | None = None
    subscription: str | None = None

    @property
    def id(self) -> str:
        """The name that people use.

        >>> one = SetAside("request", "", "", requests_version=7, first=2)
        >>> one.id, one._replace(first=None, last=9).id
        ('request-7-2', 'request-7..9')
        >>> SetAside("subscription", "", "", topic="persistent://public/default/t", partition=-1, subscription="s").id
        'subscription-persistent://public/default/t/-1/s'
        """
        if self.status == TOPIC:
            return f"{TOPIC}-{self.topic}"
        if self.status == SUBSCRIPTION:
            return f"{SUBSCRIPTION}-{self.topic}/{self.partition}/{self.subscription}"
        if self.requests_version is None:
            return f"{REQUEST}-{self.request_id}"
        if self.first is not None:
            return f"{REQUEST}-{self.requests_version}-{self.first}"
        return f"{REQUEST}-{self.requests_version}" + (
            f"..{self.last}" if self.last not in (None, self.requests_version) else ""
        )
