"""Tell temporary faults of the disk, after which one tries again, from other errors, such as a missing file."""

import errno
import os

_TEMPORARY = "ENOSPC EDQUOT EROFS EIO EACCES EPERM ESTALE ENODEV ENXIO EBUSY EAGAIN ETIMEDOUT EMFILE ENFILE ENOLCK"
_NUMBERS = tuple(getattr(errno, name) for name in _TEMPORARY.split())
_IN_WORDS = tuple(
    os.strerror(number)
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES, errno.ESTALE, errno.EMFILE)
)


class UnclearWrite(OSError):
    """A store did not answer a write, which may have happened, may still happen, or neither."""


def is_fault_of_disk(error: BaseException) -> bool:
    """Does *error* or a cause, by number or text, mean that a disk is full, read-only, away or failing?

    False for a lost connection to Spark.
    """
    if isinstance(error, OSError) and error.errno is not None:
        if error.errno in _NUMBERS and not isinstance(error, ConnectionError):
            return True
    elif any(words in str(error) for words in _IN_WORDS):
        return True
    return error.__cause__ is not None and is_fault_of_disk(error.__cause__)
