"""Register a root's topics and broker tables as external tables of a catalog, with the broker's state as views.

A namespace becomes the schema ``<tenant>_ns_<namespace>`` or a given one, a topic a table in it, with names encoded
like folders (see ``layout``), ``-`` and ``.`` too. Dropping a table deletes no message. Registering again adds new
tables and drops deleted ones. Views that need Python (``history``, ``scheduled``...) exist only in a session (see
views)."""

import re
from collections.abc import Mapping
from types import MappingProxyType

from pyspark.sql import SparkSession

from pulsar_spark.errors import InvalidConfiguration, shown
from pulsar_spark.protocol.suggestions import close_names, did_you_mean
from pulsar_spark.protocol.topics.bundles import BundleRange
from pulsar_spark.protocol.topics.topic_name import DEFAULT_NAMESPACE
from pulsar_spark.storage.layout import Layout, encode_name
from pulsar_spark.storage.session import check_delta, quoted
from pulsar_spark.storage.spark.spark_root import check_store
from pulsar_spark.storage.store.store import AnyPath, path_of
from pulsar_spark.storage.topics.bundles import bundles_of, layouts_of
from pulsar_spark.storage.topics.topics import list_topics
from pulsar_spark.table_specs import BROKER_TABLES, CURSOR_LEDGER, TableSpec
from pulsar_spark.views.view_specs import VIEWS
from pulsar_spark.views.view_texts import view_over

BROKER_SCHEMA = "pulsar_spark"
_LOCATION = re.compile(r"^Location: (?:file:)?(?://(?=/))?(.*)$", re.MULTILINE)


def register(
    spark: SparkSession,
    layout: Layout,
    catalog: str = "spark_catalog",
    prefix: str = "",
    schemas: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Register every topic and broker table of the root in *catalog*; return their locations by SQL name.

    Tables of further bundles have the bundle's folder as a suffix. *schemas* names those of some namespaces
    (``{"public/default": "broker"}``); *prefix* precedes all others. :class:`InvalidConfiguration` if a name is taken
    by something elsewhere, or two namespaces would share a schema."""
    check_delta(spark)
    check_store(spark, layout.root)
    named = _schemas(layout, prefix, schemas)
    registered: dict[str, str] = {}
    for (tenant, namespace), name in named.items():
        schema = _schema(catalog, name)
        topics = {_encoded(topic.name.local_name): topic.path for topic in list_topics(layout, tenant, namespace)}
        if topics or spark.catalog.databaseExists(schema):
            registered |= _register_tables(spark, schema, layout.root, topics)
    schema = _schema(catalog, prefix + BROKER_SCHEMA)
    bundles = layouts_of(layout)
    tables = {
        _table_of(spec, bundle, layout): bundle.broker_table(spec.name) for bundle in bundles for spec in BROKER_TABLES
    }
    registered |= _register_tables(spark, schema, layout.root, {name: at for name, at in tables.items() if at.exists()})
    ranges = bundles_of(layout).ranges
    rows = [f"{schema}.{quoted(_table_of(CURSOR_LEDGER, bundle, layout))}" for bundle in bundles]
    if registered.keys() >= {*rows}:
        registered |= _register_views(spark, schema, dict(zip(ranges, rows, strict=True)), registered[rows[0]])
    return registered


def _table_of(spec: TableSpec, bundle: Layout, first: Layout) -> str:
    return spec.name if bundle.bundle == first.bundle else f"{spec.name}_{bundle.bundle}"


def _schemas(layout: Layout, prefix: str, schemas: Mapping[str, str]) -> dict[tuple[str, str], str]:
    for what, name in (("prefix", prefix), *(("schema", name) for name in schemas.values())):
        if not re.fullmatch(r"\w*" if what == "prefix" else r"\w+", name, re.ASCII):
            raise InvalidConfiguration(
                f"{what} {shown(name)} does not fit into a schema's name: use letters, digits and _"
            )
    there = sorted({DEFAULT_NAMESPACE, *layout.namespaces()})
    found = {"/".join(each): prefix + _namespace_schema(*each) for each in there}
    if unknown := sorted(schemas.keys() - found.keys()):
        raise InvalidConfiguration(
            f"namespace {shown(unknown[0])} does not exist in this root, which has {', '.join(sorted(found))}"
            f"{did_you_mean(close_names(unknown[0], found))}"
        )
    found |= schemas
    taken = [*(name.lower() for name in found.values()), (prefix + BROKER_SCHEMA).lower()]
    for namespace, name in found.items():
        if taken.count(name.lower()) > 1:
            raise InvalidConfiguration(f"schema {shown(name)} of namespace {namespace!r} has another use: name another")
    return {each: found["/".join(each)] for each in there}


def _register_tables(spark: SparkSession, schema: str, root: AnyPath, tables: dict[str, AnyPath]) -> dict[str, str]:
    spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    there = _locations(spark, schema)
    for name, path in there.items():
        if name not in tables and path is not None and str(path).startswith(f"{root}/"):
            spark.sql(f"DROP TABLE IF EXISTS {schema}.{quoted(name)}")
    for name, path in tables.items():
        if name not in there:
            spark.sql(f"CREATE TABLE IF NOT EXISTS {schema}.{quoted(name)} USING DELTA LOCATION {_literal(str(path))}")
        elif there[name] != path:
            lies = f"lies in {str(there[name])!r}, not in {str(path)!r}" if there[name] else "is no table of the root"
            raise InvalidConfiguration(
                f"table {schema}.{quoted(name)} {lies}: drop it, or register with a prefix of your own"
            )
    return {f"{schema}.{quoted(name)}": str(path) for name, path in tables.items()}


def _register_views(spark: SparkSession, schema: str, rows: Mapping[BundleRange, str], location: str) -> dict[str, str]:
    for view in VIEWS:
        text = view_over(view, rows)
        spark.sql(f"CREATE OR REPLACE VIEW {schema}.{quoted(view.name)} COMMENT {_literal(view.row)} AS {text}")
    return {f"{schema}.{quoted(view.name)}": location for view in VIEWS}


def _locations(spark: SparkSession, schema: str) -> dict[str, AnyPath | None]:
    found = {}
    for row in spark.sql(f"SHOW TABLE EXTENDED IN {schema} LIKE '*'").collect():
        if not row["isTemporary"]:
            location = _LOCATION.search(row["information"])
            found[row["tableName"]] = None if location is None else path_of(location[1])
    return found


def _schema(catalog: str, schema: str) -> str:
    return f"{quoted(catalog)}.{quoted(schema)}"


def _namespace_schema(tenant: str, namespace: str) -> str:
    return f"{_encoded(tenant)}_ns_{_encoded(namespace)}"


def _encoded(name: str) -> str:
    return encode_name(name).replace("-", "_2d").replace(".", "_2e")


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
