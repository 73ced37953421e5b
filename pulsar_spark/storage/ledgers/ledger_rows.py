"""Rows of ``ledgers``: a run each, or a note on a commit that is no publish."""

from pulsar_spark.protocol.topics.numbering import NO_POSITION, Run
from pulsar_spark.storage.delta.actions import AddedFile, Commit


def ledger_rows(topic: str, topic_id: str, numbered: dict[int, list[Run]]) -> list[dict]:
    return [
        dict(run._asdict(), topic=topic, topic_id=topic_id, partition=partition)
        for partition, runs in numbered.items()
        for run in runs
    ]


def note_rows(topic: str, topic_id: str, commit: Commit, foreign: list[AddedFile]) -> list[dict]:
    """Notes on a commit that is no publish, so that readers need not look at the log.

    A note without a file says that rows were removed or rewritten; one with a file has its number of foreign rows in
    ``first_entry_id``.
    """
    common = dict(
        topic=topic, topic_id=topic_id, ledger_id=commit.version, first_position=NO_POSITION, entries=0, batch_size=0
    )
    rows = [dict(common, partition=-1, first_entry_id=0)] if commit.removed else []
    return rows + [
        dict(common, partition=_partition_of(file), first_entry_id=file.rows, path=file.path, bytes=file.size)
        for file in foreign
    ]


def _partition_of(file: AddedFile) -> int:
    value = file.partition_values.get("partition") or ""
    return int(value) if value.isdecimal() and len(value) < 9 else -1
