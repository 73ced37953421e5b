"""Typed values: a read decodes payloads by the topic's latest schema, a write encodes its column ``value`` by it."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import types as T

from pulsar_spark.errors import IncompatibleSchema, InvalidMessage, TopicNotFound
from pulsar_spark.frames.source.followed_topic import topic_names
from pulsar_spark.frames.source.options import SourceOptions
from pulsar_spark.frames.values.value_decoding import VALUE, VALUE_ERROR, ValueDecoder
from pulsar_spark.frames.values.value_encoding import ValueEncoder, check_value
from pulsar_spark.frames.values.value_types import column_type, spark_type_of
from pulsar_spark.protocol.schemas.schema_info import SchemaInfo
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.schemas import SchemaTable
from pulsar_spark.storage.topics.topics import resolve_topic


def schema_of_topics(options: SourceOptions) -> SchemaInfo:
    """The latest schema of the topics; :class:`IncompatibleSchema` if one has none, or a different column type."""
    layout = Layout(options.root)
    table, found = SchemaTable(layout), dict[str, SchemaInfo]()
    for name in topic_names(options, layout):
        topic, _ = resolve_topic(layout, name)
        kept = table.kept(topic.topic_id)
        if not kept:
            raise IncompatibleSchema(f"topic {str(topic.name)!r} has no schema: leave out the option 'valueSchema'")
        found[str(topic.name)] = kept[-1].info
    if not found:
        raise TopicNotFound("no topic matches, so there is no schema: leave out the option 'valueSchema'")
    (first, info), *others = found.items()
    for name, other in others:
        if column_type(other) != column_type(info):
            raise IncompatibleSchema(
                f"the schemas of topics {first!r} and {name!r} have different types: read them one by one"
            )
    return info


def value_columns(options: SourceOptions) -> list[tuple[str, T.DataType]]:
    """The columns of a read with typed values, with their types."""
    return [(VALUE, spark_type_of(column_type(schema_of_topics(options)))), (VALUE_ERROR, T.StringType())]


class TypedValues(NamedTuple):
    """Decodes payloads of topics of the root into values of *info*, in tasks."""

    root: str
    info: SchemaInfo

    def added(self, tables: Iterable[pa.Table], topic: str) -> Iterator[pa.Table]:
        """*tables* of *topic*, which have ``payload`` and ``schema_version``, with ``value`` and ``value_error``."""
        layout = Layout(self.root)
        decoder = ValueDecoder(self.info, SchemaTable(layout).written(resolve_topic(layout, topic)[0].topic_id))
        for rows in tables:
            columns = (rows[name].combine_chunks() for name in ("payload", "schema_version"))
            values, errors = decoder.values(*columns).flatten()
            yield rows.append_column(VALUE, values).append_column(VALUE_ERROR, errors)


class ValueColumn(NamedTuple):
    """A column ``value`` of the type *given* that tasks encode by *info*, the topic's schema *version*."""

    given: T.DataType
    info: SchemaInfo
    version: int

    @classmethod
    def checked(cls, options: SourceOptions, given: T.DataType) -> "ValueColumn":
        """:class:`InvalidMessage` if the topic has no schema, or the column does not fit it."""
        layout, name = Layout(options.root), options.topic or ""
        try:
            kept = SchemaTable(layout).kept(resolve_topic(layout, name)[0].topic_id)
        except TopicNotFound:
            kept = []
        if not kept:
            raise InvalidMessage(
                f"topic {name!r} has no schema by which to encode column 'value': name the message's bytes or text "
                "'payload', or give the topic a schema with 'pulsar-spark schemas upload'"
            )
        check_value(kept[-1].info, given)
        return cls(given, kept[-1].info, kept[-1].version)

    def encoded(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """*batches* with ``payload`` in the place of ``value``."""
        encoder = ValueEncoder(self.info, self.given)
        for batch in batches:
            at = batch.schema.get_field_index(VALUE)
            yield batch.set_column(at, "payload", encoder.payloads(batch.column(at)))
