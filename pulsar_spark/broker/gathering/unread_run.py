"""A run of entries that were never delivered, which a round may offer."""

from typing import NamedTuple


class UnreadRun(NamedTuple):
    """Never delivered entries first..last of one batch size, ``due_time`` in microseconds (or None) and, on Key_Shared,
    ``line``, and whether they are held."""

    first: int
    last: int
    batch_size: int
    due_time: int | None
    line: str | None = None
    is_held: bool | None = None
