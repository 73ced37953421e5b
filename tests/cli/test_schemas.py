"""Schemas as an administrator sees, uploads and deletes them, from Python and from the command line."""

import json

import pytest
from typer.testing import CliRunner

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.cli import app
from pulsar_spark.errors import IncompatibleSchema, InvalidConfiguration, SchemaNotFound, TopicNotFound
from pulsar_spark.schema import AvroSchema, Integer, Record, StringSchema


class Order(Record):
    items = Integer(default=1, required=True, required_default=True)


class Priced(Record):
    items = Integer(default=1, required=True, required_default=True)
    price = Integer(default=0, required=True, required_default=True)


@pytest.fixture
def admin(layout) -> Admin:
    admin = Admin(f"delta:{layout.root}")
    admin.create_topic("orders")
    return admin


@pytest.fixture
def run(layout, tmp_path, admin):
    def run(*arguments, of=None):
        if of is not None:
            (tmp_path / "said.json").write_text(of if isinstance(of, str) else json.dumps(of))
            arguments += ("-f", str(tmp_path / "said.json"))
        return CliRunner().invoke(app, ("schemas", *arguments), env={"PULSAR_SPARK_ROOT": str(layout.root)})

    return run


def test_from_upload_to_deletion(run, admin):
    definition = AvroSchema(Order).schema_info().schema()
    said = {"type": "AVRO", "schema": definition, "properties": {"owner": "me"}}
    assert run("upload", "orders", of=said).stdout == "version 0\n"
    later = {"type": "avro", "schema": Priced.schema(), "name": "priced"}
    assert json.loads(run("upload", "orders", "--json", of=later).stdout) == {"version": 1}
    assert json.loads(run("upload", "orders", "--json", of=said).stdout) == {"version": 0}, "it keeps it already"

    found = json.loads(run("get", "orders", "--json").stdout)
    assert found.pop("timestamp") > 0
    assert found == {
        "version": 1,
        "type": "AVRO",
        "name": "priced",
        "schema": AvroSchema(Priced).schema_info().schema(),
        "properties": {},
    }
    assert run("get", "orders", "--version", "0").stdout == f"version 0, AVRO, 'AVRO', owner=me\n{definition}\n"
    assert [each["version"] for each in json.loads(run("get", "orders", "-a", "--json").stdout)] == [0, 1]

    assert run("delete", "orders").stdout == "deleted by version 2\n"
    assert json.loads(run("delete", "orders", "--json").stdout) == {"version": None}
    assert run("get", "orders", "--all-version").stdout == "none\n"
    assert isinstance(run("get", "orders").exception, SchemaNotFound)
    assert admin.get_schema_info("orders", 0)["schema"] == definition, "messages may name it"
    assert admin.create_schema("orders", "STRING") == 3


@pytest.mark.parametrize(
    "said",
    ["", "[]", "{}", {"type": "BYTES"}, {"type": "colour"}, {"type": 5}, {"type": "AVRO", "properties": {"a": 1}}],
)
def test_files_that_say_no_schema(run, admin, said):
    wrong = run("upload", "orders", of=said).exception
    assert isinstance(wrong, InvalidConfiguration) and admin.get_all_schemas("orders") == []


def test_what_cannot_be(run, admin, layout):
    assert isinstance(run("upload", "orders", "-f", "no such file").exception, InvalidConfiguration)
    assert isinstance(run("get", "orders", "-a", "-v", "0").exception, InvalidConfiguration)
    assert isinstance(run("get", "nowhere").exception, TopicNotFound)
    with pytest.raises(SchemaNotFound, match="version 7"):
        admin.get_schema_info("orders", 7)
    with pytest.raises(IncompatibleSchema):
        admin.create_schema("orders", "AVRO", "{}")
    admin.create_schema("orders", "AVRO", Order.schema())
    with pytest.raises(IncompatibleSchema, match="STRING"):
        admin.create_schema("orders", "STRING")
    client = pulsar.Client(f"delta:{layout.root}")
    with pytest.raises(IncompatibleSchema):
        client.create_producer("orders", schema=StringSchema())
    admin.delete_schema("orders")
    client.create_producer("orders", schema=StringSchema())
    client.close()
