"""The ``schemas`` table: versions of each topic's schema. A commit of the very next version makes equal schemas one."""

import contextlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import pyarrow.compute as pc

from pulsar_spark.errors import BrokerFenced
from pulsar_spark.protocol.schemas.schema_compatibility import is_same_schema
from pulsar_spark.protocol.schemas.schema_info import SchemaInfo, SchemaType
from pulsar_spark.storage.delta.definitions import create_table
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import dataset_of, open_table, reading
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.store.store import AnyPath
from pulsar_spark.storage.topics.topics import Topic
from pulsar_spark.table_specs import SCHEMAS

_REMOVAL = SchemaInfo(SchemaType.NONE, "", "")


class KeptSchema(NamedTuple):
    version: int
    info: SchemaInfo
    properties: dict[str, str]
    create_time: datetime
    is_removed: bool


class SchemaTable:
    """The table of one root, which need not exist; reads are cached."""

    def __init__(self, layout: Layout):
        self._layout = layout
        self.path: AnyPath = layout.root_table(SCHEMAS.name)
        self._log = TableLog(self.path)
        self._known: dict[str, tuple[int, list[KeptSchema]]] = {}

    def versions(self, topic_id: str) -> list[KeptSchema]:
        """All versions of a topic's schema, oldest first, with removals."""
        return self._read(topic_id)[1]

    def written(self, topic_id: str) -> dict[int, SchemaInfo]:
        """The schemas with which messages may have been written, by version."""
        return {each.version: each.info for each in self.versions(topic_id) if not each.is_removed}

    def kept(self, topic_id: str) -> list[KeptSchema]:
        """The versions since the latest removal, for compatibility checks."""
        return _since_removal(self.versions(topic_id))

    def keep(
        self,
        topic: Topic,
        info: SchemaInfo,
        check: Callable[[list[SchemaInfo]], None],
        properties: Mapping[str, str] | None = None,
    ) -> int:
        """The version of *info*, a new one unless a kept schema equals it; *check* gets these, and may raise."""

        def next_one(versions: list[KeptSchema]) -> SchemaInfo | int:
            kept = _since_removal(versions)
            for each in kept:
                if is_same_schema(each.info, info):
                    return each.version
            check([each.info for each in kept])
            return info

        return self._append(topic, next_one, properties or {})

    def remove(self, topic: Topic) -> int | None:
        """Drop the topic's schemas for later checks; returns the removal's version, or None."""
        version = self._append(topic, lambda versions: _REMOVAL if _since_removal(versions) else -1, {})
        return None if version < 0 else version

    def _append(
        self, topic: Topic, decide: Callable[[list[KeptSchema]], SchemaInfo | int], properties: Mapping[str, str]
    ) -> int:
        while True:
            seen, versions = self._read(topic.topic_id)
            decided = decide(versions)
            if isinstance(decided, int):
                return decided
            row = {
                "topic": str(topic.name),
                "topic_id": topic.topic_id,
                "schema_version": len(versions),
                "schema_type": decided.schema_type().name,
                "name": decided.name(),
                "schema": decided.schema(),
                "properties": list(properties.items()),
                "create_time": datetime.now(UTC),
                "is_removed": decided is _REMOVAL,
            }
            if seen < 0:
                create_table(self.path, SCHEMAS)
                continue
            with contextlib.suppress(BrokerFenced):
                AppendTable(self.path).append_fenced(SCHEMAS.rows([row]), seen)
                return len(versions)

    def _read(self, topic_id: str) -> tuple[int, list[KeptSchema]]:
        """The table's version (-1 without a table) and the topic's versions."""
        latest = self._log.latest()
        if latest < 0:
            return -1, []
        known = self._known.get(topic_id)
        if known is None or known[0] != latest:
            table = open_table(self.path)
            with reading(self.path):
                rows = dataset_of(table).to_table(columns=SCHEMAS.schema.names, filter=pc.field("topic_id") == topic_id)
            found = [_kept(row) for row in rows.cast(SCHEMAS.schema).sort_by("schema_version").to_pylist()]
            known = self._known[topic_id] = table.version(), found
        return known


def _kept(row: dict) -> KeptSchema:
    kind = SchemaType.__members__.get(row["schema_type"], SchemaType.NONE)
    info = SchemaInfo(kind, row["name"], row["schema"])
    properties, is_removed = dict(row["properties"] or ()), bool(row["is_removed"])
    return KeptSchema(row["schema_version"], info, properties, row["create_time"], is_removed)


def _since_removal(versions: list[KeptSchema]) -> list[KeptSchema]:
    first = max((number for number, each in enumerate(versions, 1) if each.is_removed), default=0)
    return versions[first:]
