"""Rows of the ``ledgers`` table: a run each, or a note of what a commit to a topic did that is no publish."""

from pulsar_spark.protocol.numbering import NO_POSITION, Run
from pulsar_spark.storage.actions import AddedFile, Commit


def ledger_rows(topic: str, topic_id: str, numbered: dict[int, list[Run]]) -> list[dict]:
    """Rows of the ``ledgers`` table for the runs of a topic."""
    return [
        dict(run._asdict(), topic=topic, topic_id=topic_id, partition=partition)
        for partition, runs in numbered.items()
        for run in runs
    ]


def note_rows(topic: str, topic_id: str, commit: Commit, foreign: list[AddedFile]) -> list[dict]:
    """Rows of ``ledgers`` for what a commit did to the topic that is no publish, so that every reader knows without
    looking at the log: one that names no file where rows were removed or rewritten, so that files named by earlier runs
    may no longer be the table's; and one for each file of foreign rows, whose number is in ``first_entry_id``. They
    have no position, and no entries."""
    common = dict(
        topic=topic, topic_id=topic_id, ledger_id=commit.version, first_position=NO_POSITION, entries=0, batch_size=0
    )
    rows = [dict(common, partition=-1, first_entry_id=0)] if commit.removed else []
    return rows + [
        dict(common, partition=_partition_of(file), first_entry_id=file.rows, path=file.path, bytes=file.size)
        for file in foreign
    ]


def _partition_of(file: AddedFile) -> int:
    """As the commit says, of a file that is no publish: whoever added it may have named its folder anything."""
    value = file.partition_values.get("partition") or ""
    return int(value) if value.isdecimal() and len(value) < 9 else -1
