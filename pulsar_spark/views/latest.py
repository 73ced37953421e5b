"""The current state in the rows of ``cursor_ledger``, as SQL: each key's row of the latest round, unless it or what it
depends on was removed.

``{rows}`` stands for the table or a frame; with several bundles for the rows of all, each topic's from its own bundle
only, because split bundles share earlier rows.
"""

from collections.abc import Iterable, Mapping, Sequence

from pulsar_spark.protocol.topics.bundles import HIGHEST, BundleRange
from pulsar_spark.storage.cursor_ledger.cursor_ledger import KEYS, CursorKey
from pulsar_spark.storage.session import quoted
from pulsar_spark.table_specs import CURSOR_LEDGER
from pulsar_spark.views.view_specs import ViewSpec

_CURSOR = CursorKey._fields
_ALL = "all_bundles"


def latest(kind: str) -> str:
    """The latest row of each key of a kind, unless that removes it. A key removed and created in one round exists."""
    keys = _names(KEYS[kind])
    others = _names(name for name in CURSOR_LEDGER.schema.names if name not in KEYS[kind])
    newest = (
        f"SELECT {keys}, max_by(struct({others}), struct(round, NOT coalesce(is_removed, false))) AS latest "
        f"FROM {{rows}} WHERE kind = '{kind}' GROUP BY {keys}"
    )
    return f"SELECT {keys}, latest.* FROM ({newest}) WHERE NOT coalesce(latest.is_removed, false)"


def cursors() -> str:
    """The existing cursors: the latest row of each, unless it or, later, its topic was removed."""
    return (
        f"SELECT cursor.* FROM ({latest('cursor')}) AS cursor "
        f"LEFT JOIN ({_last_removal('topic', ['topic_id'])}) AS gone "
        f"ON {_same('cursor', 'gone', ['topic_id'])} WHERE gone.gone_round IS NULL OR gone.gone_round < cursor.round"
    )


def of_cursors_there(facts: str) -> str:
    """The *facts* (a table's name or a query in brackets) of existing cursors, since each cursor's last removal."""
    return (
        f"SELECT fact.* FROM {facts} AS fact "
        f"LEFT SEMI JOIN ({cursors()}) AS there ON {_same('fact', 'there', _CURSOR)} "
        f"LEFT JOIN ({_last_removal('cursor', _CURSOR)}) AS gone ON {_same('fact', 'gone', _CURSOR)} "
        "WHERE gone.gone_round IS NULL OR gone.gone_round <= fact.round"
    )


def _last_removal(kind: str, key: Sequence[str]) -> str:
    return (
        f"SELECT {_names(key)}, max(round) AS gone_round FROM {{rows}} "
        f"WHERE kind = '{kind}' AND is_removed GROUP BY {_names(key)}"
    )


def _same(one: str, other: str, key: Iterable[str]) -> str:
    return " AND ".join(f"{one}.{quoted(name)} = {other}.{quoted(name)}" for name in key)


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(quoted, names))


VIEW_TEXTS = {
    "cursors": cursors(),
    "consumers": of_cursors_there(f"({latest('consumer')})"),
    "rounds": "SELECT * FROM {rows} WHERE kind = 'round'",
    "housekeeping": "SELECT * FROM {rows} WHERE kind = 'housekeeping'",
}
"""The views that are plain SQL; others need Python."""


def view_text(view: ViewSpec) -> str:
    """A view of :data:`VIEW_TEXTS` with its columns."""
    return f"SELECT {_names(view.column_names)} FROM ({VIEW_TEXTS[view.name]})"


def view_over(view: ViewSpec, tables: Mapping[BundleRange, str]) -> str:
    """The view over tables of these names, one for each bundle of a root."""
    if len(tables) == 1:
        return view_text(view).format(rows=next(iter(tables.values())))
    names = _names(CURSOR_LEDGER.schema.names)
    rows = (f"SELECT {names} FROM {table} WHERE {is_of_bundle(served)}" for served, table in tables.items())
    return f"WITH {_ALL} AS ({' UNION ALL '.join(rows)}) {view_text(view).format(rows=_ALL)}"


def is_of_bundle(served: BundleRange) -> str:
    """Whether a row is the bundle's: its ``topic`` belongs to the bundle, or it names no topic."""
    last = served.upper - (served.upper != HIGHEST)
    is_its = f"crc32(CAST(topic AS BINARY)) BETWEEN {served.lower} AND {last}"
    return f"(topic IS NULL OR NOT contains(topic, '://') OR {is_its})"
