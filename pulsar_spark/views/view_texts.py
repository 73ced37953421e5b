"""The views that are plain SQL, over frames or over tables of a catalog; the others need Python (see views)."""

from collections.abc import Mapping

from pulsar_spark.protocol.acknowledgement.cursor import PENDING, REPLAY
from pulsar_spark.protocol.topics.bundles import BundleRange
from pulsar_spark.table_specs import CURSOR_LEDGER
from pulsar_spark.views.entries import entries_in
from pulsar_spark.views.latest import cursors, is_of_bundle, latest, names, of_cursors_there
from pulsar_spark.views.view_specs import ACTIVITY_OVER_TIME, ViewSpec

_ALL = "all_bundles"
VIEW_TEXTS = {
    "cursors": cursors(),
    "pending_acks": entries_in(PENDING, REPLAY),
    "consumers": of_cursors_there(f"({latest('consumer')})"),
    "rounds": "SELECT * FROM {rows} WHERE kind = 'round'",
    "housekeeping": "SELECT * FROM {rows} WHERE kind = 'housekeeping'",
}
"""By name: the rows of each view, with further columns."""
_PLACE = "topic_id, partition, subscription"


def activity_text() -> str:
    """The view ``activity``, as differences of the samples in ``{rows}``. A counter that fell began again at 0."""
    counters = {
        "delivered": "msg_out_counter",
        "redelivered": "msg_redeliver_counter",
        "acknowledged": "msg_ack_counter",
        "dead": "msg_dead_counter",
    }
    first = "IF(subscription IS NULL, msg_in_counter, 0)"
    columns = [f"{_growth('msg_in_counter', first)} AS published"]
    columns += [f"{_growth(counter, counter)} AS {name}" for name, counter in counters.items()]
    oldest, until = "unix_micros(oldest_publish_time)", "unix_micros(minute_time) + 60000000"
    age = f"IF(oldest_publish_time IS NULL, NULL, greatest(({until} - {oldest}) / 1000000D, 0D))"
    samples = f"SELECT max_by(struct(*), round) AS sample FROM {{rows}} GROUP BY {_PLACE}, minute_time"
    growths = f"SELECT *, {', '.join(columns)} FROM (SELECT sample.* FROM ({samples}))"
    found = names(column.name for column in ACTIVITY_OVER_TIME.columns)
    return (
        f"SELECT {found} FROM (SELECT *, {age} AS backlog_age_seconds FROM ({growths})) "
        "WHERE minute_time > current_timestamp() - INTERVAL 90 DAYS"
    )


def _growth(counter: str, first: str) -> str:
    before = f"lag({counter}) OVER (PARTITION BY {_PLACE} ORDER BY minute_time)"
    since = f"IF({counter} < {before}, {counter}, {counter} - {before})"
    return f"IF({before} IS NULL, {first}, {since})"


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
