"""A topic as its log tells it: the files of each publish commit, in order, without a broker.

Order is that of commits, then of entry ids; a publish id that was committed before is a retry whose first commit counts. Where the oldest commits
are gone from the log, the ``ledgers`` table stands in for them. Ledgers that were trimmed are passed over.
"""
from collections import OrderedDict
from collections.abc import Iterator
from datetime import datetime

import pyarrow.compute as pc

from pulsar_spark.client.ledgers import LedgerIndex
from pulsar_spark.client.message_files import FileEntries
from pulsar_spark.errors import DOCTOR, CorruptState
from pulsar_spark.protocol.message_id import MessageId
from pulsar_spark.schemas import MESSAGES
from pulsar_spark.storage.log import AddedFile, Commit, TableLog
from pulsar_spark.storage.tables import read_file
from pulsar_spark.storage.topics import Topic
from pulsar_spark.storage.trimmed import trimmed_ledgers

_REMEMBERED = 1000
_LOOK_BACK = 100


class TopicLog:
    """Walks through a topic's publish commits, from any of them on."""

    def __init__(self, topic: Topic, partitions: list[int], ledgers: LedgerIndex):
        self._topic = topic
        self._partitions = partitions
        self._ledgers = ledgers
        self._log = TableLog(topic.path)
        self._publish_ids: OrderedDict[str, int] = OrderedDict()
        self._seen = 0
        self._gone: dict[int, int] = {}

    def start_at(self, ledger_id: int) -> list[FileEntries]:
        """Go on with publish commit *ledger_id*; the files of it and later ones that only the ``ledgers`` table still knows."""
        self._publish_ids.clear()
        self._gone = trimmed_ledgers(self._topic.path, self._partitions)
        first = max(1, ledger_id)
        earliest = max(1, self._log.earliest())
        trimmed = [file for partition in self._partitions for file in self._trimmed(partition, first, earliest)] if first < earliest else []
        self._seen = max(earliest, first - _LOOK_BACK) - 1
        for commit in self._log.commits(after=self._seen, until=first - 1):
            self._files(commit)
        self._seen = max(first, earliest) - 1
        return sorted(trimmed, key=lambda file: (file.ledger_id, file.partition, file.first_entry_id))

    def start_at_end(self) -> None:
        """Go on with what is published from now on."""
        self._seen = max(0, self._log.latest())

    def next_files(self) -> Iterator[FileEntries]:
        """The files of the commits since, in order, up to the latest."""
        for commit in self._log.commits(after=self._seen):
            self._seen = commit.version
            yield from self._files(commit)

    def has_more(self) -> bool:
        """Whether there are commits :meth:`next_files` has not given."""
        return self._log.has(self._seen + 1)

    def _files(self, commit: Commit) -> list[FileEntries]:
        files = []
        for added in commit.added:
            publish_id = added.min_values.get("publish_id")
            if self._publish_ids.setdefault(publish_id, commit.version) == commit.version and added.rows:
                file = _published(commit.version, added)
                if file.partition in self._partitions and file.ledger_id > self._gone.get(file.partition, 0):
                    files.append(file)
        while len(self._publish_ids) > _REMEMBERED:
            self._publish_ids.popitem(last=False)
        return sorted(files, key=lambda file: (file.partition, file.first_entry_id))

    def _trimmed(self, partition: int, first: int, earliest: int) -> Iterator[FileEntries]:
        end = self._ledgers.end(self._topic.topic_id, partition)
        if end:
            for run in self._ledgers.runs(self._topic.topic_id, partition, 0, end - 1):
                if max(first, self._gone.get(partition, 0) + 1) <= run.ledger_id < earliest:
                    yield FileEntries(run.ledger_id, run.publish_id, run.first_entry_id, run.first_entry_id + run.entries - 1, run.entries * run.batch_size,
                                      run.path, partition)


def last_message_id(topic: Topic, partition: int) -> MessageId:
    """Id of the last message of a partition; ``MessageId.earliest`` for none."""
    log = TableLog(topic.path)
    version, earliest = log.latest(), max(1, log.earliest())
    while version >= earliest:
        files = [added for added in log.commit(version).added if added.rows and _partition(added) == partition]
        if files:
            last = max(files, key=lambda added: added.max_values["entry_id"])
            rows = read_file(topic.path, last, MESSAGES.schema, ["entry_id", "batch_index"])
            rows = rows.filter(pc.equal(rows.column("entry_id"), pc.max(rows.column("entry_id"))))
            batch_index = pc.max(rows.column("batch_index")).as_py()
            place = MessageId(partition, version, rows.column("entry_id")[0].as_py(), -1 if batch_index is None else batch_index)
            return place.of_topic(str(topic.name.partition(partition)))
        version -= 1
    return MessageId.earliest


def _partition(added: AddedFile) -> int:
    return int(added.partition_values.get("partition", -1))


def _published(version: int, added: AddedFile) -> FileEntries:
    last = added.max_values.get("publish_time")
    try:
        return FileEntries(version, added.min_values["publish_id"], added.min_values["entry_id"], added.max_values["entry_id"], added.rows, added.path,
                           _partition(added), None if last is None else datetime.fromisoformat(last))
    except KeyError as missing:
        raise CorruptState(f"file {added.path!r} of commit {version} has no {missing}: it was not published by pulsar_spark; {DOCTOR}"
                           ) from missing
