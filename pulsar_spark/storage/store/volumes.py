"""Volumes of Unity Catalog as roots: where one lies in an object store, and credentials lent for it.

A mounted volume (``/Volumes``) has neither hard links nor conditional puts, so the store beneath is used.
"""

import errno
import logging
import os
import re
import threading
import time
from datetime import datetime, timezone
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from pulsar_spark.errors import ConnectError, InvalidUrl, NotARoot
from pulsar_spark.storage.store.store_kinds import AZURE, AZURE_KEYS, AZURE_SECRETS, KINDS, S3, VOLUMES, kind_of

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient
    from databricks.sdk.service.catalog import GenerateTemporaryVolumeCredentialResponse

ANSWER_SECONDS, RETRY_SECONDS = 20, 10
"""Limits for one request, and for all its tries."""
ASK_SECONDS, LEFT_SECONDS, PAUSE_SECONDS = 900, 30, 10
"""Seconds before expiry from which one thread requests new credentials, and from which nothing new begins; seconds
between tries.
"""
GRANTS = "enable external access for the metastore, and grant EXTERNAL USE SCHEMA, READ VOLUME and WRITE VOLUME"
WHO = "set DATABRICKS_HOST and DATABRICKS_TOKEN, or log in with Databricks' client"
_OF_DELTA = {
    "access_key_id": "AWS_ACCESS_KEY_ID",
    "secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "token": "AWS_SESSION_TOKEN",
    "sas_token": "AZURE_STORAGE_SAS_TOKEN",
}
"""Names of credentials for ``obstore``, and for ``deltalake``."""
_PLACE = re.compile(r"[a-z0-9]+://[A-Za-z0-9@._-]+(?:/[A-Za-z0-9._=-]+)*")
log = logging.getLogger(__name__)


class Lent(NamedTuple):
    """A store's credentials, as ``obstore`` names them, valid until (seconds since 1970)."""

    credentials: dict[str, str]
    until: float

    def __repr__(self) -> str:
        return f"{type(self).__name__}(until={self.until!r})"


class Volume:
    """A volume by *url*, and its ``location`` in a store; safe for threads.

    :class:`NotARoot` if missing, :class:`ConnectError` if the catalog refuses, :class:`InvalidUrl` for an unsupported
    location.
    """

    def __init__(self, url: str):
        self.url = url
        self._name = url.removeprefix(VOLUMES).replace("/", ".")
        self._lock, self._again_at = threading.Lock(), time.monotonic() + PAUSE_SECONDS
        self._catalog = _catalog(url)
        self.location, self._id = self._where()
        self._lent = self._borrowed(is_first=True)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def lent(self) -> Lent:
        """Credentials, renewed early without blocking. A catalog outage raises OSError once they expire."""
        lent = self._lent
        left = lent.until - time.time()
        is_good = left > LEFT_SECONDS
        if left > ASK_SECONDS or (is_good and time.monotonic() < self._again_at):
            return lent
        if not self._lock.acquire(blocking=not is_good):
            return lent
        try:
            if self._lent is lent:
                self._again_at = time.monotonic() + PAUSE_SECONDS
                self._lent = self._borrowed()
        except OSError as fault:
            if not is_good:
                raise
            log.warning("%s: its credentials are valid for %.0f s more: %s", self.url, left, fault.strerror)
        finally:
            self._lock.release()
        return self._lent

    def for_obstore(self) -> dict[str, str | datetime]:
        """Credentials with their expiry, for ``obstore``."""
        lent = self.lent()
        return {**lent.credentials, "expires_at": datetime.fromtimestamp(lent.until, timezone.utc)}

    def for_delta(self) -> dict[str, str]:
        """Storage options of ``deltalake``, for a table opened now."""
        return {_OF_DELTA[name]: value for name, value in self.lent().credentials.items()}

    def _where(self) -> tuple[str, str]:
        from databricks.sdk.errors import DatabricksError, NotFound, PermissionDenied, Unauthenticated

        try:
            found = self._catalog.volumes.read(self._name)
        except NotFound as missing:
            raise NotARoot(
                f"root {self.url!r}: the catalog has no volume {self._name!r}: create it, or give another root"
            ) from missing
        except (PermissionDenied, Unauthenticated) as refused:
            raise ConnectError(
                f"root {self.url!r}: the catalog refuses the credentials ({_reason(refused)}): {WHO}, as a user "
                "with READ VOLUME and WRITE VOLUME"
            ) from refused
        except (DatabricksError, OSError, ValueError) as fault:
            raise _no_answer(self.url, fault) from fault
        location = (found.storage_location or "").rstrip("/")
        if not _PLACE.fullmatch(location):
            raise InvalidUrl(
                f"root {self.url!r}: the volume lies at {location!r}, which has characters other than "
                "letters, digits, and - _ . ="
            )
        if not location.startswith(tuple(KINDS)) or kind_of(location) not in (S3, AZURE):
            raise InvalidUrl(
                f"root {self.url!r}: the volume lies at {location.partition(':')[0]!r}, for whose passing credentials "
                f"there is no client: give a volume in {S3.name} or {AZURE.name}, or a root in a bucket of its own"
            )
        # deltalake would use these instead of the lent credentials.
        own = [name for name in (*AZURE_KEYS, *AZURE_SECRETS) if name in os.environ]
        if kind_of(location) is AZURE and own:
            raise ConnectError(
                f"root {self.url!r}: {' and '.join(own)} would replace the catalog's credentials: unset it, "
                "or give a root in a container of its own"
            )
        return location, str(found.volume_id)

    def _borrowed(self, *, is_first: bool = False) -> Lent:
        from databricks.sdk.errors import DatabricksError, PermissionDenied
        from databricks.sdk.service.catalog import VolumeOperation

        lend = self._catalog.temporary_volume_credentials.generate_temporary_volume_credentials
        try:
            return _lent(lend(operation=VolumeOperation.WRITE_VOLUME, volume_id=self._id))
        except (DatabricksError, OSError, ValueError) as fault:  # ValueError if no login works any more
            if not is_first:
                raise OSError(errno.EIO, f"the catalog gives no credentials: {_reason(fault)}", self.url) from fault
            if not isinstance(fault, PermissionDenied):
                raise _no_answer(self.url, fault) from fault
            raise ConnectError(
                f"root {self.url!r}: the catalog gives no credentials for the volume ({_reason(fault)}): {GRANTS}"
            ) from fault


_opened: dict[str, str] = {}


@lru_cache
def volume_at(url: str) -> Volume:
    found = Volume(url)
    _opened[found.location] = url
    return found


def named(place: str) -> str:
    """A place by the URL of its volume, if this process uses that; else as it is."""
    for location, url in tuple(_opened.items()):
        if place.startswith(f"{location}/"):
            return url + place.removeprefix(location)
    return place


def _catalog(url: str) -> "WorkspaceClient":
    try:
        from databricks.sdk import WorkspaceClient
        from databricks.sdk.core import Config
    except ImportError as missing:
        raise InvalidUrl(
            f"root {url!r} is in a volume, for which a library is missing: pip install 'pulsar_spark[dbfs]'"
        ) from missing
    of_client = logging.getLogger("databricks.sdk")
    of_client.setLevel(max(of_client.getEffectiveLevel(), logging.INFO))  # below that it logs credentials
    try:
        return WorkspaceClient(config=Config(http_timeout_seconds=ANSWER_SECONDS, retry_timeout_seconds=RETRY_SECONDS))
    except ValueError as unclear:
        raise ConnectError(
            f"root {url!r}: the environment has no address and user of the catalog ({_reason(unclear)}): {WHO}"
        ) from None


def _lent(answer: "GenerateTemporaryVolumeCredentialResponse") -> Lent:
    aws, azure = answer.aws_temp_credentials, answer.azure_user_delegation_sas
    given: dict[str, str | None] = {}
    if aws is not None:
        given = {
            "access_key_id": aws.access_key_id,
            "secret_access_key": aws.secret_access_key,
            "token": aws.session_token,
        }
    elif azure is not None:
        given = {"sas_token": azure.sas_token}
    credentials = {name: value for name, value in given.items() if value is not None}
    if not credentials or answer.expiration_time is None:
        raise OSError(errno.EIO, "its answer has no credentials of a supported store")
    return Lent(credentials, answer.expiration_time / 1000)


def _no_answer(url: str, fault: Exception) -> ConnectError:
    return ConnectError(
        f"root {url!r}: the catalog does not answer ({_reason(fault)}): check that DATABRICKS_HOST "
        "is its address, and the network"
    )


def _reason(error: Exception) -> str:
    """The catalog's own message, without its client's configuration."""
    return re.split(r"\.? Config: |\n", str(error))[0][:300]


def location_of(url: str) -> str:
    """Where a bucket or, by its catalog, a volume lies."""
    return volume_at(url).location if url.startswith(VOLUMES) else url
