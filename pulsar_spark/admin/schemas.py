"""Schemas of topics, with the verbs of ``pulsar-admin``, without a broker.

An upload is checked like a producer's schema, whatever ``is_allow_auto_update_schema`` says.
"""

import json
from collections.abc import Mapping

from pulsar_spark.client.arguments import check_kept_properties, check_type
from pulsar_spark.client.schema.schemas import TopicSchemas
from pulsar_spark.errors import InvalidConfiguration, SchemaNotFound, shown
from pulsar_spark.protocol.delays.instants import to_millis
from pulsar_spark.protocol.schemas.schema_info import SchemaInfo, SchemaType
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.schemas import KeptSchema, SchemaTable
from pulsar_spark.storage.topics.topics import resolve_topic

_KEPT = ", ".join(kind.name for kind in SchemaType if kind.value > 0)


class Schemas:
    """Part of ``Admin`` for schemas."""

    layout: Layout

    def get_schema_info(self, topic: str, version: int | None = None) -> dict:
        """``version``, ``type``, ``name``, ``schema`` (the definition), ``properties`` and ``timestamp`` (ms) of the
        latest *version*, or of a given one, which may have been deleted. :class:`SchemaNotFound` if it does not exist.
        """
        check_type(int | None, version, "version")
        found, _ = resolve_topic(self.layout, topic)
        table = SchemaTable(self.layout)
        if version is None:
            kept = table.kept(found.topic_id)[-1:]
        else:
            kept = [each for each in table.versions(found.topic_id) if each.version == version and not each.is_removed]
        if not kept:
            which = "no schema" if version is None else f"no version {version} of a schema"
            raise SchemaNotFound(
                f"topic {str(found.name)!r} keeps {which}: see 'pulsar-spark schemas get --all-version', or upload one"
            )
        return _described(kept[0])

    def get_all_schemas(self, topic: str) -> list[dict]:
        """All versions of the topic's schema since the latest deletion, oldest first, each as in
        :meth:`get_schema_info`."""
        found, _ = resolve_topic(self.layout, topic)
        return [_described(each) for each in SchemaTable(self.layout).kept(found.topic_id)]

    def create_schema(
        self,
        topic: str,
        schema_type: str,
        schema: str | Mapping = "",
        properties: dict[str, str] | None = None,
        name: str | None = None,
    ) -> int:
        """Add a schema to a topic and return its version.

        *schema_type* is its type and *schema* its definition, as a text or an object for JSON, with *properties* and a
        *name* (by default that of the type). :class:`IncompatibleSchema` if it does not fit the others,
        :class:`InvalidConfiguration` for an unknown type.
        """
        check_type(str | Mapping | list, schema, "schema")
        check_kept_properties(properties)
        kind = SchemaType.__members__.get(str(schema_type).upper())
        if kind is None or kind.value <= 0:
            raise InvalidConfiguration(f"schema type {shown(schema_type)}: a topic keeps one of {_KEPT}")
        found, _ = resolve_topic(self.layout, topic)
        text = schema if isinstance(schema, str) else json.dumps(schema, indent=True)
        info = SchemaInfo(kind, kind.name if name is None else name, text)
        return TopicSchemas(self.layout).upload(found, info, properties or {})

    def delete_schema(self, topic: str) -> int | None:
        """Delete the schemas of a topic, so that any new one fits. Returns the version of the deletion, None without a
        schema."""
        found, _ = resolve_topic(self.layout, topic)
        return SchemaTable(self.layout).remove(found)


def _described(kept: KeptSchema) -> dict:
    return {
        "version": kept.version,
        "type": kept.info.schema_type().name,
        "name": kept.info.name(),
        "schema": kept.info.schema(),
        "properties": kept.properties,
        "timestamp": to_millis(kept.create_time),
    }
