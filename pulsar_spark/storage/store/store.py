"""Where the files of a root lie: a local disk, or an object store.

A ``Path`` or an :class:`ObjectPath` names a file, and its store does what differs, such as put-if-absent, on which
commits rest. See local_store and object_store.
"""

from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, cast

import pyarrow as pa
import pyarrow.parquet as pq

from pulsar_spark.storage.store import local_store
from pulsar_spark.storage.store.object_path import AnyPath, ObjectPath, Stat, StrPath
from pulsar_spark.storage.store.object_store import object_path_of
from pulsar_spark.storage.store.store_kinds import Kind


class StoredFiles(Protocol):
    """Operations of a store that change nothing."""

    is_local: bool
    is_lent: bool
    look_seconds: float
    spark_kind: Kind | None

    def has(self, name: StrPath) -> bool: ...
    def stamp(self, name: StrPath) -> tuple[Any, ...]: ...
    def size(self, name: StrPath) -> int: ...
    def sizes(self, folder: AnyPath, names: Iterable[str]) -> dict[str, int]: ...
    def names(self, folder: StrPath) -> list[str]: ...
    def folders(self, folder: StrPath) -> list[str]: ...
    def below(self, folder: AnyPath, *, without: str | None = None) -> dict[str, Stat]: ...
    def read_small(self, name: StrPath, most: int | None = None) -> bytes: ...
    def last_bytes(self, name: StrPath, count: int) -> bytes: ...
    def footer(self, name: StrPath) -> pq.FileMetaData: ...
    def parquet(self, name: StrPath) -> "str | pa.NativeFile": ...
    def delta(self, path: StrPath) -> tuple[str, dict[str, str] | None]: ...


class Store(StoredFiles, Protocol):
    """All operations of a store."""

    def check(self, root: AnyPath, folder: AnyPath) -> None: ...
    def make_folder(self, folder: AnyPath) -> None: ...
    def clone_folder(self, folder: AnyPath, clone: AnyPath) -> None: ...
    def create(self, name: StrPath) -> AbstractContextManager[pa.NativeFile]: ...
    def touch(self, name: str) -> None: ...
    def take_names(self, folder: str) -> list[str]: ...
    def link(self, source: AnyPath, target: AnyPath) -> None: ...
    def move(self, source: AnyPath, target: AnyPath) -> None: ...
    def keep_as(self, source: AnyPath, target: AnyPath) -> None: ...
    def remove(self, paths: Iterable[AnyPath]) -> None: ...
    def remove_folder(self, folder: AnyPath, but: Collection[AnyPath] = ()) -> None: ...
    def replace(
        self, path: AnyPath, content: str, ready: Callable[[Any], None] = ..., kept: AnyPath | None = None
    ) -> None: ...
    def change(
        self,
        path: AnyPath,
        decide: Callable[[bytes | None], str | None],
        lock: Callable[[], AbstractContextManager] | None = None,
        write: Callable[[Any, str], None] | None = None,
    ) -> bool: ...
    def put_in_first_free(
        self,
        paths: Iterable[AnyPath],
        content: str,
        folder: AnyPath,
        lock: Callable[[], AbstractContextManager],
        ready: Callable[[Any], None] | None = None,
    ) -> AnyPath | None: ...


_LOCAL = cast(Store, local_store)
"""The module takes a ``Path`` wherever a store takes a path."""


def path_of(given: StrPath) -> AnyPath:
    """The path, which *given* may be as text."""
    if isinstance(given, ObjectPath):
        return given
    return (object_path_of(given) if isinstance(given, str) else None) or Path(given)


def store_of(path: StrPath) -> Store:
    """The store of a path."""
    found = object_path_of(path) if isinstance(path, str) else path
    return cast(Store, found.store) if isinstance(found, ObjectPath) else _LOCAL
