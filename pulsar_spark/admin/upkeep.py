"""Upkeep of a root without a broker. Brokers do all but trimming automatically.

Functions return a row (a dict) per table or topic partition, and change nothing on a dry run.
"""

from collections.abc import Iterator
from datetime import datetime, timezone

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.link.requester import require_root
from pulsar_spark.protocol.topics.topic_name import parse_namespace
from pulsar_spark.storage.delta.checkpoints import make_checkpoint
from pulsar_spark.storage.delta.scan import read_rows
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.store.store import AnyPath
from pulsar_spark.storage.topics.bundles import layouts_of
from pulsar_spark.storage.topics.topics import Topic, list_topics, resolve_topic
from pulsar_spark.storage.upkeep import upkeep
from pulsar_spark.storage.upkeep.trimming import trim_topic
from pulsar_spark.table_specs import CURSOR_LEDGER

DEFAULT_VACUUM_HOURS = 168


def trim(
    layout: Layout,
    topic: str | None = None,
    namespace: str | None = None,
    *,
    before: int | None = None,
    now: datetime | None = None,
    dry_run: bool = False,
) -> list[dict]:
    """Remove messages that every subscription has acknowledged and retention does not keep, of one topic, a namespace,
    or all.

    With *before* (and one partition of a topic) everything below that position, whatever retention says;
    :class:`NotAllowedError` if a subscription needs it.
    """
    chosen = (
        [resolve_topic(layout, topic)]
        if topic
        else [(found, list(found.partition_indexes)) for found in _topics(layout, namespace)]
    )
    if before is not None and (topic is None or len(chosen[0][1]) > 1):
        raise InvalidConfiguration(
            f"trim before {before}: positions count by partition, so name one topic without partitions, or one "
            "partition of a topic"
        )
    now = now or datetime.now(timezone.utc)
    return [
        {
            "topic": str(found.name.partition(done.trim.partition)),
            "first_position": done.trim.first_position,
            "files": done.files,
            "bytes": done.bytes,
            "kept_by": done.trim.kept_by,
        }
        for found, partitions in chosen
        for done in trim_topic(layout, found, partitions, now=now, before=before, dry_run=dry_run)
    ]


def optimize(
    layout: Layout, topic: str | None = None, namespace: str | None = None, *, dry_run: bool = False
) -> list[dict]:
    """Merge small files of the selected tables; a dry run counts the files."""
    return [
        {"table": name, **upkeep.optimize(path, dry_run=dry_run)._asdict()}
        for name, path in _tables(layout, topic, namespace)
    ]


def vacuum(
    layout: Layout,
    topic: str | None = None,
    namespace: str | None = None,
    *,
    hours: int = DEFAULT_VACUUM_HOURS,
    dry_run: bool = False,
) -> list[dict]:
    """Delete files removed from the selected tables more than *hours* ago, except those of waiting requests;
    :class:`NotAllowedError` while clients may still read them."""
    return [
        {"table": name, "files": len(upkeep.vacuum(layout, path, hours=hours, dry_run=dry_run))}
        for name, path in _tables(layout, topic, namespace)
    ]


def checkpoint(layout: Layout, topic: str | None = None, namespace: str | None = None) -> list[dict]:
    """Write checkpoints of the selected tables, so that they open quickly."""
    return [{"table": name, "version": make_checkpoint(path)} for name, path in _tables(layout, topic, namespace)]


def housekeeping(layout: Layout) -> list[dict]:
    """What brokers did automatically, the latest last: time, table, action, and number of files or commits."""
    require_root(layout)
    tables = [bundle.broker_table(CURSOR_LEDGER.name) for bundle in layouts_of(layout)]
    columns, is_its = ["round_time", "topic", "status", "entries"], pc.field("kind") == "housekeeping"
    rows = pa.concat_tables(read_rows(table, columns, is_its) for table in tables).sort_by("round_time")
    return [
        {"time": row["round_time"].isoformat(), "table": row["topic"], "what": row["status"], "count": row["entries"]}
        for row in rows.to_pylist()
    ]


def _tables(layout: Layout, topic: str | None, namespace: str | None) -> Iterator[tuple[str, AnyPath]]:
    """The table of a topic, those of a namespace's topics, or all of the root."""
    if topic:
        found, _ = resolve_topic(layout, topic)
        yield str(found.name), found.path
        return
    yield from ((str(found.name), found.path) for found in _topics(layout, namespace))
    if namespace is None:
        for bundle in layouts_of(layout):
            yield from upkeep.broker_tables(bundle).items()


def _topics(layout: Layout, namespace: str | None) -> list[Topic]:
    require_root(layout)
    namespaces = [parse_namespace(namespace)] if namespace else layout.namespaces()
    return [topic for pair in namespaces for topic in list_topics(layout, *pair)]
