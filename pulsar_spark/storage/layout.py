"""Where tables lie: names to paths under a root and back, reversibly.

A topic's table is ``<root>/<tenant>/<namespace>/<topic>``, a broker's ``<root>/_bundles/<bundle>/<table>``. In names
``_`` becomes ``__``, and ``_xx`` is any byte but small letters, digits, ``-`` and inner dots.
"""

import contextlib
import hashlib
import logging
import os
import re
from functools import lru_cache
from pathlib import Path

from pulsar_spark.errors import InvalidTopicName, InvalidUrl
from pulsar_spark.protocol.topics.topic_name import DEFAULT_NAMESPACE, TopicName
from pulsar_spark.storage.processes.this_machine import own_folder
from pulsar_spark.storage.store.root import log, parse_root
from pulsar_spark.storage.store.store import AnyPath, StrPath, path_of, store_of
from pulsar_spark.storage.store.store_kinds import without_password

BUNDLES = "_bundles"
"""Folder beside those of tenants; no tenant's name is encoded like that."""

DEFAULT_BUNDLE = "0x00000000_0xffffffff"
MAX_FILE_NAME = 255
LOCK, TURN, STAGED = ".lock", ".turn", ".staged"
MAX_TABLE_NAME = MAX_FILE_NAME - len(".") - max(map(len, (LOCK, TURN, STAGED)))
"""Bytes of a table's folder name that leave room for the files beside it."""

_PLAIN = re.compile(r"[a-z0-9-]")
_ESCAPE = re.compile(r"__|_([0-9a-f]{2})")


@lru_cache(maxsize=1 << 16)
def encode_name(name: str, *, most: int = MAX_FILE_NAME) -> str:
    """One path segment for *name*; :class:`InvalidTopicName` if too long, with the excess over *most*.

    >>> encode_name("My_topic.v1"), decode_name("_4dy__topic.v1")
    ('_4dy__topic.v1', 'My_topic.v1')
    """

    def encode(index: int, char: str) -> str:
        if _PLAIN.match(char) or (char == "." and index):
            return char
        return "__" if char == "_" else "".join(f"_{byte:02x}" for byte in char.encode())

    encoded = "".join(encode(index, char) for index, char in enumerate(name))
    if len(encoded) > MAX_FILE_NAME:
        raise _too_long(name, encoded, most)
    return encoded


def _too_long(name: str, encoded: str, most: int) -> InvalidTopicName:
    return InvalidTopicName(
        f"name {name[:20]!r}... takes {len(encoded)} bytes as a folder's name, {len(encoded) - most} too many: use a "
        f"shorter or simpler one (at most {most}; small letters, digits, - and . take one byte, other ASCII "
        "characters up to three, all others more)"
    )


def beside(table: StrPath, suffix: str) -> AnyPath:
    """The path of a file beside a table, under a name that no topic has; a digest replaces too long names."""
    folder = path_of(table)
    name = f".{folder.name}{suffix}"
    if len(os.fsencode(name)) > MAX_FILE_NAME:
        name = f".{hashlib.sha256(os.fsencode(folder.name)).hexdigest()}{suffix}"
    return folder.parent / name


@lru_cache(maxsize=1 << 16)
def decode_name(segment: str) -> str:
    """The name of a path segment; ValueError if no name encodes to it."""
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
    """The root of ``delta:<root>``; :class:`InvalidUrl` otherwise. A relative root is logged to *logger*."""
    advice = "give delta:<root>, where <root> is the folder of the tables, such as delta:/data/pulsar"
    if not isinstance(url, str) or not url.startswith("delta:"):
        raise InvalidUrl(f"service URL {without_password(str(url))!r}: {advice}")
    try:
        return str(parse_root(url.removeprefix("delta:"), logger or log))
    except InvalidUrl as refused:
        raise InvalidUrl(f"service URL {without_password(url)[:80]!r}: {refused}; {advice}") from refused


class Layout:
    def __init__(self, root: StrPath, bundle: str = DEFAULT_BUNDLE):
        self.root = parse_root(root)
        self.store = store_of(self.root)
        self.bundle = bundle
        self._bundle_folder = self.root / BUNDLES / bundle

    def topic(self, topic: TopicName) -> AnyPath:
        return self.namespace(topic.tenant, topic.namespace) / encode_name(topic.local_name, most=MAX_TABLE_NAME)

    def check_new_topic(self, topic: TopicName) -> None:
        """:class:`InvalidTopicName`, with the excess bytes, if the name is too long."""
        encoded = encode_name(topic.local_name, most=MAX_TABLE_NAME)
        if len(encoded) > MAX_TABLE_NAME:
            raise _too_long(topic.local_name, encoded, MAX_TABLE_NAME)

    def namespace(self, tenant: str, namespace: str) -> AnyPath:
        return self.root / encode_name(tenant) / encode_name(namespace)

    def has_namespace(self, tenant: str, namespace: str) -> bool:
        """Does the namespace exist? The default one always does."""
        return (tenant, namespace) == DEFAULT_NAMESPACE or self.namespace(tenant, namespace).is_dir()

    def make_namespace(self, tenant: str, namespace: str) -> None:
        self.store.make_folder(self.namespace(tenant, namespace))

    def make_tenant(self, tenant: str) -> None:
        self.store.make_folder(self.root / encode_name(tenant))

    def remove_namespace(self, tenant: str, namespace: str) -> None:
        """Remove its folder; OSError if it has a topic."""
        self._remove_empty(self.namespace(tenant, namespace))

    def remove_tenant(self, tenant: str) -> None:
        """Remove its folder; OSError if it has a namespace."""
        self._remove_empty(self.root / encode_name(tenant))

    def _remove_empty(self, folder: AnyPath) -> None:
        with contextlib.suppress(FileNotFoundError):
            hidden = [folder / name for name in self.store.names(folder) if name.startswith(".")]
            self.store.remove(hidden)
            if isinstance(folder, Path):
                folder.rmdir()

    def bundle_folder(self) -> AnyPath:
        return self._bundle_folder

    def broker_table(self, table: str) -> AnyPath:
        """Path of ``requests``, ``cursor_ledger`` or another table of the bundle."""
        return self.bundle_folder() / table

    def root_table(self, table: str) -> AnyPath:
        """Path of ``schemas`` or ``reprocessing``, in the first bundle's folder for all."""
        return self.root / BUNDLES / DEFAULT_BUNDLE / table

    def local_folder(self) -> Path:
        """A local folder for what no successor of the broker needs."""
        folder = self.bundle_folder()
        if isinstance(folder, Path):
            return folder
        digest = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
        return own_folder(f"pulsar_spark-{os.getuid()}-{digest}")

    def checkpoint(self) -> Path:
        return self.local_folder() / "checkpoint"

    def tenants(self) -> list[str]:
        return sorted(_named_folders(self.root))

    def namespaces(self) -> list[tuple[str, str]]:
        return sorted(
            (tenant, namespace)
            for tenant in self.tenants()
            for namespace in _named_folders(self.root / encode_name(tenant))
        )

    def topics(self, tenant: str, namespace: str) -> list[TopicName]:
        """Topics of one namespace that have a table, sorted by name."""
        folder = self.namespace(tenant, namespace)
        return sorted(
            TopicName(tenant, namespace, name)
            for name in _named_folders(folder)
            if not self.store.is_local or os.path.isdir(f"{folder}{os.sep}{encode_name(name)}{os.sep}_delta_log")
        )

    def folder_names(self, tenant: str, namespace: str) -> set[str]:
        """Decoded names of a namespace's folders, topics or not."""
        return set(_named_folders(self.namespace(tenant, namespace)))


def _named_folders(folder: AnyPath) -> list[str]:
    found = []
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for name in store_of(folder).folders(folder):
            if not name.startswith("."):  # locks and tables being deleted; no name is encoded so
                with contextlib.suppress(ValueError):
                    found.append(decode_name(name))
    return found
