"""The session's settings and its errors; all but the last two tests need no JVM."""

import os
from importlib.metadata import version
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pulsar_spark.broker.runner import Broker
from pulsar_spark.errors import InvalidConfiguration, JavaNotFound
from pulsar_spark.storage import session
from pulsar_spark.storage.spark import session_jars
from pulsar_spark.storage.spark.hadoop_stores import store_settings
from pulsar_spark.storage.store.store_kinds import AZURE, GOOGLE, KINDS, S3


@pytest.fixture
def java_of(monkeypatch, tmp_path):
    """Make a Java of some version the only one there is."""

    def install(version):
        java = tmp_path / "bin" / "java"
        java.parent.mkdir()
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        java.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    monkeypatch.setattr(session.Path, "glob", lambda self, pattern: [])
    return install


@pytest.mark.parametrize("version", ["17.0.9", "21.0.1"])
def test_a_java_that_spark_takes_is_left_as_it_is(java_of, version):
    java_of(version)
    before = dict(os.environ)
    session._find_java()
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("platform", "command"),
    [("linux", "apt-get install openjdk-17-jre-headless"), ("darwin", "brew install openjdk@17")],
)
def test_without_such_a_java_the_command_is_named(java_of, monkeypatch, platform, command):
    java_of("1.8.0_302")
    monkeypatch.setattr(session.sys, "platform", platform)
    with pytest.raises(JavaNotFound, match=command):
        session._find_java()


def test_jars_are_resolved_once(tmp_path, capsys):
    given = {"spark.jars.ivy": str(tmp_path), "spark.jars": "/mine.jar"}
    first = session_jars.jar_settings(given)
    assert first["spark.jars.packages"] == session_jars.delta_artifact()
    assert "first time only" in capsys.readouterr().err
    _, artifact, version = session_jars.delta_artifact().split(":")
    jars = [tmp_path / "jars" / f"io.delta_{name}-{version}.jar" for name in (artifact, "delta-storage")]
    (tmp_path / "jars").mkdir()
    for jar in jars:
        jar.touch()
    assert session_jars.jar_settings(given) == {"spark.jars": ",".join(["/mine.jar", *map(str, jars)])}
    assert capsys.readouterr().err == ""


def test_a_root_in_a_store_takes_more_jars(tmp_path, capsys):
    """Of Amazon's library the parts that are called, not the one jar of it all; they are found again with what they
    need, and without what another release of Spark has left there."""
    given = {"spark.jars.ivy": str(tmp_path)}
    first = session_jars.jar_settings(given, store=S3)
    assert first["spark.jars.packages"].split(",") == [session_jars.delta_artifact(), *session_jars.store_artifacts(S3)]
    assert "software.amazon.awssdk:bundle" in first["spark.jars.excludes"]
    assert "Hadoop's client of S3" in capsys.readouterr().err
    named = [each.split(":") for each in first["spark.jars.packages"].split(",")]
    jars = [tmp_path / "jars" / f"{group}_{artifact}-{version}.jar" for group, artifact, version in named]
    delta = named[0]
    storage = tmp_path / "jars" / f"{delta[0]}_delta-storage-{delta[2]}.jar"
    more = tmp_path / "jars" / "software.amazon.eventstream_eventstream-1.0.1.jar"
    others = [
        tmp_path / "jars" / f"{name}.jar"
        for name in (
            "org.example_other-1",
            "software.amazon.awssdk_s3-2.29.52",
            "software.amazon.awssdk_bundle-2.29.52",
            "org.apache.hadoop_hadoop-aws-3.4.1",
        )
    ]
    (tmp_path / "jars").mkdir()
    for jar in (*jars, storage, more, *others):
        jar.touch()
    found = session_jars.jar_settings(given, store=S3)["spark.jars"].split(",")
    assert set(found) == {*map(str, jars), str(storage), str(more)} and len(found) == len(set(found))
    assert session_jars.jar_settings(given)["spark.jars"].split(",") == [str(jars[0]), str(storage)]


def test_sessions_find_a_store_as_everybody_else_does():
    said = {"AWS_ENDPOINT_URL": "http://here:9000", "AWS_REGION": "r", "AWS_SECRET_ACCESS_KEY": "secret"}
    found = store_settings(S3, said)
    assert (found["fs.s3a.endpoint"], found["fs.s3a.endpoint.region"]) == ("http://here:9000", "r")
    assert (found["fs.s3a.path.style.access"], found["fs.s3a.connection.ssl.enabled"]) == ("true", "false")
    assert "secret" not in str(found) and "fs.s3a.endpoint" not in store_settings(S3, {})


@pytest.mark.parametrize(
    ("said", "way", "named"),
    [
        ({"AZURE_STORAGE_ACCOUNT_KEY": "hidden"}, "SharedKey", "${env.AZURE_STORAGE_ACCOUNT_KEY}"),
        ({"AZURE_STORAGE_SAS_TOKEN": "hidden"}, "SAS", "${env.AZURE_STORAGE_SAS_TOKEN}"),
        (
            {"AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": "hidden", "AZURE_TENANT_ID": "t"},
            "OAuth",
            "https://login.microsoftonline.com/${env.AZURE_TENANT_ID}/oauth2/token",
        ),
        ({}, "OAuth", "org.apache.hadoop.fs.azurebfs.oauth2.MsiTokenProvider"),
    ],
    ids=["key", "signature", "client", "machine"],
)
def test_sessions_are_told_where_credentials_of_azure_are_and_not_which(said, way, named):
    found = store_settings(AZURE, said)
    assert found["fs.azure.account.auth.type"] == way and named in found.values()
    assert "hidden" not in str(found)


def test_sessions_find_google_by_the_file_that_is_named():
    found = store_settings(GOOGLE, {"GOOGLE_SERVICE_ACCOUNT": "/key.json", "GOOGLE_SERVICE_ACCOUNT_KEY": "hidden"})
    assert found["fs.gs.auth.service.account.json.keyfile"] == "/key.json" and "hidden" not in str(found)
    assert store_settings(GOOGLE, {})["fs.gs.auth.type"] == "APPLICATION_DEFAULT"


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.scheme)
def test_each_store_has_a_client_of_hadoops(kind, tmp_path, capsys):
    """Of the version of Spark's Hadoop; it is fetched once."""
    given = {"spark.jars.ivy": str(tmp_path)}
    wanted = session_jars.jar_settings(given, store=kind)["spark.jars.packages"].split(",")
    assert f"Hadoop's client of {kind.name}" in capsys.readouterr().err
    assert wanted[1].startswith("org.apache.hadoop:hadoop-") and wanted[1].count(":") == 2
    (tmp_path / "jars").mkdir()
    for group, artifact, number in (
        each.split(":") for each in [*wanted, "io.delta:delta-storage:" + version("delta-spark")]
    ):
        (tmp_path / "jars" / f"{group}_{artifact}-{number}.jar").touch()
    for name in ("org.wildfly.openssl_wildfly-openssl-2.2.5.Final", "org.hdrhistogram_HdrHistogram-2.1.12"):
        (tmp_path / "jars" / f"{name}.jar").touch()
    jars = session_jars.jar_settings(given, store=kind)["spark.jars"]
    assert ("wildfly" in jars, "HdrHistogram" in jars) == (kind is not GOOGLE, kind is AZURE)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("master", "cores"), [("local[3]", "3"), ("local", "1"), ("local[2,4]", "2"), ("spark://host:7077", None)]
)
def test_rounds_have_a_shuffle_partition_per_core(master, cores):
    assert session._round_settings(master).get("spark.sql.shuffle.partitions") == cores


def test_an_active_session_is_used_and_rounds_get_a_sibling(spark):
    assert session.spark_session() is spark
    rounds = session.spark_session(for_rounds=True)
    assert rounds is not spark and rounds.sparkContext is spark.sparkContext
    assert (rounds.conf.get("spark.sql.adaptive.enabled"), spark.conf.get("spark.sql.adaptive.enabled")) == (
        "false",
        "true",
    )
    with pytest.raises(InvalidConfiguration, match="spark.driver.memory"):
        session.spark_session(settings={"spark.driver.memory": "9g"})


@pytest.mark.parametrize("name", ["DATABRICKS_RUNTIME_VERSION", "SPARK_REMOTE"])
def test_who_starts_spark_himself_gives_the_session(monkeypatch, name):
    """None is made beside it, and none of its settings is changed; a thread of its own knows no active session."""
    conf = {"spark.sql.extensions": session._EXTENSION, "spark.sql.catalog.spark_catalog": session._CATALOG}
    given = SimpleNamespace(conf=conf)
    monkeypatch.setenv(name, "18.0")
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(SparkSession, "builder", SimpleNamespace(getOrCreate=lambda: given))
    assert session.spark_session() is given


def test_a_session_of_spark_connect_serves_no_broker(tmp_path):
    """It has no context; that it cannot is said before anything is made."""
    with pytest.raises(InvalidConfiguration, match="a broker does not run through Spark Connect"):
        Broker(SimpleNamespace(), tmp_path / "root")
    assert not session.has_context(SimpleNamespace())
    assert not (tmp_path / "root").exists()


def test_a_session_without_delta_is_refused(spark: SparkSession):
    plain = spark.newSession()
    plain.conf.set("spark.sql.catalog.spark_catalog", "org.example.NoCatalog")
    with pytest.raises(InvalidConfiguration, match="spark.jars.packages=io.delta:delta-spark"):
        session.check_delta(plain)


@pytest.mark.parametrize("chunks", [[0], [3, 0, 4], [0, 2], [2, 0]])
def test_a_local_frame_has_all_rows_of_a_table_whatever_its_chunks(spark, chunks):
    table = pa.concat_tables([pa.table({"a": pa.array(range(rows), pa.int64())}) for rows in chunks])
    assert session.local_frame(spark, table).toArrow()["a"].to_pylist() == table["a"].to_pylist()
