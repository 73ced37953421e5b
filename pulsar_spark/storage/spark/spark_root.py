"""Roots for Spark sessions: can a session read and write them?"""

from pyspark.sql import SparkSession

from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.session import check_delta, has_context
from pulsar_spark.storage.spark.hadoop_stores import CLIENTS, served_by, store_settings
from pulsar_spark.storage.spark.session_jars import NOT_OF_STORE, store_artifacts
from pulsar_spark.storage.store.root import on_databricks
from pulsar_spark.storage.store.store import AnyPath, StrPath, store_of

_DEFAULTS = "core-default.xml"
"""The source of Hadoop settings that nobody has set."""


def layout_for_frames(spark: SparkSession, root: StrPath) -> Layout:
    """The layout of a root for *spark*; :class:`InvalidConfiguration`, with settings, if the session cannot use it."""
    check_delta(spark)
    layout = Layout(root)
    check_store(spark, layout.root)
    return layout


def can_read(spark: SparkSession, root: AnyPath) -> bool:
    try:
        check_store(spark, root)
    except InvalidConfiguration:
        return False
    return True


def check_store(spark: SparkSession, root: AnyPath) -> None:
    """:class:`InvalidConfiguration` unless the session can use the root's store; adds settings if jars are there."""
    store = store_of(root)
    if store.is_local or on_databricks() or not has_context(spark):
        return
    if store.spark_kind is None:
        raise InvalidConfiguration(
            f"root {str(root)!r}: DataFrames read and write volumes only on Databricks: run this there; "
            "brokers, clients and Admin work anywhere"
        )
    kind, hadoop = store.spark_kind, spark.sparkContext._jsc.hadoopConfiguration()

    def has_setting(name: str) -> bool:
        sources = hadoop.getPropertySources(name)
        return spark.conf.get(name, None) is not None or (sources is not None and sources[-1] != _DEFAULTS)

    if has_setting(served_by(kind)):
        return
    if hadoop.getClassByNameOrNull(CLIENTS[kind]) is None:
        raise InvalidConfiguration(
            f"root {str(root)!r}: the Spark session has no client of its store: start it with Delta's jars and "
            f"spark.jars.packages={','.join(store_artifacts(kind))}, spark.jars.excludes={','.join(NOT_OF_STORE)}, or "
            "stop it and let pulsar_spark start one: spark_session(root=...)"
        )
    for name, value in store_settings(kind).items():
        if not has_setting(name):
            spark.conf.set(name, value)
