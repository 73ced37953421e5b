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


class RequestBatch(NamedTuple):
    """Requests in order, the last version read, and what was unreadable up to there."""

    requests: list[Request]
    version: int
    unreadable: list[SetAside]


def read_request_batch(path: AnyPath, *, after: int) -> RequestBatch:
    """The requests after version *after*."""
    batch = RequestBatch([], after, [])
    for commit in read_requests(path, after=after):
        batch = _with(batch, commit)
    return batch


def read_set_aside(path: AnyPath, entry: SetAside) -> RequestBatch:
    """The requests of an entry set aside: one, or a whole commit."""
    first = entry.requests_version or 0
    last = first if entry.last is None else entry.last
    batch = RequestBatch([], last, [])
    for version in range(first, last + 1):
        batch = _with(batch, read_request_commit(path, version))
    return batch._replace(requests=[request for request in batch.requests if entry.first in (None, request.row)])


def read_places(path: AnyPath, places: Iterable[tuple[int, int]]) -> list[Request]:
    """The requests at these versions and rows that can be read."""
    found = []
    for version, same in groupby(sorted(places), key=itemgetter(0)):
        rows = {row for _, row in same}
        batch = _with(RequestBatch([], version, []), read_request_commit(path, version))
        found += [request for request in batch.requests if request.row in rows]
    return found


def _with(batch: RequestBatch, commit: RequestCommit) -> RequestBatch:
    if commit.failure is not None:
        unreadable = [_unreadable(commit.failure, commit.version, last=commit.until)]
        return RequestBatch(batch.requests, commit.last_version, batch.unreadable + unreadable)
    try:
        found, unreadable = requests_of(commit.rows, commit.version), []
    except Exception:  # some text is invalid: find the row
        found, unreadable = _row_by_row(commit.rows, commit.version)
    return RequestBatch(batch.requests + found, commit.version, batch.unreadable + unreadable)


def _row_by_row(rows: pa.Table, version: int) -> tuple[list[Request], list[SetAside]]:
    found, unreadable = [], []
    for row in range(rows.num_rows):
        try:
            found += [request._replace(row=row) for request in requests_of(rows.slice(row, 1), version)]
        except Exception as failure:  # any error: the row is set aside
            unreadable.append(_unreadable(failure, version, first=row))
    return found, unreadable


def _unreadable(failure: Exception, version: int, *, first: int | None = None, last: int | None = None) -> SetAside:
    return SetAside(REQUEST, type(failure).__name__, str(failure), requests_version=version, first=first, last=last)
