"""What a job that sends dead letters back says of its work."""

from typing import NamedTuple


class Reprocessed(NamedTuple):
    """What became of the letters a job matched. ``causes`` has the same counts by cause."""

    job_id: str
    topic: str
    is_dry_run: bool
    matched: int
    """letters the conditions name"""
    selected: int
    """letters among them to be sent; the others are in the ``left`` counts"""
    sent: int
    """letters sent, in this run and earlier ones of the job; of a dry run 0"""
    dropped_by_fix: int
    left_by_guard: int
    """sent back as often as allowed"""
    taken_before: int
    """sent, or chosen, by another job"""
    without_origin: int
    """do not say where they came from"""
    causes: dict[str, dict[str, int]]
    destinations: dict[str, int]
    """letters selected, by the topic they go to"""
