"""The rows of a round as Arrow: facts, and a row a range of the pages it wrote, of which there may be millions."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import chain, groupby
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulsar_spark.protocol.cursor import Range
from pulsar_spark.storage.cursor_ledger import CursorKey
from pulsar_spark.table_specs import CURSOR_LEDGER

_BLOCK_ROWS, _BLOCK_RANGES = 65_536, 1024
_ENDS = ("first", "last")
"""Columns of a range that differ from row to row; of the others many are all the same."""


class PageRows(NamedTuple):
    """The ranges of a page of a cursor, by position: a row each in the table. ``lane`` names the lane the page is of,
    if it is of one; ``positions`` are those of ranges of the due lane, packed, by first, ``chunks`` likewise which
    chunked messages are in ranges that are delivered. ``has_row``: a row of the page itself goes with them, which says
    that they are all it holds; else it is among the facts."""

    key: CursorKey
    topic: str
    page: int
    ranges: Sequence[Range]
    lane: str | None = None
    positions: Mapping[int, bytes] | None = None
    chunks: Mapping[int, bytes | None] | None = None
    has_row: bool = False


def rows_of_round(round_number: int, facts: list[dict], pages: Iterable[PageRows]) -> pa.Table:
    """The Arrow rows of one round: *facts* as dicts of columns, then a row a page and a row a range of *pages*.
    Consumers, pages and letters among the facts, of which there may be many, stand behind the others, so that they need
    not be asked for columns they lack."""
    many: dict[str, list[dict]] = {"": [], "consumer": [], "page": [], "letter": []}
    for fact in facts:
        many.get(fact["kind"], many[""]).append(fact)
    table = pa.concat_tables(CURSOR_LEDGER.rows(same) for same in many.values() if same)
    at = table.schema.get_field_index("round")
    table = table.set_column(at, table.field(at), _repeated([round_number], [len(facts)], table.field(at).type))
    pages = [page for page in pages if page.ranges]
    told = [page for page in pages if page.has_row]
    return pa.concat_tables(
        [
            table,
            *([_rows_of_pages(round_number, "page", told, _ends_of(told), [1] * len(told))] if told else []),
            *([_rows_of_ranges(round_number, pages)] if pages else []),
        ]
    )


def _ends_of(pages: list[PageRows]) -> dict[str, list]:
    return {"first": [page.ranges[0].first for page in pages], "last": [page.ranges[-1].last for page in pages]}


def _rows_of_ranges(round_number: int, pages: list[PageRows]) -> pa.Table:
    ranges = list(chain.from_iterable(page.ranges for page in pages))
    columns = _columns_of(ranges)
    for name in ("positions", "chunks"):
        if any(getattr(page, name) for page in pages):
            columns[name] = [(getattr(page, name) or {}).get(held.first) for page in pages for held in page.ranges]
    return _rows_of_pages(round_number, "range", pages, columns, [len(page.ranges) for page in pages])


def _columns_of(ranges: list[Range]) -> dict[str, list]:
    """The values of *ranges* field by field: block by block less than half the time of one field after the other,
    and of a million an eighth."""
    columns: dict[str, list] = {name: [] for name in Range._fields}
    for first in range(0, len(ranges), _BLOCK_RANGES):
        for column, values in zip(columns.values(), zip(*ranges[first : first + _BLOCK_RANGES])):
            column += values
    return columns


def _rows_of_pages(
    round_number: int, kind: str, pages: list[PageRows], columns: Mapping[str, Sequence], counts: list[int]
) -> pa.Table:
    """Rows of one kind: as many of each page as *counts* says, with *columns* and those of their page and round."""
    places = groupby(zip(pages, counts), key=lambda each: (each[0].topic, *each[0].key, each[0].lane))
    runs, of_runs = zip(*((place, sum(count for _, count in alike)) for place, alike in places))
    of_places = dict(zip(("topic", *CursorKey._fields, "lane"), zip(*runs)))
    same, rows = {"round": round_number, "kind": kind}, sum(counts)

    def column(field: pa.Field) -> pa.Array | pa.ChunkedArray:
        if field.name in columns:
            values = columns[field.name]
            is_same = field.name not in _ENDS and values.count(values[0]) == rows
            return _repeated(values[:1], [rows], field.type) if is_same else pa.array(values, field.type)
        if field.name == "page":
            return pa.array(np.repeat([page.page for page in pages], counts), field.type)
        if field.name in of_places:
            return _repeated(of_places[field.name], of_runs, field.type)
        return _repeated([same.get(field.name)], [rows], field.type)

    return pa.Table.from_arrays([column(field) for field in CURSOR_LEDGER.schema], schema=CURSOR_LEDGER.schema)


def _repeated(values: Sequence, counts: Sequence[int], kind: pa.DataType) -> pa.ChunkedArray:
    """Each value as often as its count says, in slices of one array per value: a million rows of the same take no
    memory."""
    slices = []
    for value, same in groupby(zip(values, counts), key=itemgetter(0)):
        left = sum(count for _, count in same)
        block = _nulls(kind) if value is None else pa.repeat(pa.scalar(value, kind), min(left, _BLOCK_ROWS))
        while left:
            slices.append(block.slice(0, min(left, _BLOCK_ROWS)))
            left -= len(slices[-1])
    return pa.chunked_array(slices, kind)


@cache
def _nulls(kind: pa.DataType) -> pa.Array:
    """A block of nulls: most columns of a range are, in every round, and making them again takes as long as the
    rest."""
    return pa.nulls(_BLOCK_ROWS, kind)
