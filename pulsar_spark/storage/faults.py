"""Whose fault an error is: the machine's, which passes, or that of what was being worked on.

A full disk, a root that became read-only, a mount that went away or a process out of descriptors says nothing of the row or file at hand: it is waited for. Any
other OSError met while reading something, such as a file that is missing, no Parquet or not to be opened by us, concerns just that.
"""
import errno

_OF_THE_MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE, errno.ENODEV, errno.ENXIO,
                   errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.EINTR, errno.EAGAIN}


def is_machine_fault(failure: BaseException) -> bool:
    """Does the error come from the machine rather than from what was worked on?

    >>> is_machine_fault(OSError(errno.ENOSPC, "No space left on device")), is_machine_fault(FileNotFoundError(errno.ENOENT, "part-0.parquet"))
    (True, False)
    """
    return isinstance(failure, OSError) and failure.errno in _OF_THE_MACHINE
