"""Kinds of object stores: their URLs, their variables in the environment, and their differences under ``obstore``."""

import re
from typing import NamedTuple

_PASSWORD = re.compile(r"(?<=://)[^\s/:]*:\S*@")


class Kind(NamedTuple):
    """One kind. *bucket* matches the URL's part before the first slash; *who* and *where* are advice to users.

    *no_bucket* and *nobody* are codes for a missing bucket and bad credentials.
    """

    scheme: str
    name: str
    example: str
    bucket: re.Pattern[str]
    allow_http: str
    """The environment variable that permits calls without encryption."""
    who: str
    where: str
    bucket_name: str
    no_bucket: frozenset[str]
    nobody: frozenset[str]
    removed_a_call: int
    """Objects removed per call. For a missing one S3 is silent, Azure removes the others, Google gets one call for
    each.
    """
    has_last_bytes: bool = True
    """Can a read name a number of last bytes?"""
    lists_from_a_name: bool = True
    """Can a list begin after a name?"""


S3 = Kind(
    scheme="s3",
    name="S3",
    example="s3://<bucket>/<folder>",
    bucket=re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"),
    allow_http="AWS_ALLOW_HTTP",
    who="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN for those of a session), or give "
    "the machine a role",
    where="AWS_ENDPOINT_URL if the store is not Amazon's",
    bucket_name="bucket",
    no_bucket=frozenset({"NoSuchBucket"}),
    nobody=frozenset(
        {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken", "InvalidClientTokenId"}
    ),
    removed_a_call=1000,
)
AZURE = Kind(
    scheme="abfss",
    name="Azure",
    example="abfss://<container>@<account>.dfs.core.windows.net/<folder>",
    bucket=re.compile(r"[a-z0-9](?:-?[a-z0-9]){2,62}@[a-z0-9]{3,24}\.dfs\.core\.windows\.net"),
    allow_http="AZURE_ALLOW_HTTP",
    who="set AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, or AZURE_CLIENT_ID, AZURE_CLIENT_SECRET and "
    "AZURE_TENANT_ID, or give the machine an identity",
    where="AZURE_STORAGE_ENDPOINT if the store is not Azure's",
    bucket_name="container",
    no_bucket=frozenset({"ContainerNotFound", "ContainerBeingDeleted"}),
    nobody=frozenset({"AuthenticationFailed", "InvalidAuthenticationInfo", "NoAuthenticationInformation"}),
    removed_a_call=256,
    has_last_bytes=False,
    lists_from_a_name=False,
)
GOOGLE = Kind(
    scheme="gs",
    name="Google Cloud Storage",
    example="gs://<bucket>/<folder>",
    bucket=re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]"),
    allow_http="GOOGLE_ALLOW_HTTP",
    who="set GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT to the file of a service account's key, or give "
    "the machine a service account",
    where="GOOGLE_BASE_URL if the store is not Google's",
    bucket_name="bucket",
    no_bucket=frozenset({"NoSuchBucket"}),
    nobody=frozenset({"AuthenticationRequired", "InvalidSecurity", "ExpiredToken"}),
    removed_a_call=1,
)
KINDS = {f"{kind.scheme}://": kind for kind in (S3, AZURE, GOOGLE)}
AZURE_KEYS = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_MASTER_KEY")
AZURE_SECRETS = ("AZURE_STORAGE_CLIENT_SECRET", "AZURE_CLIENT_SECRET")
"""Environment variables with an account's key, and with a client's secret."""
VOLUMES, VOLUME = "dbfs:/Volumes/", "dbfs:/Volumes/<catalog>/<schema>/<volume>/<folder>"
"""The prefix of a volume's URL, which lies in a store of one of these kinds, and an example."""
SCHEMES = (*KINDS, VOLUMES)
EXAMPLES = ", ".join((*(kind.example for kind in KINDS.values()), VOLUME))


def kind_of(url: str) -> Kind:
    return KINDS[url[: url.index("://") + 3]]


def without_password(text: str) -> str:
    """Hide user and password of URLs in a text.

    >>> without_password("s3://key:secret@bucket/x")
    's3://...@bucket/x'
    """
    return _PASSWORD.sub("...@", text)
