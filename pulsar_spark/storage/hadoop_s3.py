"""How Hadoop's client of S3, which is Spark's, finds a store: settings by the environment that everybody else goes by,
too (see object_store).

A root keeps its name: sessions are told that this client serves ``s3://``, as platforms tell theirs. Who a process is
Hadoop finds out from the environment (``AWS_ACCESS_KEY_ID``..., or a role of the machine), on each machine where tasks
run: no credentials are put into a setting, where Spark would show them.
"""

import os
from collections.abc import Mapping

CLIENT = "org.apache.hadoop.fs.s3a.S3AFileSystem"
SERVED_BY = "fs.s3.impl"


def store_settings(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The settings, by Hadoop's names.

    >>> store_settings({"AWS_REGION": "eu-central-1"})["fs.s3a.endpoint.region"]
    'eu-central-1'
    """
    found = {SERVED_BY: CLIENT, "fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A"}
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    if region:
        found["fs.s3a.endpoint.region"] = region
    address = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    if address:
        found["fs.s3a.endpoint"], found["fs.s3a.path.style.access"] = address, "true"
        found["fs.s3a.connection.ssl.enabled"] = "false" if address.startswith("http:") else "true"
    return found
