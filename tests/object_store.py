"""An S3 server in the process of the tests (``moto``), for roots in an object store."""

import contextlib
import logging
import os
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest

from pulsar_spark.storage import object_store, store_bucket
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.topics import prepare_root
from pulsar_spark.table_specs import MESSAGES

LOCAL, S3 = "local", "s3"
BUCKET = "pulsar-spark-tests"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "tests",
    "AWS_SECRET_ACCESS_KEY": "not-a-secret-of-anybody",
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
}


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


@contextlib.contextmanager
def asking(url: str, **more: str) -> Iterator[None]:
    """Let the stores of this process, and of those it starts, be at *url*."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": url, **more}.items():
            patch.setenv(name, value)
        object_store.bucket_at.cache_clear()
        try:
            yield
        finally:
            object_store.bucket_at.cache_clear()


def new_root() -> str:
    """The URL of a root that nobody has used."""
    return f"s3://{BUCKET}/{uuid.uuid4().hex[:12]}"


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
