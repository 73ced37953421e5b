"""What was set aside: rows of kind ``set_aside`` in ``cursor_ledger``, one a request, topic or subscription that the
broker could not work on.

A row names it, the cause, and where it lies; the latest row of an id counts, and ``is_removed`` takes it back. A
request is not copied: it stays in its commit of ``requests``, of which the row gives version and row number, and is
read again from there. Where a whole commit cannot be read, or versions of the log are gone, there is no row number and
``last`` is the last version meant.
"""

from datetime import datetime
from typing import NamedTuple

REQUEST, TOPIC, SUBSCRIPTION = "request", "topic", "subscription"


class SetAside(NamedTuple):
    """``first`` is the row of a request within its commit, ``error`` the kind of exception, ``text`` what it said."""

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
        """What people call it by.

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


def set_aside_of(row: dict) -> SetAside:
    """What a row of kind ``set_aside`` says."""
    return SetAside(**{name: row[name] for name in SetAside._fields})
