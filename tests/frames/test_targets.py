"""A text that could be a path or a table's name is taken for the wrong one, or a store for a folder."""

from pathlib import Path

import pytest

from pulsar_spark.errors import InvalidConfiguration, OperationNotSupported
from pulsar_spark.frames import to_delta
from pulsar_spark.frames.sinks.target import Target


@pytest.mark.parametrize(
    "given, folder",
    [
        ("/data/raw", "/data/raw"),
        ("./raw", str(Path("raw").absolute())),
        ("lake/raw.v2", str(Path("lake/raw.v2").absolute())),
        (Path("raw"), str(Path("raw").absolute())),
        ("file:/data/raw", "/data/raw"),
        ("file:///data/raw", "/data/raw"),
    ],
)
def test_a_path_has_a_slash(given, folder):
    assert str(Target(given)) == folder


@pytest.mark.parametrize("name", ["sales.orders", "main.sales.orders", "main.`sales-eu`.orders"])
def test_a_table_of_a_catalog_has_a_schema(name):
    assert str(Target(name)) == name


@pytest.mark.parametrize("given", ["orders", "", "a.b.c.d", "a b.c", ".orders", "orders."])
def test_a_text_that_is_neither_is_refused(given):
    with pytest.raises(InvalidConfiguration, match="neither a path nor a table.*with a slash"):
        to_delta(given)


@pytest.mark.parametrize("given", ["s3://bucket/raw", "s3a://bucket/raw", "dbfs:/Volumes/a/b/c", "hdfs://host/raw"])
def test_a_store_is_refused(given):
    with pytest.raises(OperationNotSupported, match="object store.*give a local folder"):
        to_delta(given)


@pytest.mark.parametrize("merge_on", ["", [], [""], ["a", None]])
def test_keys_to_merge_on_are_names(merge_on):
    with pytest.raises(InvalidConfiguration, match="give the name of one column or more"):
        to_delta("./raw", merge_on=merge_on)
