"""Topic names: ``persistent://tenant/namespace/topic``, with Pulsar's short forms and the ``-partition-N`` suffix.

Rule: TopicName and NamedEntity of Apache Pulsar. A short name ``topic`` is ``persistent://public/default/topic``;
``tenant/namespace/topic`` gets the scheme. Left out: non-persistent topics (nothing here lives outside a table) and the
old four-part names with a cluster. Stricter than Pulsar: a local name keeps to NamedEntity's letters too, so that no
name can leave the root, hide or be mistaken for another.
"""

import re
from typing import NamedTuple

from pulsar_spark.errors import InvalidTopicName

MAX_NAME_LENGTH = 200
SCHEME = "persistent"
DEFAULT_NAMESPACE = ("public", "default")
_NAMED_ENTITY = re.compile(r"[-=:.\w]+")
_PARTITION = re.compile(r"(?P<base>.+)-partition-(?P<index>0|[1-9][0-9]{0,8})")


class TopicName(NamedTuple):
    """A parsed name; ``str()`` gives the full form back."""

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
    """*name* if it is a valid NamedEntity of at most 200 characters; else :class:`InvalidTopicName`."""
    if not isinstance(name, str) or not _NAMED_ENTITY.fullmatch(name) or name in (".", ".."):
        raise InvalidTopicName(f"{what} {name!r} is not a valid name: use letters, digits and - = : . _")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidTopicName(
            f"{what} {name[:20]!r}... has {len(name)} characters, {len(name) - MAX_NAME_LENGTH} too many: "
            f"use at most {MAX_NAME_LENGTH}"
        )
    return name


def parse_topic_name(name: str) -> TopicName:
    """The topic *name* stands for, in any of Pulsar's spellings; :class:`InvalidTopicName` otherwise.

    >>> str(parse_topic_name("acme/billing/orders"))
    'persistent://acme/billing/orders'
    """
    if not isinstance(name, str):
        raise InvalidTopicName(
            f"topic {name!r} is not a text: give a name such as 'persistent://public/default/orders'"
        )
    scheme, found, rest = name.partition("://")
    if found and scheme != SCHEME:
        raise InvalidTopicName(f"topic {name!r}: only persistent:// topics exist here, a topic is a table")
    parts = (rest if found else name).split("/")
    if not found and len(parts) == 1:
        parts = [*DEFAULT_NAMESPACE, *parts]
    if len(parts) != 3:
        raise InvalidTopicName(
            f"topic {name!r} is neither 'topic' nor 'tenant/namespace/topic' nor 'persistent://tenant/namespace/topic'"
        )
    found = TopicName(check_name("tenant", parts[0]), check_name("namespace", parts[1]), parts[2])
    check_name("topic", found.partitioned_topic.local_name)  # the longest name there is has partitions, too
    return found


def parse_namespace(name: str) -> tuple[str, str]:
    """``tenant/namespace`` as a pair; :class:`InvalidTopicName` otherwise."""
    parts = name.split("/") if isinstance(name, str) else []
    if len(parts) != 2:
        raise InvalidTopicName(f"namespace {name!r} is not of the form 'tenant/namespace'")
    return check_name("tenant", parts[0]), check_name("namespace", parts[1])
