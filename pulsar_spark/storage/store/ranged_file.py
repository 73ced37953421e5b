"""A large object as a Python file, for readers that need parts of it."""

import io
from collections.abc import Callable


class RangedFile(io.RawIOBase):
    """A file of *size* bytes; each read calls *read* with first byte and count."""

    def __init__(self, size: int, read: Callable[[int, int], bytes]):
        self._size, self._read, self._at = size, read, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        rest = max(0, self._size - self._at)
        count = rest if size is None or size < 0 else min(size, rest)
        found = self._read(self._at, count) if count else b""
        self._at += len(found)
        return found
