"""Errors of an object store as this package's, without credentials."""

import errno
import re

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

from pulsar_spark.errors import ConnectError, InvalidRequest, NotARoot
from pulsar_spark.storage.store.store_kinds import VOLUMES, kind_of, without_password
from pulsar_spark.storage.store.volumes import GRANTS, location_of

_CODE = re.compile(r"<Code>(\w+)</Code>")
_CREDENTIALS = (
    "169.254.",
    "/latest/api/token",
    "ssoCredentials",
    "AssumeRole",
    "SecurityTokenService",
    "token request",
    "azure-cli",
)
_REGION = {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
_LENDING = "credential provider: "
"""Marks a catalog's refusal to renew credentials, which ``obstore`` reports as the store's refusal."""
_QUERY = re.compile(r"(?<=\w)\?\S*")
"""The part of a URL in which Azure's clients authenticate."""


def as_fault(error: BaseError, name: str) -> OSError:
    """An error of one call on *name*, for callers that retry or wait."""
    number = errno.EACCES if _is_refused(error) else errno.EIO
    return OSError(number, f"{code_of(error)}: {_first_line(error)}", name)


def code_of(error: Exception) -> str:
    """The store's code, such as ``NoSuchBucket``, or the kind of error."""
    found = _CODE.search(str(error))
    return found[1] if found else type(error).__name__


def what_is_wrong(error: BaseError | FileNotFoundError, url: str, root: str) -> InvalidRequest:
    """The error of a root's first calls, with advice; *url* is the bucket's."""
    code, text, kind = code_of(error), str(error), kind_of(location_of(url))
    who = GRANTS if url.startswith(VOLUMES) else kind.who
    if code in kind.no_bucket:
        return NotARoot(f"root {root!r}: {kind.bucket_name} {url!r} does not exist: create it, or give another root")
    if code in _REGION or "incorrectly configured region" in text:
        return ConnectError(
            f"root {root!r}: the bucket {url!r} lies in another region ({code}): set AWS_REGION to the bucket's"
        )
    if code in kind.nobody:
        return ConnectError(f"root {root!r}: the store does not accept the credentials ({code}): {who}")
    if any(words in text for words in _CREDENTIALS):
        return ConnectError(f"root {root!r}: there are no credentials for {url!r}: {who}")
    if _is_refused(error):
        return ConnectError(
            f"root {root!r}: the store refuses access ({code}): allow these credentials to list {url!r}, and "
            "to read, write and remove objects in it"
        )
    return ConnectError(
        f"root {root!r}: {url!r} does not answer ({_first_line(error)}): check the network, and {kind.where}"
    )


def _is_refused(error: Exception) -> bool:
    if _LENDING in str(error):
        return False
    return isinstance(error, PermissionDeniedError | UnauthenticatedError) or "403 Forbidden" in str(error)


def _first_line(error: Exception) -> str:
    line = str(error).partition("\n")[0].partition("<")[0]
    return _QUERY.sub("?...", without_password(line)).strip()[:300]
