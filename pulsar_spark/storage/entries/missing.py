"""Entries of a publish that are not in the table: trimmed, deleted, or lost."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.errors import MessagesLost
from pulsar_spark.protocol.acknowledgement.positions import distinct
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.entries.message_files import EntryIds
from pulsar_spark.storage.entries.topic_files import partition_of, trimmed_ledgers
from pulsar_spark.storage.store.away import check_there
from pulsar_spark.storage.store.store import StrPath, path_of


class Missing(NamedTuple):
    """Entries with missing messages: all of the stretches ``whole``, and some batch indexes of ``parts``."""

    messages: int
    whole: list[tuple[int, int]]
    parts: dict[int, list[int]]
    lost: str | None

    @property
    def is_lost(self) -> bool:
        return self.lost is not None

    @property
    def entries(self) -> list[tuple[int, int]]:
        """Stretches of entries that lack any message."""
        return sorted(self.whole + [(entry_id, entry_id) for entry_id in self.parts])


class Present:
    def __init__(self):
        self._entry_ids: list[np.ndarray] = []
        self._batch_indexes: list[pa.ChunkedArray] = []

    def add(self, entry_ids: np.ndarray, batch_indexes: pa.ChunkedArray) -> None:
        self._entry_ids.append(entry_ids)
        self._batch_indexes.append(batch_indexes)

    @property
    def messages(self) -> int:
        return sum(map(len, self._entry_ids))

    def gaps(self, wanted: EntryIds) -> list[tuple[int, int]]:
        """The ids of *wanted* without any message, as stretches."""
        ids = distinct(np.concatenate(self._entry_ids)) if self._entry_ids else np.empty(0, np.int64)
        starts, ends = np.searchsorted(ids, wanted.firsts, "left"), np.searchsorted(ids, wanted.lasts, "right")
        short = np.nonzero(ends - starts < wanted.lasts - wanted.firsts + 1)[0]
        return [
            gap
            for at in short.tolist()
            for gap in gaps(ids[starts[at] : ends[at]], int(wanted.firsts[at]), int(wanted.lasts[at]))
        ]

    def parts(self, batch_size: int) -> dict[int, list[int]]:
        if batch_size < 2 or not self._entry_ids:
            return {}
        entry_ids = np.concatenate(self._entry_ids)
        indexes = np.concatenate([pc.fill_null(each, 0).to_numpy() for each in self._batch_indexes])
        found, counts = np.unique(entry_ids, return_counts=True)
        is_short = np.isin(entry_ids, found[counts < batch_size])
        there: dict[int, set[int]] = {}
        for entry_id, index in zip(entry_ids[is_short].tolist(), indexes[is_short].tolist()):
            there.setdefault(entry_id, set()).add(index)
        return {entry_id: sorted(set(range(batch_size)) - known) for entry_id, known in there.items()}


def gaps(entry_ids: np.ndarray, first: int, last: int) -> list[tuple[int, int]]:
    """Ranges of ids from *first* to *last* that the ordered *entry_ids* lack.

    >>> gaps(np.array([3, 4, 7]), 2, 9)
    [(2, 2), (5, 6), (8, 9)]
    """
    known = np.concatenate(([first - 1], entry_ids, [last + 1]))
    at = np.nonzero(np.diff(known) > 1)[0]
    return [(int(known[index]) + 1, int(known[index + 1]) - 1) for index in at]


def missing_of(table: StrPath, run: Run, wanted: EntryIds, present: Present, lost: Iterable[str]) -> Missing | None:
    """The *wanted* entries of *run* that are not *present*; None if none, or if trimmed."""
    check_there(table)
    if is_trimmed(table, run):
        return None
    whole, parts = present.gaps(wanted), present.parts(run.batch_size)
    messages = sum(end - start + 1 for start, end in whole) * max(1, run.batch_size) + sum(map(len, parts.values()))
    return Missing(messages, whole, parts, next(iter(lost), None)) if messages else None


def is_trimmed(table: StrPath, run: Run) -> bool:
    partition = partition_of(run.path)
    return run.ledger_id <= trimmed_ledgers(table, [partition])[partition]


def lost_error(table: StrPath, run: Run, missing: Missing) -> MessagesLost:
    ranges, partition = missing.entries, partition_of(run.path)
    named = ", ".join(
        f"{run.ledger_id}:{first}" if first == last else f"{run.ledger_id}:{first} to {run.ledger_id}:{last}"
        for first, last in ranges[:5]
    )
    more = f"  and {len(ranges) - 5} more ranges" if len(ranges) > 5 else ""
    where = f" of partition {partition}" if partition >= 0 else ""
    text = (
        f"messages {named}{more}{where} of the topic at {str(table)!r} are lost: file {missing.lost!r} is "
        "missing, incomplete or damaged, but the table still refers to it; restore it, or skip them with 'pulsar-spark "
        "subscriptions skip-lost TOPIC -s SUBSCRIPTION'"
    )
    return MessagesLost(text, str(path_of(table)), partition, run.ledger_id, tuple(ranges), missing.lost or "")
