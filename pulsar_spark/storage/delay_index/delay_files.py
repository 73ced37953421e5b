"""Names of the delay index's files, which contain a digest, so that a reader detects a changed byte.

Parquet pages have checksums, but its footer has none. So the name of a file with entries ends with a digest of its
footer, and that of a file with notes with a digest of all its bytes.
"""

import hashlib
import uuid
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from pulsar_spark.storage.store.store import AnyPath, store_of

Written = TypeVar("Written")

_TAIL = 8
"""The last bytes of a Parquet file: the size of its footer, and ``PAR1``."""
_DIGITS = 16


def file_name(content: bytes, number: int = 0) -> str:
    """A new name for a file with that *content*, the *number*-th of its bucket."""
    return f"part-{number:05d}-{uuid.uuid4()}-c{_digest(content)}.zstd.parquet"


def write_named(
    folder: AnyPath,
    write: Callable[[AnyPath | pa.NativeFile], Written],
    note: Callable[[str], None],
    number: int = 0,
    *,
    by_footer: bool = False,
) -> tuple[str, Written]:
    """Write a file of *folder* and name it after its bytes, or those of its footer; its name, and what *write*
    returned.

    *write* gets a draft's path, or in a store a sink in memory. *note* gets each name before that file exists, so that
    the caller can remove it after a failure.
    """
    store = store_of(folder)
    if not store.is_local:
        sink = pa.BufferOutputStream()
        said, content = write(sink), sink.getvalue()
        named_for = bytes(content[-_footer_size(bytes(content[-_TAIL:])) :]) if by_footer else bytes(content)
        name = file_name(named_for, number)
        note(name)
        store.put(folder / name, content)
        return name, said
    draft = folder / f"draft-{uuid.uuid4()}.zstd.parquet"
    note(draft.name)
    said = write(draft)
    name = file_name(footer_of(draft) if by_footer else draft.read_bytes(), number)
    note(name)
    store.move(draft, folder / name)
    return name, said


def check_name(path: AnyPath, content: bytes) -> None:
    """OSError, as Arrow raises for damaged bytes, if the *content* does not match the digest in the file's name."""
    if not path.name.endswith(f"-c{_digest(content)}.zstd.parquet"):
        raise OSError(f"the content of {str(path)!r} has changed since it was written")


def footer_of(path: AnyPath) -> bytes:
    """The footer of a Parquet file, or all bytes if the file is shorter than it says."""
    store = store_of(path)
    size = store.size(path)
    tail = store.last_bytes(path, min(_TAIL, size)) if size else b""
    return store.last_bytes(path, min(_footer_size(tail), size)) if size else b""


def _footer_size(tail: bytes) -> int:
    return int.from_bytes(tail[:4], "little") + _TAIL


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]
