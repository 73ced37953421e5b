"""Names of the delay index's files, which say what is in them, so that who reads one finds out that a byte has changed.

Pages of Parquet have a checksum each; what says where they are, and what they mean, has none. So the name of a file
with entries ends with a digest of its footer, that of a file with notes with a digest of all its bytes.
"""

import hashlib
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Written = TypeVar("Written")

_TAIL = 8
"""The last bytes of a Parquet file: the size of its footer, and ``PAR1``."""
_DIGITS = 16


def file_name(content: bytes, number: int = 0) -> str:
    """A new name for a file with that *content*, the *number*-th of its bucket."""
    return f"part-{number:05d}-{uuid.uuid4()}-c{_digest(content)}.zstd.parquet"


def write_named(
    folder: Path,
    write: Callable[[Path], Written],
    content_of: Callable[[Path], bytes],
    note: Callable[[str], None],
    number: int = 0,
) -> tuple[str, Written]:
    """Have a file of *folder* written as a draft, and name it for what *content_of* reads of it; its name, and what
    *write* said. *note* is told of both names before there is a file of that name, for who takes away what failed."""
    draft = folder / f"draft-{uuid.uuid4()}.zstd.parquet"
    note(draft.name)
    said = write(draft)
    name = file_name(content_of(draft), number)
    note(name)
    os.rename(draft, folder / name)
    return name, said


def check_name(path: Path, content: bytes) -> None:
    """OSError, as Arrow raises it for damaged bytes, where the file has not the *content* that its name says."""
    if not path.name.endswith(f"-c{_digest(content)}.zstd.parquet"):
        raise OSError(f"bytes of {str(path)!r} have changed since it was written")


def footer_of(path: Path) -> bytes:
    """The footer of a Parquet file."""
    with open(path, "rb") as opened:
        end = opened.seek(0, os.SEEK_END)
        opened.seek(max(0, end - _TAIL))
        size = int.from_bytes(opened.read(_TAIL)[:4], "little") + _TAIL
        opened.seek(max(0, end - size))
        return opened.read()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]
