"""Topics and broker tables under names of a catalog."""

import json
from contextlib import ExitStack, closing

import pytest
from chispa import assert_df_equality

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.broker.bundle.split import split_bundle
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.frames import publish
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.bundles import layouts_of
from pulsar_spark.storage.topics.topics import create_topic, delete_topic, prepare_root, read_topic
from pulsar_spark.testing.plain_broker import PlainBroker
from pulsar_spark.views import create_views
from pulsar_spark.views.catalog import register
from pulsar_spark.views.view_texts import VIEW_TEXTS
from tests.broker.test_bundles import HIGH, LOW
from tests.frames.sql_names import broker_table, topic_table
from tests.support.commands import say

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
    tables = spark.sql("show tables in again_x_ns_y").filter("not isTemporary").select("tableName")
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


def test_a_namespace_may_have_a_schema_of_a_name_of_its_own(spark, root, layout):
    """``SELECT * FROM broker.orders``, and nothing is written to the topic for it."""
    publish(spark.createDataFrame([("first",)], "payload string"), root, "orders")
    create_topic(layout, "acme/shop/orders")
    version = TableLog(read_topic(layout, "orders").path).latest()
    schemas = {"public/default": "broker"}
    registered = register(spark, layout, prefix="named_", schemas=schemas)
    assert topic_table("orders", prefix="named_", schemas=schemas) in registered
    assert topic_table("acme/shop/orders", prefix="named_", schemas=schemas) in registered
    assert [bytes(row.payload) for row in spark.sql("SELECT * FROM broker.orders").collect()] == [b"first"]
    assert spark.table("named_acme_ns_shop.orders").count() == 0
    assert TableLog(read_topic(layout, "orders").path).latest() == version


def test_who_registers_again_lets_go_of_deleted_topics_only(spark, root, layout, tmp_path):
    """A topic that was made again is found under its old name; a table of others in the same schema stays, also the
    schema's last topic goes."""
    schemas = {"x/go": "letting_go"}
    for name in ("x/go/again", "x/go/deleted"):
        create_topic(layout, name)
    register(spark, layout, prefix="go_", schemas=schemas)
    spark.sql(f"CREATE TABLE letting_go.own USING DELTA LOCATION '{tmp_path / 'own'}' AS SELECT 1 AS number")
    spark.sql("CREATE VIEW letting_go.view AS SELECT 2 AS number")
    delete_topic(layout, "x/go/deleted"), delete_topic(layout, "x/go/again")
    publish(spark.createDataFrame([("new life",)], "payload string"), root, "x/go/again")
    assert [bytes(row.payload) for row in spark.table("letting_go.again").collect()] == [b"new life"]
    register(spark, layout, prefix="go_", schemas=schemas)
    assert set(_tables(spark, "letting_go")) == {"again", "own", "view"}
    delete_topic(layout, "x/go/again")
    register(spark, layout, prefix="go_", schemas=schemas)
    assert set(_tables(spark, "letting_go")) == {"own", "view"}


def test_dropping_a_table_from_the_catalog_deletes_no_message(spark, root, layout):
    publish(spark.createDataFrame([("kept",)], "payload string"), root, "drop/me/t")
    register(spark, layout, prefix="drop_")
    spark.sql("DROP TABLE drop_drop_ns_me.t")
    register(spark, layout, prefix="drop_")
    assert spark.table("drop_drop_ns_me.t").count() == 1


def test_views_in_the_catalog_say_what_those_of_a_session_say(spark, tmp_path):
    schema = "views_pulsar_spark"
    with PlainBroker(tmp_path / "root") as broker:
        create_topic(broker.layout, "t")
        client = pulsar.Client(f"delta:{broker.layout.root}")
        consumer = client.subscribe("t", "s", consumer_name="c")
        client.create_producer("t").send(b"sent")
        consumer.receive(60_000)
        client.subscribe("t", "gone").unsubscribe()
        register(spark, broker.layout, prefix="views_")
        create_views(spark, broker.layout.root)
        with broker.paused():
            for name in VIEW_TEXTS:
                there, shown = (sorted(map(str, spark.table(each).collect())) for each in (f"{schema}.{name}", name))
                assert there == shown and (there or name == "housekeeping")
            found = spark.sql(f"SELECT topic, subscription, consumer_name FROM {schema}.consumers").collect()
        client.close()
    assert [tuple(row) for row in found] == [("persistent://public/default/t", "s", "c")]


def test_views_in_the_catalog_are_of_all_bundles_once_a_split_root_is_registered_again(spark, tmp_path):
    """The table that a bundle was split off goes on saying what was so of the other's topics."""
    root, schema = tmp_path / "root", "split_pulsar_spark"
    with PlainBroker(root) as broker, closing(pulsar.Client(f"delta:{root}")) as client:
        for name in (LOW, HIGH):
            client.subscribe(name, "before").close()
        register(spark, broker.layout, prefix="split_", schemas={"public/default": "split_topics"})
    split_bundle(Layout(root))
    with ExitStack() as stack, closing(pulsar.Client(f"delta:{root}")) as client:
        brokers = [stack.enter_context(PlainBroker(root, bundle=each.bundle)) for each in layouts_of(Layout(root))]
        for broker in brokers:
            broker.rounds.note_housekeeping("requests", "joined", 1)
        for name in (LOW, HIGH):
            consumer = client.subscribe(name, "behind", consumer_name="c")
            client.create_producer(name).send(name.encode())
            consumer.receive(60_000)
        Admin(f"delta:{root}").unsubscribe(HIGH, "before")
        register(spark, Layout(root), prefix="split_", schemas={"public/default": "split_topics"})
        for broker in brokers:
            stack.enter_context(broker.paused())
        found = {tuple(row) for row in spark.sql(f"SELECT topic, subscription FROM {schema}.cursors").collect()}
        assert found == {(LOW, "before"), (LOW, "behind"), (HIGH, "behind")}
        create_views(spark, root)
        for name in VIEW_TEXTS:
            there, shown = (sorted(map(str, spark.table(each).collect())) for each in (f"{schema}.{name}", name))
            assert there == shown and there
    assert spark.table(f"{schema}.housekeeping").count() == 2
    for name in (LOW, HIGH):
        local = name.rpartition("/")[2]
        assert [bytes(row.payload).decode() for row in spark.table(f"split_topics.{local}").collect()] == [name]


@pytest.mark.parametrize(
    ("schemas", "said"),
    [
        ({"public/default": "a.b"}, "does not fit"),
        ({"public/default": ""}, "does not fit"),
        ({"no/such": "broker"}, "does not exist in this root"),
        ({"one/a": "same", "one/b": "SAME"}, "has another use"),
        ({"one/a": "one_ns_b"}, "has another use"),
        ({"one/a": "pulsar_spark"}, "has another use"),
    ],
)
def test_a_schema_that_cannot_be_is_refused_before_anything_is_registered(spark, layout, schemas, said):
    for name in ("t", "one/a/t", "one/b/t"):
        create_topic(layout, name)
    with pytest.raises(InvalidConfiguration, match=said):
        register(spark, layout, schemas=schemas)
    assert not spark.catalog.databaseExists("one_ns_a")


def test_the_command_and_the_job_say_where_tables_lie(spark, root, layout):
    create_topic(layout, "cmd/line/orders")
    found = json.loads(say(root, "catalog", "register", "--prefix", "cmd_", "--schema", "cmd/line=lines", "--json"))
    assert found["`spark_catalog`.`lines`.`orders`"] == str(read_topic(layout, "cmd/line/orders").path)
    assert "`lines`" in say(root, "catalog", "register", "--prefix", "cmd_", "--schema", "cmd/line=lines", columns=400)
    with pytest.raises(InvalidConfiguration, match="<tenant>/<namespace>=<schema>"):
        say(root, "catalog", "register", "--schema", "lines")


def _tables(spark, schema: str) -> list[str]:
    """Names of a schema's tables; SHOW TABLES adds the session's temporary views, whoever made them."""
    return [row.tableName for row in spark.sql(f"SHOW TABLES IN {schema}").collect() if not row.isTemporary]
