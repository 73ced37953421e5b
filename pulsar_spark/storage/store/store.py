"""Where the files of a root lie: a local disk, or an object store.

A ``Path`` or an :class:`ObjectPath` names a file, and its store does what differs, such as put-if-absent, on which
commits rest. See local_store and object_store.
"""

import os
from pathlib import Path

from pulsar_spark.storage.store.local_store import LOCAL, LocalStore
from pulsar_spark.storage.store.object_path import ObjectPath
from pulsar_spark.storage.store.object_store import ObjectStore, object_path_of

AnyPath = Path | ObjectPath
Store = LocalStore | ObjectStore


def path_of(given: str | os.PathLike | ObjectPath) -> AnyPath:
    """The path, which *given* may be as text."""
    if isinstance(given, ObjectPath):
        return given
    return (object_path_of(given) if isinstance(given, str) else None) or Path(given)


def store_of(path: str | os.PathLike | ObjectPath) -> Store:
    """The store of a path."""
    if isinstance(path, str):
        path = object_path_of(path)
    return path.store if isinstance(path, ObjectPath) else LOCAL
