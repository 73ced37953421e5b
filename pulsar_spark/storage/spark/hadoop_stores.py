"""Settings of Hadoop's object store clients, from the environment that all clients use, without credentials."""

import os
from collections.abc import Mapping

from pulsar_spark.storage.store.store_kinds import AZURE, AZURE_KEYS, AZURE_SECRETS, GOOGLE, S3, Kind

CLIENTS = {
    S3: "org.apache.hadoop.fs.s3a.S3AFileSystem",
    AZURE: "org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem",
    GOOGLE: "org.apache.hadoop.fs.gs.GoogleHadoopFileSystem",
}
_AZURE_TOKENS = "org.apache.hadoop.fs.azurebfs.oauth2."


def served_by(kind: Kind) -> str:
    return f"fs.{kind.scheme}.impl"


def store_settings(kind: Kind, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Hadoop's settings for a kind of store.

    >>> store_settings(S3, {"AWS_REGION": "eu-central-1"})["fs.s3a.endpoint.region"]
    'eu-central-1'
    >>> store_settings(AZURE, {"AZURE_STORAGE_ACCOUNT_KEY": "secret"})["fs.azure.account.key"]
    '${env.AZURE_STORAGE_ACCOUNT_KEY}'
    """
    return {served_by(kind): CLIENTS[kind], **{S3: _s3, AZURE: _azure, GOOGLE: _google}[kind](environment)}


def _s3(environment: Mapping[str, str]) -> dict[str, str]:
    found = {"fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A"}
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    if region:
        found["fs.s3a.endpoint.region"] = region
    address = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    if address:
        found["fs.s3a.endpoint"], found["fs.s3a.path.style.access"] = address, "true"
        found["fs.s3a.connection.ssl.enabled"] = "false" if address.startswith("http:") else "true"
    return found


def _azure(environment: Mapping[str, str]) -> dict[str, str]:
    """The first of ``obstore``'s ways: key, client secret, signature, the machine's identity."""

    def first_of(*names: str) -> str | None:
        return next((f"${{env.{name}}}" for name in names if environment.get(name)), None)

    key = first_of(*AZURE_KEYS)
    if key:
        return {"fs.azure.account.auth.type": "SharedKey", "fs.azure.account.key": key}
    client = first_of("AZURE_STORAGE_CLIENT_ID", "AZURE_CLIENT_ID")
    secret = first_of(*AZURE_SECRETS)
    tenant = first_of(
        *("AZURE_STORAGE_TENANT_ID", "AZURE_STORAGE_AUTHORITY_ID", "AZURE_TENANT_ID", "AZURE_AUTHORITY_ID")
    )
    if client and secret and tenant:
        return {
            "fs.azure.account.auth.type": "OAuth",
            "fs.azure.account.oauth.provider.type": f"{_AZURE_TOKENS}ClientCredsTokenProvider",
            "fs.azure.account.oauth2.client.endpoint": f"https://login.microsoftonline.com/{tenant}/oauth2/token",
            "fs.azure.account.oauth2.client.id": client,
            "fs.azure.account.oauth2.client.secret": secret,
        }
    signature = first_of("AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_SAS_TOKEN")
    if signature:
        return {"fs.azure.account.auth.type": "SAS", "fs.azure.sas.fixed.token": signature}
    return {
        "fs.azure.account.auth.type": "OAuth",
        "fs.azure.account.oauth.provider.type": f"{_AZURE_TOKENS}MsiTokenProvider",
    }


def _google(environment: Mapping[str, str]) -> dict[str, str]:
    file = environment.get("GOOGLE_SERVICE_ACCOUNT") or environment.get("GOOGLE_SERVICE_ACCOUNT_PATH")
    if file:
        return {"fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE", "fs.gs.auth.service.account.json.keyfile": file}
    return {"fs.gs.auth.type": "APPLICATION_DEFAULT"}
