"""Writers of a batch and of a stream's micro-batches: tasks write files beside the topic, one commit takes them in.

The commit is that of ``publish``: nothing is published before. Files that no commit names are deleted, after a crash by
``maintain vacuum``. A micro-batch is the transaction (query id, batch id), as of ``publish_stream``."""

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from pulsar_spark.client.model.enums import Compression, ProducerCryptoAction
from pulsar_spark.client.schema.schemas import TopicSchemas
from pulsar_spark.errors import InvalidConfiguration, InvalidMessage
from pulsar_spark.frames.publishing.committing import append_files, naming_errors
from pulsar_spark.frames.publishing.message_columns import check_columns
from pulsar_spark.frames.publishing.routing_columns import checked_scheme
from pulsar_spark.frames.reading.payload_encoding import Encoding
from pulsar_spark.frames.source.options import SourceOptions
from pulsar_spark.frames.source.typed_values import ValueColumn
from pulsar_spark.frames.source.worker_errors import in_one_line
from pulsar_spark.frames.source.writing.arrow_rows import MessageRows, RowSettings
from pulsar_spark.frames.values.value_decoding import VALUE
from pulsar_spark.link.quota import BacklogQuota
from pulsar_spark.payloads.keys import CryptoKeyReader
from pulsar_spark.protocol.delays.instants import to_millis
from pulsar_spark.protocol.topics.numbering import publish_id as make_publish_id
from pulsar_spark.protocol.topics.routing import Scheme
from pulsar_spark.schema import BytesSchema
from pulsar_spark.storage.delta.staged_files import StagedFolder
from pulsar_spark.storage.delta.tables import is_committed
from pulsar_spark.storage.delta.task_files import ByTasks, write_batches
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.new_rows import NAMED_BY
from pulsar_spark.storage.topics.topics import Topic, prepare_root, resolve_topic
from pulsar_spark.table_specs import MESSAGES

_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Properties of the tasks of a streaming query."""


@dataclass(frozen=True)
class WrittenFiles(WriterCommitMessage):
    """The files that a task wrote into the staged folder *folder*; of a stream also the id of its query."""

    folder: str
    names: tuple[str, ...]
    query_id: str | None = None


def _encoding(options: SourceOptions) -> Encoding:
    path = options.public_key_path
    keys = None if path is None else CryptoKeyReader(path, path)
    action = cast(ProducerCryptoAction, options.crypto_failure_action)
    return Encoding.checked(cast(Compression, options.compression), options.encryption_key or None, keys, action)


class _TopicWriter:
    """What a batch and a stream share; made on the driver, sent to the tasks."""

    def __init__(self, schema: StructType, options: SourceOptions):
        self._options, self._nonce = options, secrets.token_hex(16)
        self._now = datetime.now(timezone.utc)
        self._value: ValueColumn | None = None
        if VALUE in schema.names and "payload" not in schema.names and VALUE not in options.properties_from:
            self._value = ValueColumn.checked(options, schema[VALUE].dataType)
            others = [field for field in schema.fields if field.name != VALUE]
            schema = StructType([*others, StructField("payload", BinaryType())])
        columns = check_columns(schema, options.properties_from)
        for name in options.properties_from:
            if not isinstance(columns[name], StringType):
                raise InvalidMessage(f"column {name!r} is a {columns[name].simpleString()}: cast it to string")
        encoding = _encoding(options)
        topic, partitions = self._topic(create=options.create)
        quota = self._quota(topic)
        self._settings = RowSettings(
            columns,
            options.properties_from,
            partitions,
            bool(topic.partitions),
            checked_scheme(cast(Scheme, options.hashing_scheme)),
            encoding,
            options.max_message_size or quota.max_message_size,
            quota.max_delay_ms,
        )
        encoding.check_given(self._settings.given)
        self._constants = {"batch_size": 1}
        if not topic.partitions:
            self._constants["partition"] = -1
        if self._value is None:
            version = TopicSchemas(self._layout).version_for_producer(topic, BytesSchema())
        else:
            version = self._value.version
        self._constants |= {} if version is None else {"schema_version": version}
        self._names = {} if options.producer_name is None else {"producer_name": options.producer_name}

    @property
    def _layout(self) -> Layout:
        return Layout(self._options.root)

    def _topic(self, *, create: bool = False) -> tuple[Topic, list[int]]:
        layout = self._layout
        if create:
            prepare_root(layout)
        return resolve_topic(layout, self._options.topic or "", create=create)

    def _quota(self, topic: Topic) -> BacklogQuota:
        quota = BacklogQuota(self._layout, topic)
        quota.look()
        return quota

    def _check_quota(self, topic: Topic) -> None:
        """Wait while the topic's backlog is above its quota, or raise the error of ``publish``."""
        timeout = self._options.send_timeout_millis
        if refused := self._quota(topic).refusal(timeout / 1000 if timeout > 0 else float("inf")):
            raise refused

    def _write(
        self,
        batches: Iterator[pa.RecordBatch],
        folder: str,
        publish_id: str,
        now: datetime,
        query_id: str | None = None,
    ) -> WrittenFiles:
        """Write a task's rows as files into the staged folder *folder*."""
        topic, _ = self._topic()
        context = TaskContext.get()
        batches = batches if self._value is None else self._value.encoded(batches)
        rows = MessageRows(self._settings, 0 if context is None else context.partitionId(), now)
        constants = {"publish_id": publish_id, "publish_time": now, **self._constants, **self._names}
        given = self._settings.given
        scalars = {
            name: pa.scalar(value, MESSAGES.schema.field(name).type)
            for name, value in constants.items()
            if name not in given or name == "partition"
        }
        files = len(self._settings.partitions)
        by = ("partition",) if topic.partitions else ()
        path = str(StagedFolder(topic.path, folder).path)
        names = write_batches(rows.batches(batches), path, by, ByTasks(files, scalars))
        return WrittenFiles(folder, tuple(names), query_id)

    def _commit(self, messages: Sequence[WriterCommitMessage | None], transaction: tuple[str, int] | None) -> None:
        """Take the files of all tasks into the topic in one commit, unless *transaction* is committed already."""
        topic, _ = self._topic()
        written = [each for each in messages if isinstance(each, WrittenFiles)]
        if not written or (transaction is not None and is_committed(topic.path, *transaction)):
            self._remove(topic, written)
            return
        folder = StagedFolder(topic.path, written[0].folder)
        has_names = {*self._settings.given, *self._names} >= {*NAMED_BY}
        quota = self._quota(topic) if self._options.deduplicate and has_names else None
        try:
            with naming_errors(self._layout, topic):
                files = [folder.file(name) for each in written for name in each.names]
                append_files(topic, [file for file in files if file.rows], transaction, quota)
        finally:
            folder.remove()

    def _remove(self, topic: Topic, messages: Sequence[WriterCommitMessage | None]) -> None:
        for folder in {each.folder for each in messages if isinstance(each, WrittenFiles)}:
            StagedFolder(topic.path, folder).remove()


class BatchWriter(_TopicWriter, DataSourceArrowWriter):
    """Publishes a batch in one commit."""

    @in_one_line
    def __init__(self, schema: StructType, options: SourceOptions):
        super().__init__(schema, options)
        if (options.app_id is None) != (options.app_version is None):
            raise InvalidConfiguration(
                "options appId and appVersion together identify a transaction: give both or neither"
            )
        self._check_quota(self._topic()[0])
        self._publish_id = make_publish_id(to_millis(self._now), secrets.randbits(74))

    @in_one_line
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:
        return self._write(iterator, self._nonce, self._publish_id, self._now)

    @in_one_line
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what the tasks wrote."""
        app_id, version = self._options.app_id, self._options.app_version
        self._commit(messages, None if app_id is None or version is None else (app_id, version))

    @in_one_line
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete what the tasks wrote."""
        StagedFolder(self._topic()[0].path, self._nonce).remove()


class StreamWriter(_TopicWriter, DataSourceStreamArrowWriter):
    """Publishes each micro-batch in one commit, once."""

    @in_one_line
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:
        """Write a task's files. The first task waits for the topic's backlog quota."""
        context = TaskContext.get()
        query_id, batch_id = (
            None if context is None else context.getLocalProperty(name) for name in (_QUERY_ID, _BATCH_ID)
        )
        if context is None or context.partitionId() == 0:
            self._check_quota(self._topic()[0])
        digest = hashlib.sha256(f"{self._nonce} {batch_id}".encode()).digest()
        made_at = to_millis(self._now + timedelta(milliseconds=int(batch_id or 0)))
        publish_id = make_publish_id(made_at, int.from_bytes(digest))
        now = datetime.now(timezone.utc)
        return self._write(iterator, f"{self._nonce}-{batch_id}", publish_id, now, query_id)

    @in_one_line
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish what the tasks wrote, as the transaction of the query and *batchId*."""
        query_id = next((each.query_id for each in messages if isinstance(each, WrittenFiles)), None)
        app_id = self._options.app_id or query_id
        if app_id is None and messages:
            raise InvalidConfiguration(
                "the tasks of this stream do not know the id of its query: give an appId, a different one for each "
                "checkpoint"
            )
        self._commit(messages, None if app_id is None else (app_id, batchId))

    @in_one_line
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Delete what the tasks wrote, as far as they reported it."""
        self._remove(self._topic()[0], messages)
