"""Where the files of a root lie, behind one door: a folder of a local disk, or an object store.

A name there is a path, which is joined, compared and read as ``pathlib`` does it: a ``Path`` on a local disk, an
:class:`ObjectPath` in a store. What the two do not have in common is asked of the path's store: to put something there
if nothing is yet, which is all that commits need of either; to tell one file from another of its name; what Parquet
reads from and writes to; and how often it is worth looking. See local_store and object_store.
"""

import os
from pathlib import Path

from pulsar_spark.storage.local_store import LOCAL, LocalStore
from pulsar_spark.storage.object_path import ObjectPath
from pulsar_spark.storage.object_store import ObjectStore, object_path_of

AnyPath = Path | ObjectPath
Store = LocalStore | ObjectStore


def path_of(given: str | os.PathLike | ObjectPath) -> AnyPath:
    """The path, of which *given* may be the text."""
    if isinstance(given, ObjectPath):
        return given
    return (object_path_of(given) if isinstance(given, str) else None) or Path(given)


def store_of(path: str | os.PathLike | ObjectPath) -> Store:
    """The store in which it lies."""
    if isinstance(path, str):
        path = object_path_of(path)
    return path.store if isinstance(path, ObjectPath) else LOCAL
