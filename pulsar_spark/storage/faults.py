"""Telling a fault of the disk, which passes, from what is wrong with a request or a row, which does not.

Whoever meets the first waits and tries the same again; nothing is refused, set aside or answered because of it.
Errors come as Python's, Arrow's, ``deltalake``'s and Spark's, of which only some carry a number; the others carry
the system's words for it. A file that is missing is no such fault: waiting brings none back.
"""

import errno
import os

_NUMBERS = tuple(
    getattr(errno, name)
    for name in (
        "ENOSPC",
        "EDQUOT",
        "EROFS",
        "EIO",
        "EACCES",
        "EPERM",
        "ESTALE",
        "ENODEV",
        "ENXIO",
        "EBUSY",
        "EAGAIN",
        "ETIMEDOUT",
        "EMFILE",
        "ENFILE",
        "ENOLCK",
    )
)
_IN_WORDS = tuple(
    os.strerror(number)
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES, errno.ESTALE, errno.EMFILE)
)


class UnclearWrite(OSError):
    """A store gave no answer to a write, which may have taken place, may yet take place, or neither."""


def is_fault_of_disk(error: BaseException) -> bool:
    """Whether *error*, or what caused it, is of a disk that is full, read-only, gone for now or failing; never for a
    lost connection to Spark."""
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None:
            if error.errno in _NUMBERS and not isinstance(error, ConnectionError):
                return True
        elif any(words in str(error) for words in _IN_WORDS):
            return True
        error = error.__cause__
    return False
