"""Topic patterns: a regular expression for topics of one namespace.

Rule: ``TopicsPattern`` and ``NamespaceService.getListOfTopics`` of Apache Pulsar. Tenant and namespace are literal; the
pattern must match the whole name without ``persistent://``."""

import re
from collections.abc import Iterable

from pulsar_spark.errors import InvalidTopicName
from pulsar_spark.protocol.topics.topic_name import DEFAULT_NAMESPACE, SCHEME, TopicName, parse_namespace


class TopicPattern:
    """One pattern.

    >>> pattern = TopicPattern(re.compile("acme/billing/order-.*"))
    >>> pattern.namespace, str(pattern)
    (('acme', 'billing'), 'persistent://acme/billing/order-.*')
    """

    def __init__(self, pattern: re.Pattern):
        scheme, found, rest = pattern.pattern.partition("://")
        if found and scheme != SCHEME:
            raise InvalidTopicName(f"topic pattern {pattern.pattern!r}: only persistent:// topics exist here")
        text = rest if found else pattern.pattern
        parts = text.split("/", 2)
        if not found and len(parts) == 1:
            parts = [*DEFAULT_NAMESPACE, text]
        if len(parts) != 3:
            raise InvalidTopicName(
                f"topic pattern {pattern.pattern!r} does not name its namespace: write it as tenant/namespace/pattern"
            )
        if not parts[2].strip():
            raise InvalidTopicName(
                f"topic pattern {pattern.pattern!r} has no topic name: give one such as 'orders-.*', or '.*' "
                "for all topics of a namespace"
            )
        self.namespace = parse_namespace("/".join(parts[:2]))
        self._written = "/".join(parts)
        try:
            self._expression = re.compile(self._written, pattern.flags)
        except re.error as wrong:  # flags belong at the beginning, where the namespace is
            raise InvalidTopicName(
                f"topic pattern {pattern.pattern!r} is not valid after its namespace ({wrong}): "
                "give flags to re.compile"
            ) from wrong

    def fitting(self, names: Iterable[TopicName]) -> list[TopicName]:
        return [
            name
            for name in names
            if self._expression.fullmatch(f"{name.tenant}/{name.namespace}/{name.local_name}") is not None
        ]

    def __str__(self) -> str:
        return f"{SCHEME}://{self._written}"
