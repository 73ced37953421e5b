"""The condition of a topic's table: whether its log can be followed, its foreign rows, and its deleted messages."""

from collections import Counter
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import TableNotFoundError

from pulsar_spark.errors import CorruptState, TopicStopped
from pulsar_spark.protocol.topics.numbering import NO_POSITION
from pulsar_spark.storage.delta.actions import KNOWN_FEATURES, READER_VERSION, Commit
from pulsar_spark.storage.delta.log import TableLog, commits_left
from pulsar_spark.storage.delta.scan import open_table
from pulsar_spark.storage.delta.table_parts import Term, term
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledger_rows import note_rows
from pulsar_spark.storage.ledgers.ledgers import stored_rows
from pulsar_spark.storage.ledgers.publishes import check_statistics, foreign_files, number_commit
from pulsar_spark.storage.store.store import AnyPath
from pulsar_spark.storage.topics.topics import Topic
from pulsar_spark.table_specs import LEDGERS


class ForeignFile(NamedTuple):
    """A file of rows that are no publish; ``rows`` is 0 if unknown."""

    version: int
    path: str
    rows: int
    partition: int


class Condition(NamedTuple):
    """``error`` says what stopped the topic after version ``numbered``; ``unnumbered`` counts later messages.

    ``is_rewritten``: rows were removed or rewritten other than by trimming.
    """

    numbered: int
    error: str | None
    foreign: tuple[ForeignFile, ...]
    is_rewritten: bool
    unnumbered: dict[int, int]


def check_features(table: AnyPath, commit: Commit) -> None:
    """:class:`TopicStopped` if a commit needs an unknown feature and the table still does."""
    if commit.unknown_feature is None:
        return
    try:
        protocol = open_table(table).protocol()
    except (CorruptState, TableNotFoundError) as broken:
        raise TopicStopped(
            f"commit {commit.version} requires {commit.unknown_feature}, and the table cannot be opened ({broken})"
        ) from broken
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    if features - KNOWN_FEATURES or READER_VERSION < protocol.min_reader_version < 3:
        raise TopicStopped(
            f"commit {commit.version} requires {commit.unknown_feature}, which this release cannot read: remove the "
            "feature from the table (ALTER TABLE ... DROP FEATURE in Spark), then the topic continues by itself"
        )


def stopped_text(topic: Topic, error: CorruptState) -> str:
    remedy = "" if isinstance(error, TopicStopped) else f": repair it with 'pulsar-spark topics mend {topic.name}'"
    return f"topic {str(topic.name)!r} is stopped: {error}{remedy}"


def read_condition(layout: Layout, topic: Topic, numbered: int) -> Condition:
    """The condition of a topic that a broker has followed up to version *numbered*."""
    notes = _notes(layout, topic)
    foreign = {(row["ledger_id"], row["path"]): _foreign_file(row) for row in notes.to_pylist() if row["path"]}
    is_rewritten = bool(pc.any(pc.is_null(notes["path"])).as_py())
    unnumbered: Counter[int] = Counter()
    published: set[str] = set()
    error: str | None = None
    publish_ids = _publish_ids(layout, topic, numbered) if TableLog(topic.path).has(numbered + 1) else set()
    try:
        for commit in TableLog(topic.path).commits(numbered):
            check_features(topic.path, commit)
            numbered_now = number_commit(topic.path, commit, {}, publish_ids, topic.partitions)
            for partition, runs in numbered_now.items():
                published |= {run.path for run in runs}
                unnumbered[partition] += sum(run.entries * run.batch_size for run in runs)
            its_foreign = foreign_files(topic.path, commit, bool(numbered_now), topic.partitions)
            for row in note_rows(str(topic.name), topic.topic_id, commit, its_foreign):
                if row.get("path"):
                    foreign[commit.version, row["path"]] = _foreign_file(row)
            is_rewritten |= bool(commit.removed) and not commit.trimmed
    except CorruptState as broken:
        error = stopped_text(topic, broken)
    if foreign:  # a published file that is added again is not foreign
        added_again = list({file.path for file in foreign.values()})
        of_runs = term("first_position", ">", NO_POSITION), term("path", "in", added_again)
        published |= set(_ledgers(layout, topic, ["path"], *of_runs)["path"].to_pylist())
        foreign = {place: file for place, file in foreign.items() if file.path not in published}
    return Condition(numbered, error, tuple(foreign.values()), is_rewritten, unnumbered)


def _foreign_file(note: dict) -> ForeignFile:
    return ForeignFile(note["ledger_id"], note["path"], note["first_entry_id"], note["partition"])


def _notes(layout: Layout, topic: Topic) -> pa.Table:
    names = ["ledger_id", "path", "first_entry_id", "partition"]
    return _ledgers(layout, topic, names, term("first_position", "==", NO_POSITION))


def _ledgers(layout: Layout, topic: Topic, names: list[str], *wanted: Term) -> pa.Table:
    path = layout.broker_table(LEDGERS.name)
    if not TableLog(path).exists():
        return LEDGERS.schema.empty_table().select(names)
    return stored_rows(open_table(path), names, [term("topic_id", "==", topic.topic_id), *wanted])


def rewriting_commits(layout: Layout, topic: Topic) -> list[int]:
    """Versions of numbered commits that removed or rewrote rows other than by trimming, in order."""
    notes = _notes(layout, topic)
    return sorted(set(notes.filter(pc.is_null(notes["path"]))["ledger_id"].to_pylist()))


def count_deleted(
    layout: Layout, topic: Topic, condition: Condition, firsts: dict[int, int], stored: dict[int, int]
) -> dict[int, int]:
    """How many published messages from positions *firsts* on are gone, by partition; *stored* counts those left."""
    if not condition.is_rewritten:
        return dict.fromkeys(topic.partition_indexes, 0)
    names = ["partition", "first_position", "entries", "batch_size"]
    runs = _ledgers(layout, topic, names, term("first_position", ">", NO_POSITION))
    deleted = {}
    for partition in topic.partition_indexes:
        is_later = pc.greater_equal(runs["first_position"], firsts.get(partition, 0))
        here = runs.filter(pc.and_(pc.equal(runs["partition"], partition), is_later))
        published = pc.sum(pc.multiply(here["entries"], here["batch_size"].cast(pa.int64()))).as_py() or 0
        deleted[partition] = max(0, published + condition.unnumbered.get(partition, 0) - stored.get(partition, 0))
    return deleted


def _publish_ids(layout: Layout, topic: Topic, numbered: int) -> set[str]:
    """Ids of publishes up to version *numbered*: later ones may be numbered by now and must not count as copies."""
    rows = _ledgers(layout, topic, ["publish_id"], term("ledger_id", "<=", numbered))
    return set(pc.unique(rows["publish_id"]).to_pylist())


def check_not_stopped(topic: Topic, known: int = 0) -> int:
    """The log's last version; :class:`TopicStopped` if a commit after *known* cannot be followed."""
    try:
        for commit in commits_left(TableLog(topic.path), known):
            check_features(topic.path, commit)
            check_statistics(topic.path, commit)
            known = commit.version
    except CorruptState as broken:
        raise TopicStopped(stopped_text(topic, broken)) from broken
    return known
