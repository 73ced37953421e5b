"""What a round takes from consumers and deals to nobody: what is acknowledged, and what comes back to wait."""

import numpy as np

from pulsar_spark.broker.gathering.coded_rows import CodedRows, Requested, starts_of
from pulsar_spark.broker.gathering.marks import Marks, Returned
from pulsar_spark.protocol.acknowledgement.positions import as_array, expanded, inside
from pulsar_spark.protocol.entries.entry_codes import UNREAD_CODE
from pulsar_spark.protocol.entries.entry_map import EntryMap

ONE_BY_ONE = 1 << 18
"""Acknowledged entries up to which they are looked at one by one; of more, whole stretches are counted."""


def add_acknowledged(rows: CodedRows, marks: Marks, entries: EntryMap) -> None:
    count = sum(last - first + 1 for first, last in marks.acked)
    if 0 < count <= ONE_BY_ONE:
        rows.add_by_code(expanded(*as_array(marks.acked)), is_acked=True)
    else:
        for span in marks.acked:
            for code in (UNREAD_CODE, *marks.known):
                rows.add_stretch(code, *span, is_acked=True)
    for code, spans in marks.answered.items():
        for span in spans:
            if any(first <= span[1] and last >= span[0] for first, last in marks.acked):
                positions = entries.where([code], *span)
                rows.add_by_code(positions[~inside(positions, marks.acked)], is_acked=True)
            else:
                rows.add_stretch(code, *span, is_acked=True)


def add_leaving(rows: CodedRows, marks: Marks, entries: EntryMap) -> None:
    """Add the codes all of whose entries come back, to be dealt to nobody in this round."""
    apart = [(position, position) for position in marks.left_of_batches.tolist()]
    for code in marks.leaving:
        if marks.acked or marks.answered or apart:
            positions = entries.where([code], 0, entries.end - 1)
            is_apart = marks.are_acked(positions, np.full(len(positions), code)) | inside(positions, apart)
            rows.add_by_code(positions[~is_apart])
        else:
            rows.add_stretch(code, entries.mark_delete + 1, entries.end - 1)


def add_returned(rows: CodedRows, returned: Returned, entries: EntryMap) -> None:
    """Add what is given back and not dealt in this round, those that agree together."""
    if not len(returned.positions):
        return
    codes = entries.at(returned.positions)
    order = np.lexsort((returned.positions, returned.unseen, returned.dues, codes))
    columns = [column[order] for column in (codes, returned.dues, returned.unseen.astype(np.int64))]
    starts = starts_of(*columns)
    for begin, end in zip(starts, [*starts[1:], len(order)]):
        positions = returned.positions[order[begin:end]]
        code, due, is_unseen = (int(column[begin]) for column in columns)
        rows.add_listed(code, positions, Requested(return_time=due, is_unseen=bool(is_unseen)))
