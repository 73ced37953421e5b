"""Topics and broker tables under names of a catalog."""

import pytest
from chispa import assert_df_equality

from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.frames import publish
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics import create_topic, delete_topic, prepare_root
from pulsar_spark.views.catalog import broker_table, register, topic_table

NAMES = ["acme/billing/Orders", "acme/billing/orders", "acme/billing/o=r-d:e.rs", "a/_b/t"]


def test_topics_are_read_by_name(spark, root, layout):
    for name in NAMES:
        publish(spark.createDataFrame([(name,)], "payload string"), root, name)
    registered = register(spark, layout)
    assert {topic_table(name) for name in NAMES} < set(registered)
    for name in NAMES:
        read = spark.table(topic_table(name)).selectExpr("cast(payload as string) payload")
        assert_df_equality(read, spark.createDataFrame([(name,)], read.schema))
    assert spark.table(broker_table("requests")).columns[0] == "request_id"


def test_registering_again_follows_the_root(spark, root, layout):
    for name in ("x/y/old", "x/y/kept"):
        create_topic(layout, name)
    register(spark, layout, prefix="again_")
    delete_topic(layout, "x/y/old")
    create_topic(layout, "x/y/new")
    registered = register(spark, layout, prefix="again_")
    assert [name for name in registered if "x_ns_y" in name] == [
        topic_table("x/y/kept", prefix="again_"),
        topic_table("x/y/new", prefix="again_"),
    ]
    tables = spark.sql("show tables in again_x_ns_y").select("tableName")
    assert_df_equality(tables, spark.createDataFrame([("kept",), ("new",)], tables.schema), ignore_row_order=True)


def test_a_name_taken_by_another_root_is_an_error(spark, root, layout, tmp_path):
    other = Layout(tmp_path / "other")
    prepare_root(other)
    for where in (layout, other):
        create_topic(where, "taken/by/both")
    register(spark, layout, prefix="taken_")
    with pytest.raises(InvalidConfiguration, match="lies in"):
        register(spark, other, prefix="taken_")


def test_a_prefix_cannot_leave_its_quotes(spark, layout):
    with pytest.raises(InvalidConfiguration, match="does not fit"):
        register(spark, layout, prefix="a`.`b")
