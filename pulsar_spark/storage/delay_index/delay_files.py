"""Names of the delay index's files, which contain a digest of the footer or of all bytes, to detect changes."""

import hashlib
import uuid
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from pulsar_spark.storage.store.object_path import ObjectPath
from pulsar_spark.storage.store.store import AnyPath, store_of

Written = TypeVar("Written")

_TAIL = 8
"""The last bytes of a Parquet file: the size of its footer, and ``PAR1``."""
_DIGITS = 16


def file_name(content: bytes, number: int = 0) -> str:
    """A new name for the *number*-th file of a bucket, with that *content*."""
    return f"part-{number:05d}-{uuid.uuid4()}-c{_digest(content)}.zstd.parquet"


def write_named(
    folder: AnyPath,
    write: Callable[[AnyPath | pa.NativeFile], Written],
    note: Callable[[str], None],
    number: int = 0,
    *,
    by_footer: bool = False,
) -> tuple[str, Written]:
    """Write a file of *folder* and name it after its bytes or its footer; its name, and the result of *write*.

    *write* gets the path of a draft, or a sink. *note* gets each name before its file exists, for removal after a
    failure.
    """
    if isinstance(folder, ObjectPath):
        sink = pa.BufferOutputStream()
        written, content = write(sink), sink.getvalue()
        named_for = bytes(content[-_footer_size(bytes(content[-_TAIL:])) :]) if by_footer else bytes(content)
        name = file_name(named_for, number)
        note(name)
        folder.store.put(folder / name, content)
        return name, written
    draft = folder / f"draft-{uuid.uuid4()}.zstd.parquet"
    note(draft.name)
    written = write(draft)
    name = file_name(footer_of(draft) if by_footer else draft.read_bytes(), number)
    note(name)
    store_of(folder).move(draft, folder / name)
    return name, written


def check_name(path: AnyPath, content: bytes) -> None:
    """OSError, as Arrow raises for damaged bytes, if *content* does not match the file's name."""
    if not path.name.endswith(f"-c{_digest(content)}.zstd.parquet"):
        raise OSError(f"the content of {str(path)!r} has changed since it was written")


def footer_of(path: AnyPath) -> bytes:
    """The footer of a Parquet file, or all bytes of a shorter one."""
    store = store_of(path)
    size = store.size(path)
    tail = store.last_bytes(path, min(_TAIL, size)) if size else b""
    return store.last_bytes(path, min(_footer_size(tail), size)) if size else b""


def _footer_size(tail: bytes) -> int:
    return int.from_bytes(tail[:4], "little") + _TAIL


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]
