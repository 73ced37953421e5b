"""Buckets of object stores: names, opening by ``obstore``, and whether a root may lie in one.

Credentials come from the environment; they are never kept, written or printed.
"""

import contextlib
import os
import re
import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from pulsar_spark.errors import ConnectError, InvalidUrl, NotARoot
from pulsar_spark.storage.store.object_path import ObjectPath
from pulsar_spark.storage.store.store_kinds import SCHEMES, VOLUMES, kind_of
from pulsar_spark.storage.store.volumes import location_of, volume_at

if TYPE_CHECKING:
    from obstore.store import ClientConfig
    from obstore.store import ObjectStore as Raw

ANSWER_SECONDS, CONNECT_SECONDS, RETRY_SECONDS = 20, 5, 30
"""Limits for one request, its connection, and all its tries."""

_OF_A_KEY = re.compile(r": Invalid (last )?symbol.*")
"""The part of an error that shows a character of a key."""


class Place(NamedTuple):
    bucket: str
    key: str


def place_of(url: str) -> Place | None:
    """The place of a URL; None if it names no object store.

    >>> place_of("s3://bucket/pulsar/public")
    Place(bucket='s3://bucket', key='pulsar/public')
    >>> place_of("dbfs:/Volumes/main/ops/pulsar/roots/first")
    Place(bucket='dbfs:/Volumes/main/ops/pulsar', key='roots/first')
    """
    if not url.startswith(SCHEMES):
        return None
    if url.startswith(VOLUMES):
        *names, key = [*url.removeprefix(VOLUMES).split("/", 3), "", "", ""][:4]
        return Place(f"{VOLUMES}{'/'.join(names)}", key)
    scheme, _, rest = url.partition("://")
    bucket, _, key = rest.partition("/")
    return Place(f"{scheme}://{bucket}", key)


def open_bucket(url: str, *, is_hasty: bool = False, is_once: bool = False) -> "Raw":
    """Open a bucket; *is_hasty* gives up soon, *is_once* never retries.

    :class:`InvalidUrl` without the library, :class:`ConnectError` for invalid credentials; also errors of
    :class:`~pulsar_spark.storage.store.volumes.Volume`.
    """
    try:
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ImportError as missing:
        raise InvalidUrl(
            f"root {url!r} is in an object store, for which a library is missing: pip install "
            f"'pulsar_spark[{url.partition(':')[0]}]'"
        ) from missing
    location = location_of(url)
    kind = kind_of(location)
    lent: Any = volume_at(url).for_obstore if location != url else None
    tries, seconds = (1, 2 * CONNECT_SECONDS) if is_hasty else (0 if is_once else 10, RETRY_SECONDS)
    client: ClientConfig = {
        "allow_http": os.environ.get(kind.allow_http, "").lower() in ("true", "1"),
        "timeout": f"{ANSWER_SECONDS}s",
        "connect_timeout": f"{min(2, CONNECT_SECONDS) if is_hasty else CONNECT_SECONDS}s",
    }
    try:
        return from_url(
            location,
            client_options=client,
            retry_config={"max_retries": tries, "retry_timeout": timedelta(seconds=seconds)},
            credential_provider=lent,
        )
    except (BaseError, ValueError) as error:
        reason = _OF_A_KEY.sub("", str(error).partition("\n")[0])
        raise ConnectError(
            f"root {url!r}: the environment's settings for its store are not valid ({reason}): {kind.who}"
        ) from None


def check_bucket(url: str, root: ObjectPath, folder: ObjectPath) -> None:
    """Check by calls in *folder* that a root may lie there.

    :class:`ConnectError` or :class:`NotARoot` name what is missing: bucket, rights or conditional puts.
    """
    import obstore
    from obstore.exceptions import AlreadyExistsError, BaseError

    from pulsar_spark.storage.store.store_errors import what_is_wrong

    raw, probe = open_bucket(url, is_hasty=True), f"{folder.key}/.probe-{uuid.uuid4().hex}"
    try:
        next(iter(obstore.list(raw, prefix=root.key, chunk_size=1)), None)
        obstore.put(raw, probe, b"first", mode="create")
        with contextlib.suppress(AlreadyExistsError):
            obstore.put(raw, probe, b"second", mode="create")
            raise NotARoot(
                f"root {str(root)!r}: the store ignores conditional puts, which every commit needs: give a "
                "root in a store that supports them"
            )
        obstore.delete(raw, [probe])
    except (BaseError, FileNotFoundError) as error:
        raise what_is_wrong(error, url, str(root)) from None
