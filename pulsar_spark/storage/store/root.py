"""Parse a root: a local folder, or a URL of an object store. Other URLs are refused, not taken for local folders."""

import logging
import os
import re
from pathlib import Path
from urllib.parse import unquote

from pulsar_spark.errors import InvalidUrl
from pulsar_spark.storage.store.object_path import ObjectPath
from pulsar_spark.storage.store.object_store import bucket_at
from pulsar_spark.storage.store.store import AnyPath, StrPath
from pulsar_spark.storage.store.store_bucket import Place, place_of
from pulsar_spark.storage.store.store_kinds import EXAMPLES, VOLUME, VOLUMES, kind_of, without_password

MAX_ROOT_BYTES = 3000
"""Linux paths have at most 4,096 bytes, and a root's tables add up to some 900."""

MAX_URL_BYTES = 300
"""Names in a bucket have at most 1,024 bytes, and a root's tables add up to some 700."""
_MAX_NAME_BYTES = 255
_MOUNTED = "/Volumes/"
"""Where Databricks mounts volumes; elsewhere an ordinary folder."""
_NAME_IN_CATALOG = re.compile(r"[A-Za-z0-9_-]{1,255}")
_KEY = re.compile(r"[A-Za-z0-9._=-]+")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_FILE_URL = re.compile(r"file:(?://)?(?=/(?!/))", re.IGNORECASE)
_ADVICE = "give the folder of the tables, such as /data/pulsar"
log = logging.getLogger(__name__)


def parse_root(given: StrPath, logger: logging.Logger = log) -> AnyPath:
    """The absolute folder, or the place in an object store; else :class:`InvalidUrl`. Relative folders are logged.

    >>> parse_root("file:///data/pulsar").as_posix()
    '/data/pulsar'
    """
    if isinstance(given, ObjectPath):
        return given
    try:
        text = os.fspath(given)
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise InvalidUrl(f"root {given!r} is neither a text nor a path: {_ADVICE}")
    if text.startswith(_MOUNTED) and on_databricks():
        text = VOLUMES + text.removeprefix(_MOUNTED)
    if place := place_of(text):
        return _parse_url(text, place)
    if _FILE_URL.match(text):
        text = unquote(_FILE_URL.sub("", text))
    _check(text)
    try:
        root = Path(text).expanduser()
        absolute = root.absolute()
        parts = [os.fsencode(part) for part in absolute.parts]
    except (RuntimeError, FileNotFoundError, UnicodeEncodeError) as error:
        raise InvalidUrl(f"root {text!r} is not the name of a folder ({error}): {_ADVICE}") from error
    if max(map(len, parts)) > _MAX_NAME_BYTES or len(os.fsencode(absolute)) > MAX_ROOT_BYTES:
        raise InvalidUrl(
            f"root {text[:40]!r}... is too long: a folder's name takes at most {_MAX_NAME_BYTES} bytes, all of "
            f"them {MAX_ROOT_BYTES}"
        )
    if not root.is_absolute():
        logger.info("root %r is relative and means %s", text, absolute)
    return absolute


def on_databricks() -> bool:
    return "DATABRICKS_RUNTIME_VERSION" in os.environ


def _parse_url(text: str, place: Place) -> ObjectPath:
    called, example = "volume", VOLUME
    if text.startswith(VOLUMES):
        names = place.bucket.removeprefix(VOLUMES)
        is_named = all(map(_NAME_IN_CATALOG.fullmatch, names.split("/")))
        place = place._replace(bucket=VOLUMES + names.lower())  # a catalog ignores case
    else:
        kind = kind_of(text)
        called, example = kind.bucket_name, kind.example
        is_named = bool(kind.bucket.fullmatch(place.bucket.partition("://")[2]))
    parts = [part for part in place.key.split("/") if part]
    if not is_named or any(part in (".", "..") or not _KEY.fullmatch(part) for part in parts):
        raise InvalidUrl(
            f"root {without_password(text)[:80]!r} is not a folder in a {called}: give {example}; the folder "
            "may have letters, digits, and - _ . ="
        )
    if not parts:
        raise InvalidUrl(f"root {text!r} is a whole {called}: give a folder in it, such as {text}/pulsar")
    if len(text) > MAX_URL_BYTES:
        raise InvalidUrl(f"root {text[:40]!r}... is too long: it takes at most {MAX_URL_BYTES} characters")
    found = ObjectPath(bucket_at(place.bucket), "/".join(parts))
    if len(found.store.location) + len(found.key) > MAX_URL_BYTES:
        raise InvalidUrl(f"root {text!r} lies at {found.store.location!r}, which makes it too long: give another one")
    return found


def _check(text: str) -> None:
    if not text.strip():
        raise InvalidUrl(f"root {text!r} is empty: {_ADVICE}")
    if text != text.strip() or not text.isprintable():
        raise InvalidUrl(
            f"root {without_password(text)!r} begins or ends with a space, or has characters that cannot be printed: "
            f"{_ADVICE}"
        )
    if _SCHEME.match(text) or "://" in text or (text.startswith("//") and not text.startswith("///")):
        raise InvalidUrl(
            f"root {without_password(text)!r} is neither a local folder nor in a supported store "
            f"({EXAMPLES}); {_ADVICE}, or the folder where the store is mounted"
        )
