"""The tables, as data: one :class:`TableSpec` per table, from which tables are created, rows are written and
documentation is made.

Column names are Pulsar's wire names in snake case. Instants end in ``_time`` (UTC), durations in ``_ms``.
"""

from pulsar_spark.table_specs.activity import ACTIVITY
from pulsar_spark.table_specs.cursor_ledger import CURSOR_LEDGER
from pulsar_spark.table_specs.ledgers import DELAY_INDEX, LEDGERS
from pulsar_spark.table_specs.messages import (
    CHUNK_COLUMNS,
    COMPACTED,
    DELIVERED,
    HASH,
    KEY_COLUMNS,
    KEY_FLAGS,
    MESSAGE_KEYS,
    MESSAGES,
    REPROCESSING,
    SCHEMAS,
)
from pulsar_spark.table_specs.requests import REQUESTS, VALID_UNTIL
from pulsar_spark.table_specs.spec import (
    ENCRYPTION_KEYS,
    HASH_RANGES,
    LAYOUT_VERSION,
    PROPERTIES,
    TIME,
    Column,
    TableSpec,
)

TABLES = (MESSAGES, COMPACTED, REQUESTS, CURSOR_LEDGER, LEDGERS, DELAY_INDEX, ACTIVITY, REPROCESSING, SCHEMAS)
BROKER_TABLES = (REQUESTS, CURSOR_LEDGER, LEDGERS)
LATER_TABLES = (DELAY_INDEX, ACTIVITY)
"""Tables of a broker that are created when they are first written."""

__all__ = [
    "ACTIVITY",
    "BROKER_TABLES",
    "CHUNK_COLUMNS",
    "COMPACTED",
    "CURSOR_LEDGER",
    "Column",
    "DELAY_INDEX",
    "DELIVERED",
    "ENCRYPTION_KEYS",
    "HASH_RANGES",
    "HASH",
    "KEY_COLUMNS",
    "KEY_FLAGS",
    "MESSAGE_KEYS",
    "LAYOUT_VERSION",
    "LATER_TABLES",
    "LEDGERS",
    "MESSAGES",
    "PROPERTIES",
    "REPROCESSING",
    "REQUESTS",
    "SCHEMAS",
    "TABLES",
    "TIME",
    "TableSpec",
    "VALID_UNTIL",
]
