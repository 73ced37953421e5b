"""A root as people give it: a local folder, as a text or a path; what is none is refused by name and never taken for a
folder.

``s3://bucket/x``, ``dbfs:/x`` or ``C:\\x`` are names that a folder could have too, so without this each would quietly
become one below the working directory. Such a folder, if somebody has one, is given as ``./s3:x`` or by its absolute
path.
"""

import logging
import os
import re
from pathlib import Path
from urllib.parse import unquote

from pulsar_spark.errors import InvalidUrl

MAX_ROOT_BYTES = 3000
"""A path has at most 4,096 bytes on Linux, and a root's tables lie up to some 900 below it."""

_MAX_NAME_BYTES = 255
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_FILE_URL = re.compile(r"file:(?://)?(?=/(?!/))", re.IGNORECASE)
_ADVICE = "give the folder of the tables, such as /data/pulsar"
log = logging.getLogger(__name__)


def parse_root(given: str | os.PathLike, logger: logging.Logger = log) -> Path:
    """The absolute folder meant; :class:`InvalidUrl` for what names none. A relative one is below the working
    directory, which *logger* is told.

    >>> parse_root("file:///data/pulsar").as_posix()
    '/data/pulsar'
    """
    try:
        text = os.fspath(given)
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise InvalidUrl(f"root {given!r} is no text and no path: {_ADVICE}")
    if _FILE_URL.match(text):
        text = unquote(_FILE_URL.sub("", text))
    _check(text)
    try:
        root = Path(text).expanduser()
        absolute = root.absolute()
        parts = [os.fsencode(part) for part in absolute.parts]
    except (RuntimeError, FileNotFoundError, UnicodeEncodeError) as error:
        raise InvalidUrl(f"root {text!r} is no folder's name ({error}): {_ADVICE}") from error
    if max(map(len, parts)) > _MAX_NAME_BYTES or len(os.fsencode(absolute)) > MAX_ROOT_BYTES:
        raise InvalidUrl(
            f"root {text[:40]!r}... is too long: a folder's name takes at most {_MAX_NAME_BYTES} bytes, all of "
            f"them {MAX_ROOT_BYTES}"
        )
    if not root.is_absolute():
        logger.info("root %r is relative: it is %s", text, absolute)
    return absolute


def _check(text: str) -> None:
    if not text.strip():
        raise InvalidUrl(f"root {text!r} is empty: {_ADVICE}")
    if text != text.strip() or not text.isprintable():
        raise InvalidUrl(
            f"root {text!r} begins or ends with a space, or has characters that cannot be printed: {_ADVICE}"
        )
    if _SCHEME.match(text) or "://" in text or (text.startswith("//") and not text.startswith("///")):
        raise InvalidUrl(
            f"root {text!r} is not a local folder: object stores and other file systems come with a later release; "
            f"{_ADVICE}, or where the "
            "store is mounted"
        )
