"""The work of a round, and the plan's outcome, collected as columns rather than objects."""

from collections.abc import Collection, Sequence
from itertools import zip_longest
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.broker.cursors.consumer import Consumer
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.gathering.planned_entries import PlannedEntries
from pulsar_spark.broker.requests.drafts import CursorChanges
from pulsar_spark.protocol.acknowledgement.cursor import Range
from pulsar_spark.transforms.round_inputs import KINDS, SCHEMA


class PlanInputs:
    """Collects the input rows of a plan, of all cursors, by column."""

    def __init__(self):
        self._cursors: dict[str, list[int]] = {kind: [] for kind in KINDS}
        self._columns: dict[str, list[list]] = {kind: [[] for _ in names] for kind, names in KINDS.items()}

    def add(self, kind: str, cursor: int, **values: object) -> None:
        """Add one row; missing columns of its kind are null."""
        self.extend(kind, cursor, [tuple(map(values.get, KINDS[kind]))])

    def extend(self, kind: str, cursor: int, rows: Sequence[tuple]) -> None:
        """Add rows of one kind, with its columns in order; those missing at the end are null."""
        self._cursors[kind] += [cursor] * len(rows)
        missing: list = [None] * len(rows)
        for column, values in zip_longest(self._columns[kind], zip(*rows), fillvalue=missing):
            column += values

    def table(self) -> pa.Table:
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
    """What to plan: rows of transforms.round_inputs. By a cursor's number in them, ``cursors`` has what the round does
    to it, and ``entries`` which entries its rows stand for.

    ``resting`` are cursors without work, with consumers that could take entries. ``fruitless`` are Key_Shared cursors
    in which nothing was found.
    """

    rows: pa.Table
    cursors: list[CursorChanges]
    entries: list[PlannedEntries]
    resting: Sequence[tuple[Cursor, Collection[Consumer]]] = ()
    fruitless: Sequence[tuple[Cursor, tuple]] = ()

    def __bool__(self) -> bool:
        return bool(self.cursors)

    def only(self, numbers: Collection[int]) -> "Work":
        """The work of some cursors, numbered anew."""
        places = pc.index_in(self.rows["cursor"], pa.array(numbers, pa.int32()))
        is_in = pc.is_valid(places)
        return Work(
            self.rows.set_column(0, SCHEMA.field("cursor"), places).filter(is_in),
            [self.cursors[number] for number in numbers],
            [self.entries[number] for number in numbers],
        )


class ConsumerOutcome(NamedTuple):
    """A consumer's remaining permits, whether it is blocked, and messages delivered and redelivered."""

    consumer_id: str
    permits: int
    is_blocked: bool
    delivered: int
    redelivered: int


class Outcome(NamedTuple):
    """A cursor's ranges after the plan, whether it is blocked, messages delivered and redelivered, and its consumers.
    Ranges are of places, in order (see gathering.planned_entries)."""

    ranges: list[Range]
    is_blocked: bool
    delivered: int
    redelivered: int
    consumers: list[ConsumerOutcome]
