"""Small JSON files of a root: reading them, and what to do with one that cannot be read.

Anything may lie under such a name: a folder, a pipe, half a text, an impossible number. Readers get a JSON object, or a
ValueError with the cause in words. Then they go on as if there were no file, and log that once. The next writer keeps
the unreadable file under another name (:func:`keep_aside`).
"""

import json
import logging
import time

from pulsar_spark.storage.store import AnyPath, store_of

MOST_BYTES = 1 << 20
"""More than any of these files ever has."""
MOST_PROCESS_ID = (1 << 31) - 1
_said: dict[str, int] = {}
log = logging.getLogger(__name__)


def read_small(path: AnyPath) -> bytes:
    """The bytes of the file, at most :data:`MOST_BYTES` and one; no bytes of a folder or a pipe. FileNotFoundError
    without it."""
    return store_of(path).read_small(path, MOST_BYTES)


def parse_object(content: bytes) -> dict:
    """The JSON object in the bytes of a file; ValueError, with the cause in words, for anything else.

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
        said = json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(said, dict):
        raise ValueError(f"it holds {said!r:.60}, not an object")
    return said


def text_of(said: dict, name: str) -> str:
    """The text that a field holds; ValueError for another value, and for one that cannot be written again."""
    value = said.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name!r} is {value!r:.60}, not a text")
    value.encode()
    return value


def whole_number_of(said: dict, name: str, least: int, most: int) -> int:
    """The whole number from *least* to *most* that a field holds; ValueError for another value."""
    value = said.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{name!r} is {value!r:.60}, not a whole number from {least} to {most}")
    return value


def process_id_of(said: dict) -> int:
    """The process that a file names as ``pid``; ValueError for a number that no process has."""
    return whole_number_of(said, "pid", 1, MOST_PROCESS_ID)


def say_unreadable(path: AnyPath, content: bytes, why: object, instead: str) -> None:
    """Log *why* the file cannot be read and what holds *instead*, once for each content."""
    if _said.get(str(path)) != hash(content):
        _said[str(path)] = hash(content)
        log.warning("%r cannot be read (%s): %s", str(path), why, instead)


def keep_aside(path: AnyPath) -> AnyPath:
    """Keep what lies at *path* under another name, which is returned. A folder is moved; a file has both names until
    the caller replaces it."""
    store, aside = store_of(path), path.with_name(f"{path.name}.broken-{time.time_ns()}")
    if store.is_local and (path.is_symlink() or not path.is_file()):
        path.rename(aside)
    else:
        store.link(path, aside)
    log.warning("the former content of %r is kept as %r", str(path), aside.name)
    return aside
