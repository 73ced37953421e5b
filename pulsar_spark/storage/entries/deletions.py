"""Which entries of a topic were deleted: published, removed by SQL, and neither trimmed nor lost."""

from bisect import bisect_right
from typing import NamedTuple

from pulsar_spark.protocol.acknowledgement import ack_set as ack_sets
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.entries.lost import find_missing
from pulsar_spark.storage.entries.missing import Missing
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledgers import ledgers_of_topic
from pulsar_spark.storage.repair.condition import rewriting_commits
from pulsar_spark.storage.topics.topics import Topic


class DeletedEntries(NamedTuple):
    """Deleted positions, or one batch whose remaining messages are ``ack_set``.

    ``version``: the first commit after their publish that removed or rewrote rows.
    """

    partition: int
    first: int
    last: int
    ack_set: ack_sets.AckSet | None
    version: int


def deletions_of(layout: Layout, topic: Topic) -> list[DeletedEntries]:
    """The deleted, numbered entries of *topic*, by partition and position."""
    commits, found = rewriting_commits(layout, topic), []
    for partition, ledgers in sorted(ledgers_of_topic(layout, topic.topic_id).items()) if commits else ():
        for run in ledgers.runs:
            next_commit = bisect_right(commits, run.ledger_id)
            missing = find_missing(topic.path, run) if next_commit < len(commits) else None
            if missing is not None and not missing.is_lost:
                found += _deleted_of(partition, run, missing, commits[next_commit])
    return found


def _deleted_of(partition: int, run: Run, missing: Missing, version: int) -> list[DeletedEntries]:
    found = [DeletedEntries(partition, first, last, None, version) for first, last in missing.whole]
    for entry_id, indexes in missing.parts.items():
        left = ack_sets.of_indexes(set(range(run.batch_size)) - set(indexes))
        found.append(DeletedEntries(partition, entry_id, entry_id, left, version))
    return [
        each._replace(first=each.first + run.to_position, last=each.last + run.to_position)
        for each in sorted(found, key=lambda each: each.first)
    ]
