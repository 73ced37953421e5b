"""Where tables lie: names to paths under a root and back, reversibly.

``<root>/<tenant>/<namespace>/<topic>`` is a topic's table, ``<root>/_bundles/<bundle>/<table>`` a broker's. A path
keeps small letters, digits, ``-`` and inner dots; every other byte is written ``_xx`` and ``_`` itself ``__``, so names
that differ only in case stay apart on file systems that do not tell case, and no name can climb out of the root or meet
the broker's folder (``_b`` followed by a ``u`` is no escape).

File systems end a name at 255 bytes, and a path at 4,096, for which a root leaves room (storage.root). Beside a table
lie files named after it (:func:`beside`), so a topic is made only where its name leaves room for them; a table that is
there already under a longer one works as ever.
"""

import contextlib
import hashlib
import logging
import os
import re
from functools import lru_cache
from pathlib import Path

from pulsar_spark.errors import InvalidTopicName, InvalidUrl
from pulsar_spark.protocol.topic_name import DEFAULT_NAMESPACE, TopicName
from pulsar_spark.storage.root import log, parse_root

BUNDLES = "_bundles"
"""Folder of a root beside those of tenants; no tenant's name is written like that."""

DEFAULT_BUNDLE = "0x00000000_0xffffffff"
MAX_FILE_NAME = 255
LOCK, STAGED = ".lock", ".staged"
MAX_TABLE_NAME = MAX_FILE_NAME - len(".") - max(map(len, (LOCK, STAGED)))
"""Bytes of a table's folder name, so that what lies beside it has a name, too."""

_PLAIN = re.compile(r"[a-z0-9-]")
_ESCAPE = re.compile(r"__|_([0-9a-f]{2})")


def encode_name(name: str, *, most: int = MAX_FILE_NAME) -> str:
    """One path segment for *name*; :class:`InvalidTopicName` where it is too long for a file system, which says how
    much longer than *most*.

    >>> encode_name("My_topic.v1"), decode_name("_4dy__topic.v1")
    ('_4dy__topic.v1', 'My_topic.v1')
    """
    encoded = _encode(name)
    if len(encoded) > MAX_FILE_NAME:
        raise _too_long(name, encoded, most)
    return encoded


def _encode(name: str) -> str:
    def encode(index: int, char: str) -> str:
        if _PLAIN.match(char) or (char == "." and index):
            return char
        return "__" if char == "_" else "".join(f"_{byte:02x}" for byte in char.encode())

    return "".join(encode(index, char) for index, char in enumerate(name))


def _too_long(name: str, encoded: str, most: int) -> InvalidTopicName:
    return InvalidTopicName(
        f"name {name[:20]!r}... takes {len(encoded)} bytes as a folder's name, {len(encoded) - most} too many: use a "
        f"shorter or plainer one (at most {most}; small letters, digits, - and . take one byte, other ASCII "
        "characters up to three, all others more)"
    )


def beside(table: str | os.PathLike, suffix: str) -> Path:
    """Where what belongs to a table, and is not in it, lies: on its file system, under a name that is no topic's. A
    table whose name leaves no room for the suffix (none is made any more) is told by a digest of its name."""
    folder = Path(table)
    name = f".{folder.name}{suffix}"
    if len(os.fsencode(name)) > MAX_FILE_NAME:
        name = f".{hashlib.sha256(os.fsencode(folder.name)).hexdigest()}{suffix}"
    return folder.parent / name


@lru_cache(maxsize=1 << 16)
def decode_name(segment: str) -> str:
    """The name behind a path segment; ValueError when no name encodes to it."""
    out, at = bytearray(), 0
    while at < len(segment):
        if segment[at] == "_":
            found = _ESCAPE.match(segment, at)
            if not found:
                raise ValueError(f"{segment!r} is no encoded name")
            out += b"_" if found[0] == "__" else bytes.fromhex(found[1])
            at = found.end()
        else:
            out += segment[at].encode()
            at += 1
    name = out.decode()
    if encode_name(name) != segment:
        raise ValueError(f"{segment!r} is no encoded name")
    return name


def parse_service_url(url: str, logger: logging.Logger | None = None) -> str:
    """The root behind ``delta:<root>``; :class:`InvalidUrl` otherwise. *logger* is told of a relative root."""
    advice = "give delta:<root>, where <root> is the folder of the tables, such as delta:/data/pulsar"
    if not isinstance(url, str) or not url.startswith("delta:"):
        raise InvalidUrl(f"service URL {url!r}: {advice}")
    try:
        return str(parse_root(url.removeprefix("delta:"), logger or log))
    except InvalidUrl as refused:
        raise InvalidUrl(f"service URL {url[:80]!r}: {refused}; {advice}") from refused


class Layout:
    """Paths of one root. Roots are local folders; an object store's root would be another class with these methods."""

    def __init__(self, root: str | os.PathLike, bundle: str = DEFAULT_BUNDLE):
        self.root = parse_root(root)
        self.bundle = bundle

    def topic(self, topic: TopicName) -> Path:
        folder = self.root / encode_name(topic.tenant) / encode_name(topic.namespace)
        return folder / encode_name(topic.local_name, most=MAX_TABLE_NAME)

    def check_new_topic(self, topic: TopicName) -> None:
        """:class:`InvalidTopicName`, with how many bytes it is too long, for a topic that cannot be made. Its namespace
        is made with it: in Pulsar that is an administrator's, who here is whoever may write in the root."""
        encoded = encode_name(topic.local_name, most=MAX_TABLE_NAME)
        if len(encoded) > MAX_TABLE_NAME:
            raise _too_long(topic.local_name, encoded, MAX_TABLE_NAME)

    def namespace(self, tenant: str, namespace: str) -> Path:
        """Path of the folder of its topics."""
        return self.root / encode_name(tenant) / encode_name(namespace)

    def has_namespace(self, tenant: str, namespace: str) -> bool:
        """Was the namespace made? The default one need not be."""
        return (tenant, namespace) == DEFAULT_NAMESPACE or self.namespace(tenant, namespace).is_dir()

    def bundle_folder(self) -> Path:
        return self.root / BUNDLES / self.bundle

    def broker_table(self, table: str) -> Path:
        """Path of ``requests``, ``cursor_ledger`` or ``ledgers``."""
        return self.bundle_folder() / table

    def checkpoint(self) -> Path:
        return self.bundle_folder() / "checkpoint"

    def namespaces(self) -> list[tuple[str, str]]:
        """(tenant, namespace) of every namespace folder, sorted."""
        return sorted(
            (tenant, namespace)
            for tenant, folder in _named_folders(self.root)
            for namespace, _ in _named_folders(folder)
        )

    def topics(self, tenant: str, namespace: str) -> list[TopicName]:
        """Topics of one namespace that have a table, sorted by name."""
        return sorted(
            TopicName(tenant, namespace, name)
            for name, path in _named_folders(self.namespace(tenant, namespace))
            if os.path.isdir(f"{path}{os.sep}_delta_log")
        )

    def folder_names(self, tenant: str, namespace: str) -> set[str]:
        """The names that folders in a namespace stand for, whether or not they are topics'."""
        return {name for name, _ in _named_folders(self.namespace(tenant, namespace))}


def _named_folders(folder: str | os.PathLike) -> list[tuple[str, str]]:
    found = []
    try:
        entries = [
            entry for entry in os.scandir(folder) if not entry.name.startswith(".")
        ]  # no name is encoded so; locks and what is being deleted are
    except (FileNotFoundError, NotADirectoryError):
        return found
    for entry in entries:
        with contextlib.suppress(ValueError):
            found.append((decode_name(entry.name), entry))
    return [(name, entry.path) for name, entry in found if entry.is_dir()]
