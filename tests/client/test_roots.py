"""Roots that are none: refused by name at every entrance, and nothing is made anywhere."""

import logging
import os
from pathlib import Path

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.broker.runner import Broker
from pulsar_spark.storage.layout import Layout, parse_service_url

NO_FOLDERS = [
    "s3://b/x",
    "S3://bucket",
    "s3a://b",
    "s3:bucket",
    "s3:/bucket",
    "abfss://c@a.dfs.core.windows.net/x",
    "gs://b/x",
    "az://b",
    "dbfs:/x",
    "dbfs:x",
    "hdfs://n:8020/x",
    "hdfs:/x",
    "http://h/x",
    "uc://a.b",
    "memory:",
    "x+y-z.1:q",
    "C:\\data",
    "c:/data",
    "//host/x",
    "//bucket",
    " s3://b",
    "a/b://c",
    "file://host/x",
    "file:x",
    "file:",
    "",
    " ",
    "\t",
    "a\0b",
    "/tmp/a\nb",
    "/tmp/a ",
    " /tmp/a",
    "~nobody-of-that-name/x",
    "x" * 256,
    "/tmp/" + "é" * 128,
    "/" + "a/" * 2000,
    "/tmp/\ud800",
]


@pytest.mark.parametrize("root", NO_FOLDERS)
def test_what_is_no_local_folder_is_refused_by_name(tmp_path, monkeypatch, root):
    monkeypatch.chdir(tmp_path)
    for enter in (
        lambda: pulsar.Client(f"delta:{root}"),
        lambda: Admin(f"delta:{root}"),
        lambda: Broker(None, root),
        lambda: Layout(root),
    ):
        with pytest.raises(pulsar.InvalidUrl) as refused:
            enter()
        assert repr(root[:20])[1:-1] in str(refused.value), "the value in quotes"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("root", [None, 5, b"/tmp/x", ["x"]])
def test_what_is_no_text_is_refused_by_name(root):
    with pytest.raises(pulsar.InvalidUrl):
        Layout(root)
    with pytest.raises((pulsar.InvalidUrl, ValueError)):
        pulsar.Client(root)


@pytest.mark.parametrize(
    "given, meant",
    [
        ("delta:/data/x", "/data/x"),
        ("delta:///data/x", "/data/x"),
        ("delta:file:///data/x", "/data/x"),
        ("delta:file:/data/x", "/data/x"),
        ("delta:file:///data/a%20b", "/data/a b"),
        ("delta:./s3:x", "{cwd}/s3:x"),
        ("delta:x", "{cwd}/x"),
        ("delta:/data/a:b/c d", "/data/a:b/c d"),
        ("delta:/data/été", "/data/été"),
    ],
)
def test_what_a_folder_is(tmp_path, monkeypatch, given, meant):
    monkeypatch.chdir(tmp_path)
    assert parse_service_url(given) == meant.format(cwd=tmp_path)
    assert Layout(given.removeprefix("delta:")).root == Path(meant.format(cwd=tmp_path))


def test_a_relative_root_is_made_absolute_and_said(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.INFO, "pulsar_spark")
    caplog.set_level(logging.INFO)
    client = pulsar.Client("delta:some/root", logger=logging.getLogger("mine"))
    monkeypatch.chdir("/")
    client.create_producer("t").send(b"x")
    client.close()
    assert (tmp_path / "some" / "root" / "public" / "default" / "t").is_dir()
    assert [record.getMessage() for record in caplog.records if record.name == "mine"] == [
        f"root 'some/root' is relative and means {tmp_path / 'some' / 'root'}"
    ]
    caplog.clear()
    monkeypatch.chdir(tmp_path)
    Broker(None, "other")
    assert caplog.messages == [f"root 'other' is relative and means {tmp_path / 'other'}"]


@pytest.mark.parametrize(
    "below",
    ["file/root", "file", "file/a/b", "loop/root", "/proc/pulsar", "/sys/pulsar/root", "/dev/null", "/dev/null/x"],
)
def test_a_root_that_cannot_be_made_is_refused_by_name(tmp_path, below):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(pulsar.NotARoot, match="root "):
        pulsar.Client(f"delta:{tmp_path / below}")
    with pytest.raises(pulsar.NotARoot):
        Admin(f"delta:{tmp_path / below}").create_topic("t")
    with pytest.raises(pulsar.NotARoot):
        Admin(f"delta:{tmp_path / below}").list_topics()
    with pytest.raises(pulsar.PulsarSparkError):
        Admin(f"delta:{tmp_path / below}").stats("t")
    assert sorted(os.listdir(tmp_path)) == before and (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_the_right_to_write_is_refused_by_name(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o555)
    with pytest.raises(pulsar.NotARoot, match="Permission denied"):
        pulsar.Client(f"delta:{tmp_path / 'closed' / 'root'}")


def test_a_right_that_is_missing_is_told(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied", "x.lock")

    monkeypatch.setattr("pulsar_spark.storage.delta.definitions.append_lock", refuse)
    with pytest.raises(pulsar.NotARoot, match="Permission denied"):
        pulsar.Client(f"delta:{tmp_path / 'root'}")
