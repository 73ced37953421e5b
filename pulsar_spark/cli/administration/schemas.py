"""``pulsar-spark schemas ...``."""

import json
from pathlib import Path
from typing import Annotated

import typer

from pulsar_spark.cli.common import Json, Root, Topic, admin, print_found, print_json
from pulsar_spark.errors import InvalidConfiguration

app = typer.Typer(no_args_is_help=True)
Version = Annotated[int | None, typer.Option("--version", "-v", min=0, help="This version instead of the latest.")]
All = Annotated[bool, typer.Option("--all-version", "-a", help="All versions since the latest deletion.")]
File = Annotated[
    Path, typer.Option("--filename", "-f", help='JSON as {"type": "AVRO", "schema": "...", "properties": {}}.')
]


@app.command()
def get(topic: Topic, root: Root, version: Version = None, all_versions: All = False, as_json: Json = False):
    """Show the schema that a topic keeps."""
    if all_versions and version is not None:
        raise InvalidConfiguration("--all-version and --version exclude each other: give one of them")
    found = admin(root).get_all_schemas(topic) if all_versions else [admin(root).get_schema_info(topic, version)]
    if as_json:
        print_json(found if all_versions else found[0])
        return
    for each in found:
        properties = "".join(f", {name}={value}" for name, value in each["properties"].items())
        typer.echo(f"version {each['version']}, {each['type']}, {each['name']!r}{properties}")
        typer.echo(each["schema"])
    if not found:
        typer.echo("none")


@app.command()
def upload(topic: Topic, root: Root, file: File, as_json: Json = False):
    """Add a schema to a topic: its first, or one compatible with those it keeps."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        kind, schema, properties = content["type"], content.get("schema", ""), content.get("properties") or {}
        if not all(isinstance(value, str) for value in properties.values()):
            raise TypeError("a property is not a text")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as wrong:
        raise InvalidConfiguration(
            f"{str(file)!r} has no schema ({type(wrong).__name__}: {wrong}): give a JSON file with 'type', "
            "'schema' and, as texts, 'properties'"
        ) from wrong
    version = admin(root).create_schema(topic, kind, schema, properties, content.get("name"))
    print_found({"version": version}, as_json, f"version {version}")


@app.command()
def delete(topic: Topic, root: Root, as_json: Json = False):
    """Delete the schemas of a topic. Stored messages can still be read with the schemas they were written with."""
    version = admin(root).delete_schema(topic)
    print_found({"version": version}, as_json, "none" if version is None else f"deleted by version {version}")
