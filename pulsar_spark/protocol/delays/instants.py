"""Instants as numbers: microseconds since 1970 in tables and rounds, milliseconds in Pulsar's API."""

from datetime import datetime, timedelta, timezone

import numpy as np

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
FIRST_MICROS, LAST_MICROS = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Python's calendar: the years 1 to 9999."""


def to_micros(instant: datetime) -> int:
    return (instant - EPOCH) // timedelta(microseconds=1)


def to_millis(instant: datetime) -> int:
    """Whole milliseconds since 1970 of an aware datetime.

    >>> to_millis(EPOCH + timedelta(seconds=2, microseconds=1999)), to_micros(EPOCH - timedelta(seconds=1))
    (2001, -1000000)
    """
    return (instant - EPOCH) // timedelta(milliseconds=1)


def deliver_millis(instant: datetime) -> int:
    """Milliseconds since 1970 of an aware datetime, rounded up, so that no delivery is early (semantics 0.21).

    >>> deliver_millis(EPOCH + timedelta(microseconds=2001)), deliver_millis(EPOCH + timedelta(milliseconds=2))
    (3, 2)
    """
    return -((EPOCH - instant) // timedelta(milliseconds=1))


def from_micros(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def named_time(text: str) -> datetime:
    """The time that *text* gives in ISO 8601, by default in UTC; ValueError if it is invalid.

    >>> str(named_time("2026-01-31T12:00:00Z")), str(named_time("2026-01-31 12:00"))
    ('2026-01-31 12:00:00+00:00', '2026-01-31 12:00:00+00:00')
    """
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)


def shown_time(micros: int) -> str:
    """*micros* since 1970 as ISO 8601, even beyond the year 9999.

    >>> shown_time(0), shown_time(1_500_000)
    ('1970-01-01T00:00:00+00:00', '1970-01-01T00:00:01.500000+00:00')
    """
    text = str(np.datetime64(micros, "us"))
    return f"{text.removesuffix('.000000')}+00:00"
