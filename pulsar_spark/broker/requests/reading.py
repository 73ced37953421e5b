"""Reads a round's requests from their commits; unreadable ones are set aside."""

from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import pyarrow as pa

from pulsar_spark.broker.requests.request import Request, requests_of
from pulsar_spark.storage.cursor_ledger.requests import RequestCommit, read_request_commit, read_requests
from pulsar_spark.storage.cursor_ledger.set_aside import REQUEST, SetAside
from pulsar_spark.storage.store.store import AnyPath


class Asked(NamedTuple):
    """Requests in order, the last version read, and what was unreadable up to there."""

    requests: list[Request]
    version: int
    unreadable: list[SetAside]


def read_asked(path: AnyPath, *, after: int) -> Asked:
    """The requests after version *after*."""
    asked = Asked([], after, [])
    for commit in read_requests(path, after=after):
        asked = _with(asked, commit)
    return asked


def read_again(path: AnyPath, entry: SetAside) -> Asked:
    """The requests of an entry set aside: one, or a whole commit."""
    last = entry.requests_version if entry.last is None else entry.last
    asked = Asked([], last, [])
    for version in range(entry.requests_version, last + 1):
        asked = _with(asked, read_request_commit(path, version))
    return asked._replace(requests=[request for request in asked.requests if entry.first in (None, request.row)])


def read_places(path: AnyPath, places: Iterable[tuple[int, int]]) -> list[Request]:
    """The requests at these versions and rows that can be read."""
    found = []
    for version, same in groupby(sorted(places), key=itemgetter(0)):
        rows = {row for _, row in same}
        asked = _with(Asked([], version, []), read_request_commit(path, version))
        found += [request for request in asked.requests if request.row in rows]
    return found


def _with(asked: Asked, commit: RequestCommit) -> Asked:
    if commit.failure is not None:
        unreadable = [_unreadable(commit.failure, commit.version, last=commit.until)]
        return Asked(asked.requests, commit.last_version, asked.unreadable + unreadable)
    try:
        found, unreadable = requests_of(commit.rows, commit.version), []
    except Exception:  # some text is invalid: find the row
        found, unreadable = _row_by_row(commit.rows, commit.version)
    return Asked(asked.requests + found, commit.version, asked.unreadable + unreadable)


def _row_by_row(rows: pa.Table, version: int) -> tuple[list[Request], list[SetAside]]:
    found, unreadable = [], []
    for row in range(rows.num_rows):
        try:
            found += [request._replace(row=row) for request in requests_of(rows.slice(row, 1), version)]
        except Exception as failure:  # any error: the row is set aside
            unreadable.append(_unreadable(failure, version, first=row))
    return found, unreadable


def _unreadable(failure: Exception, version: int, **place: int | None) -> SetAside:
    return SetAside(REQUEST, type(failure).__name__, str(failure), requests_version=version, **place)
