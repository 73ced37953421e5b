"""Number what was published to a topic, commit by commit.

Rows that are not a publish are skipped. A commit that cannot be read stops only its topic, until it is mended
(``pulsar-spark topics mend``).
"""

import logging
from collections.abc import Callable

from pulsar_spark.broker.bundle.topic_state import TopicState
from pulsar_spark.errors import CorruptState
from pulsar_spark.storage.delta.actions import Commit
from pulsar_spark.storage.ledgers.ledger_rows import ledger_rows, note_rows
from pulsar_spark.storage.ledgers.publishes import foreign_files, number_commit
from pulsar_spark.storage.repair.condition import check_features, stopped_text
from pulsar_spark.storage.store.faults import is_fault_of_disk

log = logging.getLogger(__name__)


def number_topic(state: TopicState, delayed_after: Callable[[int], int]) -> list[dict]:
    """Number the commits after ``state.version``; returns rows of ``ledgers``, and sets ``state.error`` to what stopped
    it."""
    rows, before, state.error, state.stopped_at = [], state.error, None, None
    state.publish_ids.note_stored()
    try:
        for commit in state.log.commits(state.version):
            check_features(state.topic.path, commit)
            rows += _number(state, commit, delayed_after)
            state.version = commit.version
    except Exception as broken:  # any error in a topic's log or files stops that topic
        if is_fault_of_disk(broken):
            raise
        if not isinstance(broken, CorruptState):
            log.exception("topic %s cannot be numbered", state.topic.name)
            broken = CorruptState(f"{type(broken).__name__}: {broken}")
        state.error = stopped_text(state.topic, broken)
        state.stopped_at = state.stamp()
        if state.error != before:
            log.error("%s", state.error)
    return rows


def _number(state: TopicState, commit: Commit, delayed_after: Callable[[int], int]) -> list[dict]:
    name, topic = str(state.topic.name), state.topic
    rows = []
    if commit.version > state.last_ledger_id:
        ends = {partition: ledgers.end_position for partition, ledgers in state.partitions.items()}
        numbered = number_commit(
            topic.path, commit, ends, state.publish_ids, topic.partitions, delayed_after=delayed_after
        )
        for partition, runs in numbered.items():
            state.has_partition(partition)
            for at, run in enumerate(runs):
                if run.may_have_chunks:
                    run = runs[at] = run._replace(chunks_from=state.chunks(partition).chunks_from(run))
                state.ledgers(partition).add(run)
                if run.delayed_after is not None:
                    state.newly_delayed.append((partition, run))
        foreign = foreign_files(topic.path, commit, bool(numbered), topic.partitions)
        if foreign:  # a file added again, for example with other statistics, is still the published one
            published = {run.path for ledgers in state.partitions.values() for run in ledgers.runs}
            foreign = [file for file in foreign if file.path not in published]
        rows = ledger_rows(name, topic.topic_id, numbered) + note_rows(name, topic.topic_id, commit, foreign)
        if foreign:
            log.warning(
                "topic %s: commit %d added %d rows that are not valid messages and are not delivered: "
                "'pulsar-spark topics mend %s' removes them",
                name,
                commit.version,
                sum(file.rows for file in foreign),
                name,
            )
    if commit.removed and not commit.trimmed:
        log.warning(
            "topic %s: commit %d (%s) removed or rewrote messages: all subscriptions skip the removed ones",
            name,
            commit.version,
            commit.operation or "no operation named",
        )
        for groups in state.chunk_groups.values():
            groups.read_again()
    for partition, ledger_id in commit.trimmed.items():
        if state.has_partition(partition):
            first = max(state.first_position(partition), state.ledgers(partition).first_after(ledger_id))
            state.trimmed[partition] = first
            if partition in state.chunk_groups:
                state.chunk_groups[partition].trim(first)
    return rows
