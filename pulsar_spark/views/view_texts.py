"""The views that are plain SQL, over frames or over tables of a catalog; the others need Python (see views)."""

from collections.abc import Mapping

from pulsar_spark.protocol.acknowledgement.cursor import PENDING, REPLAY
from pulsar_spark.protocol.topics.bundles import BundleRange
from pulsar_spark.table_specs import CURSOR_LEDGER
from pulsar_spark.views.entries import entries_in
from pulsar_spark.views.latest import cursors, is_of_bundle, latest, names, of_cursors_there
from pulsar_spark.views.view_specs import ViewSpec

_ALL = "all_bundles"
VIEW_TEXTS = {
    "cursors": cursors(),
    "pending_acks": entries_in(PENDING, REPLAY),
    "consumers": of_cursors_there(f"({latest('consumer')})"),
    "rounds": "SELECT * FROM {rows} WHERE kind = 'round'",
    "housekeeping": "SELECT * FROM {rows} WHERE kind = 'housekeeping'",
}
"""By name: the rows of each view, with further columns."""


def view_text(view: ViewSpec) -> str:
    """A view of :data:`VIEW_TEXTS` with its columns."""
    computed = "".join(f", {expression} AS {column.name}" for column, expression in view.computed)
    return f"SELECT {names(view.column_names)}{computed} FROM ({VIEW_TEXTS[view.name]})"


def view_over(view: ViewSpec, tables: Mapping[BundleRange, str]) -> str:
    """The view over tables of these names, one for each bundle of a root."""
    if len(tables) == 1:
        return view_text(view).format(rows=next(iter(tables.values())))
    columns = names(CURSOR_LEDGER.schema.names)
    rows = (f"SELECT {columns} FROM {table} WHERE {is_of_bundle(served)}" for served, table in tables.items())
    return f"WITH {_ALL} AS ({' UNION ALL '.join(rows)}) {view_text(view).format(rows=_ALL)}"
