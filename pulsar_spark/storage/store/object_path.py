"""A name in an object store that works like a ``pathlib.Path``, but that nothing takes for a local file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import total_ordering
from pathlib import Path
from typing import Any, NamedTuple, Protocol


class Stat(NamedTuple):
    """Size, and the time of writing in seconds since 1970."""

    st_size: int
    st_mtime: float


class Objects(Protocol):
    """Operations of an object store, which a local disk lacks or which a path calls."""

    @property
    def url(self) -> str: ...
    @property
    def location(self) -> str: ...
    def head(self, name: ObjectPath) -> dict[str, Any]: ...
    def has_below(self, folder: ObjectPath) -> bool: ...
    def names(self, folder: ObjectPath) -> list[str]: ...
    def names_after(self, folder: ObjectPath, name: str) -> list[str]: ...
    def stamps(self, folder: ObjectPath) -> dict[str, str]: ...
    def below(self, folder: ObjectPath) -> dict[str, Stat]: ...
    def get(self, name: ObjectPath) -> bytes: ...
    def get_stamped(self, name: ObjectPath) -> tuple[bytes, dict[str, str]]: ...
    def put(self, name: ObjectPath, content: bytes) -> None: ...
    def put_if_absent(self, name: ObjectPath, content: bytes) -> bool: ...
    def put_over(self, name: ObjectPath, content: bytes, known: dict[str, str] | None) -> bool: ...
    def change(self, path: ObjectPath, decide: Decide) -> bool: ...
    def remove(self, names: Iterable[ObjectPath]) -> None: ...


@total_ordering
class ObjectPath:
    """*key* is the name in the bucket of *store*, with ``/`` between parts."""

    __slots__ = ("key", "store")

    def __init__(self, store: Objects, key: str):
        self.store, self.key = store, key.strip("/")

    def __str__(self) -> str:
        return f"{self.store.url}/{self.key}"

    def __repr__(self) -> str:
        return f"ObjectPath({str(self)!r})"

    def __hash__(self) -> int:
        return hash(str(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectPath) and str(self) == str(other)

    def __lt__(self, other: ObjectPath) -> bool:
        return str(self) < str(other)

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(self.store, f"{self.key}/{name}")

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.store.url, *self.key.split("/"))

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> ObjectPath:
        return ObjectPath(self.store, self.key.rpartition("/")[0])

    @property
    def parents(self) -> list[ObjectPath]:
        parts = self.key.split("/")
        return [ObjectPath(self.store, "/".join(parts[:end])) for end in range(len(parts) - 1, -1, -1)]

    def with_name(self, name: str) -> ObjectPath:
        return self.parent / name

    def with_suffix(self, suffix: str) -> ObjectPath:
        stem, dot, _ = self.name.rpartition(".")
        return self.with_name(f"{stem if dot and stem else self.name}{suffix}")

    def absolute(self) -> ObjectPath:
        return self

    # Existence

    def exists(self) -> bool:
        return self.is_dir() or self.is_file()

    def is_file(self) -> bool:
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        return self.store.has_below(self)

    def stat(self) -> Stat:
        """FileNotFoundError if there is no object."""
        found = self.store.head(self)
        return Stat(found["size"], found["last_modified"].timestamp())

    def iterdir(self) -> Iterator[ObjectPath]:
        return (self / name for name in self.store.names(self))

    def mkdir(self, **_options: bool) -> None:
        """Does nothing."""

    # Bytes

    def read_bytes(self) -> bytes:
        return self.store.get(self)

    def read_text(self) -> str:
        return self.read_bytes().decode()

    def write_bytes(self, content: bytes) -> None:
        self.store.put(self, content)

    def write_text(self, content: str) -> None:
        self.write_bytes(content.encode())

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove it, whether or not it exists."""
        self.store.remove([self])


Decide = Callable[["bytes | None"], "str | None"]
Lock = Callable[[], AbstractContextManager]
AnyPath = Path | ObjectPath
StrPath = str | os.PathLike[str] | ObjectPath
