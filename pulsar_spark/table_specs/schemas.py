"""The schemas that topics keep."""

import pyarrow as pa

from pulsar_spark.table_specs.spec import PROPERTIES, TIME, Column, TableSpec

SCHEMAS = TableSpec(
    "schemas",
    "a version of a topic's schema",
    tuple(
        Column(*c)
        for c in (
            ("topic", pa.string(), "full name of the topic, without a partition"),
            ("topic_id", pa.string(), "Delta's id of the topic's table, so that a topic created again starts clean"),
            ("schema_version", pa.int32(), "number of the version: 0, 1, 2... of the topic, a removal included"),
            ("schema_type", pa.string(), "AVRO, JSON, STRING...; NONE in a removal"),
            ("name", pa.string(), "what the schema is called"),
            ("schema", pa.string(), "the definition, as its client wrote it"),
            ("properties", PROPERTIES, "the application's own names and values"),
            ("create_time", TIME, "the clock of who brought it"),
            ("is_removed", pa.bool_(), "versions up to this one are kept for their messages, and hold back no new one"),
        )
    ),
)
