"""The current state in the rows of ``cursor_ledger``, as SQL: each key's row of the latest round, unless it or what it
depends on was removed.

``{rows}`` stands for the table or a frame; with several bundles for the rows of all, each topic's from its own bundle
only, because split bundles share earlier rows."""

from collections.abc import Iterable

from pulsar_spark.protocol.topics.bundles import HIGHEST, BundleRange
from pulsar_spark.storage.cursor_ledger.cursor_ledger import KEYS, CursorKey
from pulsar_spark.storage.session import quoted
from pulsar_spark.table_specs import CURSOR_LEDGER

_CURSOR = CursorKey._fields


def latest(kind: str) -> str:
    """The latest row of each key of a kind, unless that removes it, and ``removed_round``, the last round that did.

    A key removed and created in one round exists."""
    keys = names(KEYS[kind])
    others = names(name for name in CURSOR_LEDGER.schema.names if name not in KEYS[kind])
    newest = (
        f"SELECT {keys}, max_by(struct({others}), struct(round, NOT coalesce(is_removed, false))) AS latest, "
        f"max(IF(is_removed, round, NULL)) AS removed_round FROM {{rows}} WHERE kind = '{kind}' GROUP BY {keys}"
    )
    return f"SELECT {keys}, latest.*, removed_round FROM ({newest}) WHERE NOT coalesce(latest.is_removed, false)"


def cursors() -> str:
    """The existing cursors, as :func:`latest` gives them; a removed topic removes its cursors, too."""
    gone = "SELECT topic_id, max(round) AS gone_round FROM {rows} WHERE kind = 'topic' AND is_removed GROUP BY topic_id"
    return (
        f"SELECT cursor.* FROM ({latest('cursor')}) AS cursor LEFT JOIN ({gone}) AS gone "
        "ON cursor.topic_id = gone.topic_id WHERE gone.gone_round IS NULL OR gone.gone_round < cursor.round"
    )


def of_cursors_there(facts: str, columns: str = "fact.*") -> str:
    """*columns* of the *facts* (a table's name or a query in brackets) of each existing ``cursor`` since its last
    removal."""
    return (
        f"SELECT {columns} FROM {facts} AS fact JOIN ({cursors()}) AS cursor ON {same('fact', 'cursor', _CURSOR)} "
        "WHERE (cursor.removed_round IS NULL OR cursor.removed_round <= fact.round)"
    )


def same(one: str, other: str, key: Iterable[str]) -> str:
    return " AND ".join(f"{one}.{quoted(name)} = {other}.{quoted(name)}" for name in key)


def names(columns: Iterable[str]) -> str:
    return ", ".join(map(quoted, columns))


def is_of_bundle(served: BundleRange) -> str:
    """Whether a row is the bundle's: its ``topic`` belongs to the bundle, or it names no topic."""
    last = served.upper - (served.upper != HIGHEST)
    is_its = f"crc32(CAST(topic AS BINARY)) BETWEEN {served.lower} AND {last}"
    return f"(topic IS NULL OR NOT contains(topic, '://') OR {is_its})"
