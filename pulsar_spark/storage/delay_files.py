"""Names of the delay index's files, which say what is in them, so that who reads one finds out that a byte has changed.

Pages of Parquet have a checksum each; what says where they are, and what they mean, has none. So the name of a file
with entries ends with a digest of its footer, that of a file with notes with a digest of all its bytes.
"""

import hashlib
import uuid
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from pulsar_spark.storage.store import AnyPath, store_of

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
    """Have a file of *folder* written as a draft, in a store in memory, and name it for its bytes, or for those of its
    footer; its name, and what *write* said. *note* is told of both names before there is a file of that name, for who
    takes away what failed."""
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
    """OSError, as Arrow raises it for damaged bytes, where the file has not the *content* that its name says."""
    if not path.name.endswith(f"-c{_digest(content)}.zstd.parquet"):
        raise OSError(f"the content of {str(path)!r} has changed since it was written")


def footer_of(path: AnyPath) -> bytes:
    """The footer of a Parquet file, or all bytes of one that is shorter than it says."""
    store = store_of(path)
    size = store.size(path)
    tail = store.last_bytes(path, min(_TAIL, size)) if size else b""
    return store.last_bytes(path, min(_footer_size(tail), size)) if size else b""


def _footer_size(tail: bytes) -> int:
    return int.from_bytes(tail[:4], "little") + _TAIL


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]
