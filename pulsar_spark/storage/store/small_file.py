"""Read small JSON files of a root, and set unreadable ones aside: readers go on without them."""

import json
import logging
import time
from pathlib import Path

from pulsar_spark.storage.store.store import AnyPath, store_of

MOST_BYTES = 1 << 20
MOST_PROCESS_ID = (1 << 31) - 1
_logged: dict[str, int] = {}
log = logging.getLogger(__name__)


def read_small(path: AnyPath) -> bytes:
    """The file's bytes, at most :data:`MOST_BYTES` + 1; none for a folder or pipe. FileNotFoundError if missing."""
    return store_of(path).read_small(path, MOST_BYTES)


def parse_object(content: bytes) -> dict:
    """The JSON object in a file's bytes; ValueError with the cause for anything else.

    >>> parse_object(b'{"durability": "none"}')
    {'durability': 'none'}
    >>> parse_object(b"[1]")
    Traceback (most recent call last):
    ValueError: it holds [1], not an object
    >>> parse_object(b"")
    Traceback (most recent call last):
    ValueError: it is empty, or not a file
    """
    if not content:
        raise ValueError("it is empty, or not a file")
    if len(content) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes")
    try:
        fields = json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(fields, dict):
        raise ValueError(f"it holds {fields!r:.60}, not an object")
    return fields


def text_of(fields: dict, name: str) -> str:
    """A field's text; ValueError for another value, or if it cannot be encoded."""
    value = fields.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name!r} is {value!r:.60}, not a text")
    value.encode()
    return value


def whole_number_of(fields: dict, name: str, least: int, most: int) -> int:
    """A field's whole number from *least* to *most*; ValueError for another value."""
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{name!r} is {value!r:.60}, not a whole number from {least} to {most}")
    return value


def process_id_of(fields: dict) -> int:
    """The ``pid`` field; ValueError if it is no process id."""
    return whole_number_of(fields, "pid", 1, MOST_PROCESS_ID)


def say_unreadable(path: AnyPath, content: bytes, why: object, instead: str) -> None:
    """Log, once per content, *why* it is unreadable and what applies *instead*."""
    if _logged.get(str(path)) != hash(content):
        _logged[str(path)] = hash(content)
        log.warning("%r cannot be read (%s): %s", str(path), why, instead)


def keep_aside(path: AnyPath) -> AnyPath:
    """Keep what is at *path* under another, returned name; a file has both until it is replaced."""
    aside = path.with_name(f"{path.name}.broken-{time.time_ns()}")
    if isinstance(path, Path) and (path.is_symlink() or not path.is_file()):
        path.rename(path.parent / aside.name)
    else:
        store_of(path).link(path, aside)
    log.warning("the former content of %r is kept as %r", str(path), aside.name)
    return aside
