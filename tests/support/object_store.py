"""Stores of the tests, for roots that lie in one: an S3 server (``moto``), one like Google's and a catalog that lends a
volume in the first, in this process; and an emulator of Azure's, ``azurite``, that somebody has started
(``AZURITE_BLOB_STORAGE_URL``) and given a container."""

import contextlib
import json
import logging
import os
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest

from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.store import object_store, store_bucket, volumes
from pulsar_spark.storage.topics.topics import prepare_root
from pulsar_spark.table_specs import MESSAGES
from tests.support.unity_catalog import TOKEN

LOCAL, S3, GS, ABFSS, DBFS = "local", "s3", "gs", "abfss", "dbfs"
BUCKET = "pulsar-spark-tests"
VOLUME = "main.ops.pulsar"
URLS = {
    S3: f"s3://{BUCKET}",
    GS: f"gs://{BUCKET}",
    ABFSS: f"abfss://{BUCKET}@devstoreaccount1.dfs.core.windows.net",
    DBFS: f"dbfs:/Volumes/{VOLUME.replace('.', '/')}",
}
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "tests",
    "AWS_SECRET_ACCESS_KEY": "not-a-secret-of-anybody",
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
}
LENT = {
    "aws_temp_credentials": {
        "access_key_id": CREDENTIALS["AWS_ACCESS_KEY_ID"],
        "secret_access_key": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        "session_token": "lent-for-an-hour",
    }
}
"""What a catalog lends for the volume."""
_asked = [S3]


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    """The server, with a bucket in it, as long as the block; its URL."""
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    client = boto3.client(
        "s3",
        endpoint_url=url,
        region_name=CREDENTIALS["AWS_REGION"],
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    )
    client.create_bucket(Bucket=BUCKET)
    try:
        yield url
    finally:
        server.stop()


def environment(store: str, url: str) -> dict[str, str]:
    """The variables by which a store at *url* is found."""
    if store == GS:
        who = {"client_email": "", "private_key": "", "private_key_id": ""}
        key = json.dumps({"gcs_base_url": url, "disable_oauth": True, **who})
        return {"GOOGLE_SERVICE_ACCOUNT_KEY": key, "GOOGLE_ALLOW_HTTP": "true"}
    if store == ABFSS:
        return {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURE_ALLOW_HTTP": "true", "AZURITE_BLOB_STORAGE_URL": url}
    return {**CREDENTIALS, "AWS_ENDPOINT_URL": url}


def lending(url: str, catalog: str) -> dict[str, str]:
    """The variables by which a volume that a *catalog* lends is found in an S3 server at *url*: of who may use that
    they say nothing."""
    found = {name: value for name, value in environment(S3, url).items() if "KEY" not in name}
    return {**found, "DATABRICKS_HOST": catalog, "DATABRICKS_TOKEN": TOKEN}


@contextlib.contextmanager
def asking(url: str, store: str = S3, **more: str) -> Iterator[None]:
    """Let the stores of this process, and of those it starts, be at *url*, and new roots in one of them."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "DATABRICKS_"))]:
            patch.delenv(name)
        for name, value in {**(environment(store, url) if store != DBFS else {}), **more}.items():
            patch.setenv(name, value)
        _forget()
        _asked.append(store)
        try:
            yield
        finally:
            _asked.pop()
            _forget()


def _forget() -> None:
    object_store.bucket_at.cache_clear()
    volumes.volume_at.cache_clear()


def new_root() -> str:
    """The URL of a root that nobody has used, in the store that is asked."""
    return f"{URLS[_asked[-1]]}/{uuid.uuid4().hex[:12]}"


def new_layout() -> Layout:
    """Such a root with its bundle's tables."""
    found = Layout(new_root())
    prepare_root(found)
    return found


def wait_shortly(patch: pytest.MonkeyPatch) -> None:
    """Let nobody wait long for an answer."""
    patch.setattr(store_bucket, "ANSWER_SECONDS", 2)
    patch.setattr(store_bucket, "RETRY_SECONDS", 1)


def messages(publish_id: str) -> pa.Table:
    """One message, as a publish of this id."""
    return MESSAGES.rows([dict(publish_id=publish_id, entry_id=0, batch_size=1, partition=-1, publish_time=0)])


def published(path) -> list[str]:
    """The publish of each commit of a topic, in order, each of whose files is there."""
    added = [file for commit in TableLog(path).commits(0) for file in commit.added]
    assert all((path / file.path).is_file() for file in added), "a commit names what is not there"
    return [file.min_values["publish_id"] for file in added]
