"""Giving memory back to the system that was needed for a moment.

What threads have freed Arrow and the C library keep for them, and it is in pieces: of what reading 10^6 rows took for a
moment half stays in the process (``python -m tests.benchmarks --only past``).
"""

import contextlib
import ctypes

import pyarrow as pa


def give_memory_back() -> None:
    """Let Arrow and the C library return to the system what is free; nothing with a library that has no such call.
    Some milliseconds, without Python's lock."""
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
