"""The work of a round, and what the plan says of it: rows in columns, cursor by cursor.

Rows come together kind by kind as lists of values, so that a hundred thousand of them become Arrow without an object
each.
"""

from collections.abc import Collection, Sequence
from itertools import zip_longest
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.broker.affected import Affected
from pulsar_spark.broker.drafts import CursorDraft
from pulsar_spark.protocol.cursor import Range
from pulsar_spark.transforms.round_inputs import KINDS, SCHEMA


class Rows:
    """Rows of transforms.round_inputs as they come together."""

    def __init__(self):
        self._cursors: dict[str, list[int]] = {kind: [] for kind in KINDS}
        self._columns: dict[str, list[list]] = {kind: [[] for _ in names] for kind, names in KINDS.items()}

    def add(self, kind: str, cursor: int, **values: object) -> None:
        """One row; columns of its kind that are not given are null."""
        self.extend(kind, cursor, [tuple(map(values.get, KINDS[kind]))])

    def extend(self, kind: str, cursor: int, rows: Sequence[tuple]) -> None:
        """Rows of one kind, with the columns of that kind in order; those left out at the end are null."""
        self._cursors[kind] += [cursor] * len(rows)
        given = [*zip(*rows)]
        for column, values in zip_longest(self._columns[kind], given, fillvalue=(None,) * len(rows)):
            column += values

    def table(self) -> pa.Table:
        """All of them, kind by kind."""
        return pa.concat_tables(
            [SCHEMA.empty_table(), *(self._table_of(kind) for kind, cursors in self._cursors.items() if cursors)]
        )

    def _table_of(self, kind: str) -> pa.Table:
        cursors, columns = self._cursors[kind], dict(zip(KINDS[kind], self._columns[kind]))
        columns |= {"cursor": cursors, "kind": [kind] * len(cursors)}
        return pa.table(
            [
                pa.array(columns[field.name], field.type)
                if field.name in columns
                else pa.nulls(len(cursors), field.type)
                for field in SCHEMA
            ],
            SCHEMA,
        )


class Work(NamedTuple):
    """What to plan: rows of transforms.round_inputs, the cursor each ``cursor`` number stands for, and which of its
    ranges they hold."""

    rows: pa.Table
    cursors: list[CursorDraft]
    affected: list[Affected]

    def __bool__(self) -> bool:
        return bool(self.cursors)

    def only(self, numbers: Collection[int]) -> "Work":
        """The work of some of the cursors, which are numbered afresh."""
        places = pc.index_in(self.rows["cursor"], pa.array(numbers, pa.int32()))
        is_in = pc.is_valid(places)
        return Work(
            self.rows.set_column(0, SCHEMA.field("cursor"), places).filter(is_in),
            [self.cursors[number] for number in numbers],
            [self.affected[number] for number in numbers],
        )


class ConsumerOutcome(NamedTuple):
    """What became of a consumer: permits left, whether it is blocked, messages it was given, and again."""

    consumer_id: str
    permits: int
    is_blocked: bool
    delivered: int
    redelivered: int


class Outcome(NamedTuple):
    """What the plan says of a cursor: its ranges by position (of those that were planned), whether it is blocked, the
    messages given in all, and its consumers."""

    ranges: list[Range]
    is_blocked: bool
    delivered: int
    redelivered: int
    consumers: list[ConsumerOutcome]
