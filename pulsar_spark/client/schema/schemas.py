"""Schemas of topics for producers, consumers and readers.

A topic without schema and messages keeps a consumer's schema (Pulsar's ``addSchemaIfIdleOrCheckCompatible``). Ours: one
with messages accepts any consumer.
"""

import time
from collections.abc import Mapping

from pulsar_spark.errors import IncompatibleSchema, InvalidTopicName, TopicNotFound
from pulsar_spark.protocol.redelivery.letters import REAL_TOPIC
from pulsar_spark.protocol.schemas.schema_compatibility import (
    consumer_refusal,
    invalid,
    refusal,
    strategy_of,
    takes_new_schemas,
    wants_schemas,
)
from pulsar_spark.protocol.schemas.schema_info import SchemaInfo
from pulsar_spark.schema import Schema
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.bundles import layout_of
from pulsar_spark.storage.topics.schemas import SchemaTable
from pulsar_spark.storage.topics.topics import Topic, resolve_topic

_WHAT_TO_DO = (
    "change it so that it fits, or allow it with the policy schema_compatibility_strategy of the topic or its namespace"
)
_KNOWN_SECONDS = 1.0


class TopicSchemas:
    """The schemas of one root's topics, for one client; thread-safe."""

    def __init__(self, layout: Layout):
        self._layout = layout
        self._table = SchemaTable(layout)
        self._written: dict[tuple[str, int], SchemaInfo] = {}
        """By topic id and version."""
        self._ids: dict[str, tuple[str, float]] = {}
        """Topic ids by name, and until when they are valid."""

    def version_for_producer(self, topic: Topic, schema: Schema) -> int | None:
        """The topic's version of a producer's *schema*, added if needed; None for one that is not kept.
        :class:`IncompatibleSchema` if it does not fit."""
        info = schema.schema_info()
        if not info.is_kept:
            name = str(topic.name)
            if self._table.kept(topic.topic_id) and wants_schemas(self._policies(name), name):
                raise IncompatibleSchema(
                    f"topic {name!r} has a schema and accepts no producers without one: create the producer with "
                    "its schema, or set the policy schema_validation_enforced to 0"
                )
            return None
        return self._keep(topic, info)

    def upload(self, topic: Topic, info: SchemaInfo, properties: Mapping[str, str]) -> int:
        """The version of an administrator's schema, added in any case; :class:`IncompatibleSchema` if it does not
        fit."""
        return self._keep(topic, info, properties, is_upload=True)

    def check_consumer(self, topic: Topic, schema: Schema) -> None:
        """:class:`IncompatibleSchema` if a consumer's *schema* does not fit the topic."""
        info = schema.schema_info()
        if not info.is_kept:
            return
        _check_valid(topic, info)
        kept = [each.info for each in self._table.kept(topic.topic_id)]
        if kept:
            why = consumer_refusal(kept, info, strategy_of(self._policies(str(topic.name)), str(topic.name)))
            if why is not None:
                raise IncompatibleSchema(
                    f"a consumer's schema does not fit topic {str(topic.name)!r}: {why}: {_WHAT_TO_DO}"
                )
        elif TableLog(topic.path).latest() <= 0:
            self._keep(topic, info)

    def written_with(self, message) -> SchemaInfo | None:
        """The schema that a message, or the original of a letter, was written with; or None."""
        version = message.int_schema_version()
        if version < 0:
            return None
        if message.sequence_id() < 0 and (found := self._version_at_origin(message, version)):
            return found
        topic_id = message._topic_id or self._topic_id(message.topic_name())
        return self._version_of(topic_id, version) or self._version_at_origin(message, version)

    def _version_at_origin(self, message, version: int) -> SchemaInfo | None:
        origin = message.properties().get(REAL_TOPIC)
        return self._version_of(self._topic_id(origin), version) if origin else None

    def _topic_id(self, topic_name: str) -> str | None:
        topic_id, until = self._ids.get(topic_name, (None, 0.0))
        if time.monotonic() < until:
            return topic_id
        try:
            topic_id = resolve_topic(self._layout, topic_name)[0].topic_id
        except (TopicNotFound, InvalidTopicName):
            return None
        self._ids[topic_name] = topic_id, time.monotonic() + _KNOWN_SECONDS
        return topic_id

    def _version_of(self, topic_id: str | None, version: int) -> SchemaInfo | None:
        if topic_id is None:
            return None
        if (topic_id, version) not in self._written:
            versions = self._table.written(topic_id)
            if version not in versions:
                return None  # not cached: it may be added later
            self._written[topic_id, version] = versions[version]
        return self._written[topic_id, version]

    def _keep(
        self, topic: Topic, info: SchemaInfo, properties: Mapping[str, str] | None = None, *, is_upload: bool = False
    ) -> int:
        _check_valid(topic, info)

        def check(kept: list[SchemaInfo]) -> None:
            policies, name = self._policies(str(topic.name)), str(topic.name)
            if not is_upload and not takes_new_schemas(policies, name):
                raise IncompatibleSchema(
                    f"topic {name!r} does not have this schema, and does not accept new ones: upload it with "
                    "'pulsar-spark schemas upload', or set the policy is_allow_auto_update_schema to 1"
                )
            why = refusal(kept, info, strategy_of(policies, name))
            if why is not None:
                raise IncompatibleSchema(f"the schema does not fit topic {name!r}: {why}: {_WHAT_TO_DO}")

        return self._table.keep(topic, info, check, properties)

    def _policies(self, topic: str) -> dict[tuple[str, str], str]:
        return read_latest(layout_of(self._layout, topic), "policy").policies


def _check_valid(topic: Topic, info: SchemaInfo) -> None:
    why = invalid(info)
    if why is not None:
        raise IncompatibleSchema(f"topic {str(topic.name)!r} cannot keep the schema {info.name()!r}: {why}")
