"""Roots in a volume that a catalog lends: how they are named, what is wrong with them, and credentials that end; all
else of a root runs there by ``--store dbfs``."""

import errno
import pickle
import sys
import traceback
from pathlib import Path
from unittest.mock import Mock

import pytest
from databricks.sdk.service.catalog import (
    AzureUserDelegationSas,
    GcpOauthToken,
    GenerateTemporaryVolumeCredentialResponse,
)
from deltalake.exceptions import DeltaError

import pulsar_spark as pulsar
from pulsar_spark.errors import ConnectError, InvalidConfiguration, InvalidUrl, NotARoot
from pulsar_spark.storage.compaction.compacted import CompactedView, make_view
from pulsar_spark.storage.delta.scan import folder_of, open_table
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.spark import spark_root
from pulsar_spark.storage.store import object_store, volumes
from pulsar_spark.storage.topics.topics import create_topic, prepare_root
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.object_store import (
    CREDENTIALS,
    DBFS,
    URLS,
    asking,
    lending,
    messages,
    new_layout,
    new_root,
    published,
    wait_shortly,
)
from tests.support.unity_catalog import LEND, READ, TOKEN
from tests.support.waiting import send


@pytest.fixture
def layout(dbfs) -> Layout:
    return new_layout()


@pytest.fixture
def soon(monkeypatch):
    wait_shortly(monkeypatch)
    monkeypatch.setattr(volumes, "RETRY_SECONDS", 1)


def end_soon(layout: Layout, patch: pytest.MonkeyPatch) -> None:
    """Let what was lent, a while ago, be about to end."""
    patch.setattr(volumes, "ASK_SECONDS", 7200)
    patch.setattr(volumes.volume_at(layout.store.url), "_again_at", 0.0)


@pytest.mark.parametrize(
    "root",
    [
        "dbfs:/Volumes/main/ops",
        "dbfs:/Volumes/main/ops/pulsar",
        "dbfs:/Volumes/main/o.ps/pulsar/x",
        "dbfs:/Volumes/main/o ps/pulsar/x",
        "dbfs:/Volumes/main//pulsar/x",
        "dbfs:/Volumes/main/ops/pul%73ar/x",
        "dbfs:/Volumes/main/ops/pulsar?x/f",
        "dbfs:/Volumes/main/ops/pulsar/a b",
        "dbfs:/Volumes/main/ops/pulsar/../x",
        "dbfs:/pulsar",
    ],
)
def test_what_names_no_folder_of_a_volume(root):
    with pytest.raises(
        InvalidUrl, match=r"dbfs:/Volumes/(<catalog>/<schema>/<volume>/<folder>|main/ops/pulsar/pulsar)"
    ):
        Layout(root)


def test_a_volume_is_a_folder_where_it_is_mounted_and_nowhere_else(dbfs, monkeypatch):
    there = URLS[DBFS].removeprefix("dbfs:")
    assert Layout(f"{there}/x").root == Path(f"{there}/x")
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    assert str(Layout(f"{there}/x//y/").root) == f"{URLS[DBFS]}/x/y" == str(Layout(f"{URLS[DBFS]}/x/y").root)
    assert Layout(f"{URLS[DBFS].replace('main', 'Main')}/x").root == Layout(f"{URLS[DBFS]}/x").root


def test_messages_go_through_it(dbfs):
    root = new_root()
    for first in ("a", "c"):
        with PlainBroker(root):
            client = pulsar.Client(f"delta:{root}")
            consumer = client.subscribe("t", "s", initial_position=pulsar.InitialPosition.Earliest)
            send(client, "t", first, chr(ord(first) + 1))
            received = [consumer.receive(60_000) for _ in range(2)]
            assert [message.data().decode() for message in received] == [first, chr(ord(first) + 1)]
            consumer.acknowledge_cumulative(received[-1])
            client.close()


def test_what_others_get_is_the_same_place(layout):
    topic = create_topic(layout, "t")
    AppendTable(topic.path).append(messages("p"))
    assert published(pickle.loads(pickle.dumps(topic.path))) == ["p"]
    assert folder_of(open_table(topic.path)) == str(topic.path)


def test_credentials_are_asked_for_again_before_they_end(layout, catalog, monkeypatch):
    """And once, as long as they are good."""
    topic = create_topic(layout, "t")
    open_table(topic.path)
    assert (catalog.asked[READ], catalog.asked[LEND]) == (1, 1)
    end_soon(layout, monkeypatch)
    AppendTable(topic.path).append(messages("p"))
    open_table(topic.path)
    assert (catalog.asked[READ], catalog.asked[LEND]) == (1, 2), "and then not soon again"


def test_what_is_good_is_used_while_a_catalog_refuses(layout, catalog, monkeypatch, caplog):
    topic = create_topic(layout, "t")
    end_soon(layout, monkeypatch)
    catalog.refusal[LEND] = 403, "PERMISSION_DENIED"
    assert open_table(topic.path).version() == 0 and catalog.asked[LEND] == 2
    assert "its credentials are valid for 3" in caplog.text and TOKEN not in caplog.text


@pytest.mark.parametrize("refusal", [(403, "PERMISSION_DENIED"), (400, "BAD_REQUEST")])
def test_a_catalog_that_refuses_later_is_a_fault_that_passes(layout, catalog, soon, monkeypatch, refusal):
    """Once what it lent has ended; whoever asks, we or the library that asks the store."""
    topic = create_topic(layout, "t")
    catalog.seconds = volumes.LEFT_SECONDS + 1
    monkeypatch.setattr(volumes, "ASK_SECONDS", 7200)
    open_table(topic.path)
    monkeypatch.setattr(volumes, "LEFT_SECONDS", 7200)
    catalog.refusal[LEND] = refusal
    anew = object_store.ObjectStore(layout.store.url)
    for ask in (lambda: open_table(topic.path), lambda: anew.head(layout.root / "x")):
        with pytest.raises(OSError) as failed:
            ask()
        assert failed.value.errno == errno.EIO
    catalog.refusal.clear()
    assert open_table(topic.path).version() == 0


def test_a_compacted_view_outlives_what_was_lent(layout, monkeypatch):
    topic = create_topic(layout, "t")
    make_view(topic)
    view = CompactedView(topic.path)
    monkeypatch.setattr(view._opened, "transaction_version", Mock(side_effect=DeltaError("the token has ended")))
    assert view.horizon(-1) == 0 and view.version == 0


def test_a_key_that_would_be_taken_for_what_is_lent_at_azure(dbfs, catalog, monkeypatch):
    catalog.location = "abfss://container@account.dfs.core.windows.net/volume"
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a-key")
    with pytest.raises(ConnectError, match="AZURE_STORAGE_ACCOUNT_KEY would replace"):
        Layout(new_root())


@pytest.mark.parametrize("location", ["s3://bucket/a b", f"s3://bucket/{'a' * 300}", None])
def test_a_volume_in_a_place_that_not_all_libraries_name_alike(dbfs, catalog, location):
    catalog.location = location
    with pytest.raises(InvalidUrl, match="lies at"):
        Layout(new_root())


@pytest.mark.parametrize(
    "path, refusal, error, said",
    [
        (READ, (404, "VOLUME_DOES_NOT_EXIST"), NotARoot, r"no volume 'main\.ops\.pulsar': create it"),
        (READ, (403, "PERMISSION_DENIED"), ConnectError, "set DATABRICKS_HOST and DATABRICKS_TOKEN.*READ VOLUME"),
        (READ, (401, "UNAUTHENTICATED"), ConnectError, "set DATABRICKS_HOST and DATABRICKS_TOKEN"),
        (READ, (400, "BAD_REQUEST"), ConnectError, "does not answer .*BAD_REQUEST in words"),
        (LEND, (403, "PERMISSION_DENIED"), ConnectError, "enable external access .* EXTERNAL USE SCHEMA"),
        (LEND, (400, "BAD_REQUEST"), ConnectError, "does not answer .*BAD_REQUEST in words"),
    ],
)
def test_what_is_wrong_with_a_volume_is_said_at_once(dbfs, catalog, path, refusal, error, said):
    catalog.refusal[path] = refusal
    with pytest.raises(error, match=said) as refused:
        prepare_root(Layout(new_root()))
    shown = "".join(traceback.format_exception(refused.value))
    assert TOKEN not in shown and CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in shown


def test_who_does_not_say_which_catalog(s3_url, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with (
        asking(s3_url, DBFS),
        pytest.raises(ConnectError, match="has no address and user of the catalog.*DATABRICKS_HOST"),
    ):
        Layout(new_root())


def test_a_catalog_that_is_not_there(s3_url, soon):
    with asking(s3_url, DBFS, **lending(s3_url, "http://127.0.0.1:1")):
        with pytest.raises(ConnectError, match="the catalog does not answer .*DATABRICKS_HOST"):
            Layout(new_root())


def test_without_the_library_it_is_named(dbfs, monkeypatch):
    monkeypatch.setitem(sys.modules, "databricks.sdk", None)
    with pytest.raises(InvalidUrl, match=r"pip install 'pulsar_spark\[dbfs\]'"):
        Layout(new_root())


def test_a_volume_at_a_store_whose_passing_credentials_nobody_takes(dbfs, catalog):
    catalog.location = "gs://bucket/volume"
    with pytest.raises(InvalidUrl, match="lies at 'gs', .*give a volume in S3 or Azure"):
        Layout(new_root())


def test_what_a_catalog_lends_at_azure():
    sas = AzureUserDelegationSas(sas_token="a-signature")
    lent = volumes._lent(GenerateTemporaryVolumeCredentialResponse(azure_user_delegation_sas=sas, expiration_time=5000))
    assert lent == ({"sas_token": "a-signature"}, 5.0) and "a-signature" not in repr(lent)
    with pytest.raises(OSError, match="no credentials of a supported store"):
        volumes._lent(GenerateTemporaryVolumeCredentialResponse(gcp_oauth_token=GcpOauthToken(oauth_token="x")))


def test_frames_read_it_on_databricks_alone(layout, monkeypatch):
    monkeypatch.setattr(spark_root, "has_context", lambda spark: True)
    with pytest.raises(InvalidConfiguration, match="volumes only on Databricks"):
        spark_root.check_store(Mock(), layout.root)
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    spark_root.check_store(Mock(), layout.root)
