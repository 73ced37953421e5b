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

_BLOCK_ROWS = 65_536


class PageRows(NamedTuple):
    """The ranges of a page of a cursor, by position: a row each in the table. ``lane`` names the lane the page is of,
    if it is of one; ``positions`` are those of ranges of the due lane, packed, by first, ``chunks`` likewise which
    chunked messages are in ranges that are delivered."""

    key: CursorKey
    topic: str
    page: int
    ranges: Sequence[Range]
    lane: str | None = None
    positions: Mapping[int, bytes] | None = None
    chunks: Mapping[int, bytes | None] | None = None


def rows_of_round(round_number: int, facts: list[dict], pages: Iterable[PageRows]) -> pa.Table:
    """The Arrow rows of one round: *facts* as dicts of columns, then a row a range of *pages*. Pages and letters among
    the facts, of which there may be many, stand behind the others, so that they need not be asked for columns they
    lack."""
    many: dict[str, list[dict]] = {"": [], "page": [], "letter": []}
    for fact in facts:
        many.get(fact["kind"], many[""]).append(fact)
    table = pa.concat_tables(CURSOR_LEDGER.rows(same) for same in many.values() if same)
    at = table.schema.get_field_index("round")
    table = table.set_column(at, table.field(at), _repeated([round_number], [len(facts)], table.field(at).type))
    pages = [page for page in pages if page.ranges]
    if not pages:
        return table
    ranges = dict(zip(Range._fields, zip(*(zip(*page.ranges) for page in pages))))
    counts = [len(page.ranges) for page in pages]
    of_pages = {
        "topic": [page.topic for page in pages],
        **dict(zip(CursorKey._fields, zip(*(page.key for page in pages)))),
    }
    of_pages["lane"] = [page.lane for page in pages]
    same = {"round": round_number, "kind": "range"}
    packed = {"positions": any(page.positions for page in pages), "chunks": any(page.chunks for page in pages)}

    def column(field: pa.Field) -> pa.Array | pa.ChunkedArray:
        if field.name in ranges:
            return pa.array(list(chain.from_iterable(ranges[field.name])), field.type)
        if packed.get(field.name):
            of_each = [(getattr(page, field.name) or {}).get(held.first) for page in pages for held in page.ranges]
            return pa.array(of_each, field.type)
        if field.name == "page":
            return pa.array(np.repeat([page.page for page in pages], counts), field.type)
        if field.name in of_pages:
            return _repeated(of_pages[field.name], counts, field.type)
        return _repeated([same.get(field.name)], [sum(counts)], field.type)

    return pa.concat_tables(
        [table, pa.Table.from_arrays([column(field) for field in CURSOR_LEDGER.schema], schema=CURSOR_LEDGER.schema)]
    )


def _repeated(values: Sequence, counts: list[int], kind: pa.DataType) -> pa.ChunkedArray:
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
