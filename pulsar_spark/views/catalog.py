"""Tables by name: a root's topics and broker tables as external tables of a catalog, for people who write SQL.

A namespace becomes the schema ``<tenant>_ns_<namespace>`` and a topic a table in it. The parts are encoded as folder
names are (see ``layout``), and ``-`` and ``.`` too, because catalogs know letters, digits and ``_`` only: nothing a
topic can be called breaks out of its quotes or meets another. ``_ns_`` is not an escape, so it separates the two. The
tables stay where they are; dropping one from the catalog deletes no message. Registering again adds what is new and
lets go of what was deleted.
"""

import re
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.protocol.topic_name import TopicName, parse_topic_name
from pulsar_spark.storage.layout import Layout, encode_name
from pulsar_spark.storage.session import check_delta, quoted
from pulsar_spark.storage.topics import list_topics
from pulsar_spark.table_specs import BROKER_TABLES

BROKER_SCHEMA = "pulsar_spark"


def register(spark: SparkSession, layout: Layout, catalog: str = "spark_catalog", prefix: str = "") -> dict[str, str]:
    """Register every topic and broker table of the root in *catalog*; where each lies, by its name in SQL.

    Schemas are created as needed; *prefix* goes before their names, for several roots in one catalog.
    :class:`InvalidConfiguration` when a name is taken by a table that lies somewhere else.
    """
    check_delta(spark)
    if not re.fullmatch(r"\w*", prefix, re.ASCII):
        raise InvalidConfiguration(f"prefix {prefix!r} does not fit into a schema's name: use letters, digits and _")
    registered = {}
    for tenant, namespace in layout.namespaces():
        topics = {
            topic_table(topic.name, catalog, prefix): topic.path for topic in list_topics(layout, tenant, namespace)
        }
        if topics:
            registered |= _register_schema(
                spark, _schema(catalog, prefix + _namespace_schema(tenant, namespace)), layout.root, topics
            )
    tables = {
        broker_table(spec.name, catalog, prefix): layout.broker_table(spec.name)
        for spec in BROKER_TABLES
        if layout.broker_table(spec.name).exists()
    }
    return registered | _register_schema(spark, _schema(catalog, prefix + BROKER_SCHEMA), layout.root, tables)


def topic_table(topic: TopicName | str, catalog: str = "spark_catalog", prefix: str = "") -> str:
    """The topic's name in SQL, quoted.

    >>> topic_table("acme/billing/Orders")
    '`spark_catalog`.`acme_ns_billing`.`_4frders`'
    """
    name = topic if isinstance(topic, TopicName) else parse_topic_name(topic)
    schema = _schema(catalog, prefix + _namespace_schema(name.tenant, name.namespace))
    return f"{schema}.{quoted(_encoded(name.local_name))}"


def broker_table(table: str, catalog: str = "spark_catalog", prefix: str = "") -> str:
    """The name in SQL of ``requests``, ``cursor_ledger`` or ``ledgers``, quoted."""
    return f"{_schema(catalog, prefix + BROKER_SCHEMA)}.{quoted(table)}"


def _register_schema(spark: SparkSession, schema: str, root: Path, tables: dict[str, Path]) -> dict[str, str]:
    spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    for row in spark.sql(f"SHOW TABLES IN {schema}").collect():
        name = f"{schema}.{quoted(row['tableName'])}"
        if not row["isTemporary"] and name not in tables:
            location = _location(spark, name)
            if location is None or location.is_relative_to(root):
                spark.sql(f"DROP TABLE IF EXISTS {name}")
    for name, path in tables.items():
        if not spark.catalog.tableExists(name):
            spark.sql(f"CREATE TABLE IF NOT EXISTS {name} USING DELTA LOCATION {_literal(str(path))}")
        elif _location(spark, name) != path:
            raise InvalidConfiguration(
                f"table {name} lies in {str(_location(spark, name))!r}, not in {str(path)!r}: "
                "drop it, or register with a prefix of your own"
            )
    return {name: str(path) for name, path in tables.items()}


def _location(spark: SparkSession, table: str) -> Path | None:
    """Where the table lies; None when nothing is there any more."""
    try:
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()
    except AnalysisException as gone:
        if gone.getCondition() == "DELTA_PATH_DOES_NOT_EXIST":
            return None
        raise
    return Path(next(row["data_type"] for row in rows if row["col_name"] == "Location").removeprefix("file:"))


def _schema(catalog: str, schema: str) -> str:
    return f"{quoted(catalog)}.{quoted(schema)}"


def _namespace_schema(tenant: str, namespace: str) -> str:
    return f"{_encoded(tenant)}_ns_{_encoded(namespace)}"


def _encoded(name: str) -> str:
    return encode_name(name).replace("-", "_2d").replace(".", "_2e")


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
