"""Names of topics (``persistent://tenant/namespace/topic``, short forms, ``-partition-N``), subscriptions and
consumers.

Rule: TopicName, NamedEntity and PersistentTopic of Apache Pulsar, without non-persistent topics and clusters. Limits of
length are ours."""

import re
from typing import NamedTuple

from pulsar_spark.errors import InvalidTopicName, shown

MAX_NAME_LENGTH = 200
SCHEME = "persistent"
DEFAULT_NAMESPACE = ("public", "default")
MAX_OWN_NAME_LENGTH = 1000
"""The most characters of a subscription's or consumer's name."""
RESERVED_SUBSCRIPTIONS = re.compile(r"pulsar\.repl.*|pulsar\.dedup", re.DOTALL)
"""Cursors of Pulsar's own brokers."""
_NAMED_ENTITY = re.compile(r"[-=:.\w]+", re.ASCII)
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_PARTITION = re.compile(r"(?P<base>.+)-partition-(?P<index>0|[1-9][0-9]{0,8})", re.DOTALL)


class TopicName(NamedTuple):
    """A parsed name; ``str()`` gives the full form."""

    tenant: str
    namespace: str
    local_name: str

    def __str__(self) -> str:
        return f"{SCHEME}://{self.tenant}/{self.namespace}/{self.local_name}"

    @property
    def partition_index(self) -> int:
        """N of a ``-partition-N`` suffix, -1 without one."""
        found = _PARTITION.fullmatch(self.local_name)
        return int(found["index"]) if found else -1

    @property
    def partitioned_topic(self) -> "TopicName":
        """The name without its ``-partition-N`` suffix."""
        found = _PARTITION.fullmatch(self.local_name)
        return self._replace(local_name=found["base"]) if found else self

    def partition(self, index: int) -> "TopicName":
        """The name of one partition; the topic itself for -1.

        >>> str(parse_topic_name("t").partition(3))
        'persistent://public/default/t-partition-3'
        """
        return self if index < 0 else self._replace(local_name=f"{self.local_name}-partition-{index}")


def check_name(what: str, name: str) -> str:
    """Return *name* if it is a valid NamedEntity of at most 200 characters; else :class:`InvalidTopicName`, which says
    *what* it is."""
    if not isinstance(name, str) or not _NAMED_ENTITY.fullmatch(name) or name in (".", ".."):
        raise InvalidTopicName(f"{what} {shown(name)} is not a valid name: use letters, digits and - = : . _")
    return _checked_length(what, name, MAX_NAME_LENGTH)


def check_own_name(what: str, name: str) -> str:
    """Return *name* if it is valid for a consumer; else :class:`InvalidTopicName`."""
    if not isinstance(name, str):
        raise InvalidTopicName(f"{what} {shown(name)} is not a valid name: give a text")
    _check_can_be_sent(what, name)
    return _checked_length(what, name, MAX_OWN_NAME_LENGTH)


def check_subscription(name: str, what: str = "subscription") -> str:
    """Return *name* if it is valid for a subscription; else :class:`InvalidTopicName`.

    >>> check_subscription("billing / 2024 %")
    'billing / 2024 %'
    """
    if not isinstance(name, str) or not name.strip():
        raise InvalidTopicName(f"{what} {shown(name)} is not a valid name: give a name that is not blank")
    check_own_name(what, name)
    if RESERVED_SUBSCRIPTIONS.fullmatch(name):
        raise InvalidTopicName(
            f"{what} {shown(name)} is not a valid name: 'pulsar.dedup' and names that begin with "
            "'pulsar.repl' are reserved for brokers"
        )
    return name


def _check_local_name(name: str) -> None:
    if not name.strip() or name in (".", ".."):
        raise InvalidTopicName(f"topic {shown(name)} is not a valid name: it must not be blank or consist of dots")
    _check_can_be_sent("topic", name)
    _checked_length("topic", name, MAX_NAME_LENGTH)


def _check_can_be_sent(what: str, name: str) -> None:
    if not name.isascii() and _SURROGATE.search(name):
        raise InvalidTopicName(
            f"{what} {shown(name)} is not a valid name: it contains half of a surrogate pair, which is not a character"
        )


def _checked_length(what: str, name: str, most: int) -> str:
    if len(name) > most:
        raise InvalidTopicName(
            f"{what} {name[:20]!r}... has {len(name)} characters, {len(name) - most} too many: use at most {most}"
        )
    return name


def parse_topic_name(name: str) -> TopicName:
    """Parse a topic name in any of Pulsar's spellings; :class:`InvalidTopicName` if it is invalid.

    >>> str(parse_topic_name("acme/billing/orders"))
    'persistent://acme/billing/orders'
    """
    if not isinstance(name, str):
        raise InvalidTopicName(
            f"topic {shown(name)} is not a text: give a name such as 'persistent://public/default/orders'"
        )
    scheme, has_scheme, rest = name.partition("://")
    if has_scheme and scheme != SCHEME:
        raise InvalidTopicName(f"topic {shown(name)}: only persistent:// topics exist here, a topic is a table")
    parts = (rest if has_scheme else name).split("/")
    if not has_scheme and len(parts) == 1:
        parts = [*DEFAULT_NAMESPACE, *parts]
    if len(parts) != 3:
        raise InvalidTopicName(
            f"topic {shown(name)} is neither 'topic' nor 'tenant/namespace/topic' nor "
            "'persistent://tenant/namespace/topic': remove further '/' and a cluster"
        )
    topic = TopicName(check_name("tenant", parts[0]), check_name("namespace", parts[1]), parts[2])
    _check_local_name(topic.partitioned_topic.local_name)  # the longest name can have partitions too
    return topic


def parse_namespace(name: str) -> tuple[str, str]:
    """``tenant/namespace`` as a pair; :class:`InvalidTopicName` if it is invalid."""
    parts = name.split("/") if isinstance(name, str) else []
    if len(parts) != 2:
        raise InvalidTopicName(f"namespace {shown(name)} is not of the form 'tenant/namespace'")
    return check_name("tenant", parts[0]), check_name("namespace", parts[1])
