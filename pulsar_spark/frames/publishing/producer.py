"""Publish DataFrames: a batch in one commit, a stream in one commit per micro-batch.

The commit's Delta transaction is (``app_id``, ``app_version``); for a stream, the query id, which the checkpoint
stores, and the batch id. A crash before the commit leaves only files that nothing refers to."""

import os
import secrets
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, Literal, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter

from pulsar_spark.client.model.enums import Compression, ProducerCryptoAction
from pulsar_spark.client.schema.schemas import TopicSchemas
from pulsar_spark.client.sending.send_arguments import deliver_at_ms
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.frames.given_frames import check_frame
from pulsar_spark.frames.publishing.chunking import BY_POLICY, Chunking, check_chunking
from pulsar_spark.frames.publishing.committing import append_files, naming_errors
from pulsar_spark.frames.publishing.message_columns import instant, message_columns, not_too_late
from pulsar_spark.frames.publishing.message_rows import Writing
from pulsar_spark.frames.publishing.routing_columns import checked_scheme
from pulsar_spark.frames.publishing.stream_writer import TopicWriter
from pulsar_spark.frames.reading.payload_batches import KeyReader
from pulsar_spark.frames.reading.payload_encoding import Encoding
from pulsar_spark.frames.values.value_encoding import with_payloads
from pulsar_spark.link.quota import BacklogQuota
from pulsar_spark.protocol.delays.instants import deliver_millis, to_millis
from pulsar_spark.protocol.topics.numbering import publish_id as make_publish_id
from pulsar_spark.protocol.topics.routing import HashingScheme, Scheme
from pulsar_spark.schema import BytesSchema, Schema
from pulsar_spark.storage.delta.staging import staged
from pulsar_spark.storage.delta.tables import is_committed
from pulsar_spark.storage.session import has_context
from pulsar_spark.storage.spark.spark_root import layout_for_frames
from pulsar_spark.storage.store.store import store_of
from pulsar_spark.storage.topics.new_rows import NAMED_BY
from pulsar_spark.storage.topics.topics import prepare_root, resolve_topic

DEFAULT_HASHING_SCHEME = HashingScheme.JavaStringHash


class Published(NamedTuple):
    """The result of a publish. ``ledger_id`` is None if nothing was committed: the frame was empty, or its transaction
    was committed before."""

    publish_id: str
    ledger_id: int | None
    messages: int


def utc_now() -> datetime:
    return datetime.now(timezone.utc)


def publish(
    frame: DataFrame,
    root: str | os.PathLike,
    topic: str,
    *,
    schema: Schema | None = None,
    hashing_scheme: Scheme = DEFAULT_HASHING_SCHEME,
    producer_name: str | None = None,
    deliver_at: datetime | int | None = None,
    deliver_after: timedelta | None = None,
    properties_from: Sequence[str] = (),
    max_message_size: int | Literal["policy"] | None = BY_POLICY,
    chunking: bool = False,
    chunk_max_message_size: int | None = None,
    compression: Compression | None = None,
    encryption_key: str | Sequence[str] | None = None,
    crypto_key_reader: KeyReader | None = None,
    crypto_failure_action: ProducerCryptoAction = "FAIL",
    sort_by_key: bool = False,
    deduplicate: bool = True,
    create: bool = True,
    app_id: str | None = None,
    app_version: int | None = None,
    publish_id: str | None = None,
    send_timeout_millis: int = 30_000,
    quota: BacklogQuota | None = None,
    clock: Callable[[], datetime] = utc_now,
) -> Published:
    """Append each row of *frame* to *topic* of the root in the folder *root* as a message, in one commit.

    **Columns.** ``payload`` is required: bytes, or text that is stored as UTF-8. Optional:

    - ``partition_key`` (or ``key``) and ``ordering_key``: text, or bytes, which are stored as base64 with
      ``partition_key_b64_encoded`` and ``ordering_key_b64_encoded``.
    - ``deliver_at_time`` (or ``deliver_at``; a timestamp, or milliseconds since 1970), or ``deliver_after`` (an
      interval from now).
    - ``properties`` (without nulls), ``event_time``, ``sequence_id``, ``producer_name`` and ``partition``.

    *deliver_at* (a datetime, or milliseconds since 1970), *deliver_after* and *producer_name* apply to all messages of
    a frame without such a column. Each column in *properties_from* becomes the property of its name, nulls left out.

    **Partitions.** *hashing_scheme* is by default that of Pulsar's Java client. All producers of a topic must use the
    same, or one key goes to two partitions. A name ending in ``-partition-N`` publishes to that partition only. With
    *sort_by_key* each task sorts its rows by the hash of their keys in each partition, and stores the hash; rows of one
    key keep their order. With *create* a missing topic is created without partitions.

    **Values.** With a *schema* (AVRO, JSON or STRING) the frame has ``value`` instead of ``payload``: a struct with the
    fields of the schema, or a text. A field's column has the type that :func:`decode_values` gives, or one that
    converts to it without loss. A column of whole numbers for a date, time or instant has the unit of the schema. Other
    types, and values that would lose something, are refused. The topic keeps the schema, or refuses it with
    :class:`IncompatibleSchema`.

    **Size.** A payload above *max_message_size* is refused ("policy": the topic's policy of that name, 5 MiB by
    default; None: no limit). With *chunking* a message that would be larger, with its metadata, is published as chunks
    of at most *chunk_max_message_size* bytes of payload. None then means "policy".

    **Deduplication** is active while the topic's policy ``deduplication_enabled`` is true, for rows with a
    ``producer_name`` and a ``sequence_id``. A row is left out if its id is at or below the highest stored id of that
    name on its partition, or a repetition. *deduplicate* False turns this off.

    **Encoding.** Payloads are compressed with *compression* (LZ4, ZLIB, ZSTD or SNAPPY), and encrypted for the public
    keys named by *encryption_key*. *crypto_key_reader* has these keys: a :class:`CryptoKeyReader` of files, or a
    function that makes one on each worker. Sizes are then those of the stored bytes.

    **Errors.** Nothing is committed when one is raised. :class:`InvalidMessage` and :class:`MessageTooBig`: rows that
    cannot be published. :class:`NotAllowedError`: a deliver time further away than the topic's policy allows.
    :class:`CryptoError`: rows that cannot be encrypted, unless *crypto_failure_action* is SEND. While the topic's
    backlog is above its quota (3.30): :class:`ProducerBlockedQuotaExceededException` if the policy refuses producers,
    else :class:`ProducerBlockedQuotaExceededError` after *send_timeout_millis* (0: no limit).

    **Commit.** With *app_id* and *app_version* the publish happens at most once. *quota* is an earlier publish's quota
    check, to use again. *publish_id* names the commit; the default is generated. *clock* gives the current time."""
    transaction = _transaction(app_id, app_version)
    check_frame(frame, "frame", is_streaming=False)
    layout = layout_for_frames(frame.sparkSession, root)
    now = clock().astimezone()  # a time without a zone is in the machine's zone
    check_chunking(chunking, max_message_size, chunk_max_message_size)
    encoding = Encoding.checked(compression, encryption_key, crypto_key_reader, crypto_failure_action)
    frame = with_payloads(frame, schema)
    columns = message_columns(frame, properties_from, now)
    scheme = checked_scheme(hashing_scheme)
    at_ms = deliver_millis(deliver_at.astimezone()) if isinstance(deliver_at, datetime) else deliver_at
    deliver_ms = deliver_at_ms(at_ms, deliver_after, to_millis(now))
    if create:
        prepare_root(layout)
    found, partitions = resolve_topic(layout, topic, create=create)
    publish_id = publish_id or make_publish_id(int(now.timestamp() * 1000), secrets.randbits(74))
    if transaction is not None and is_committed(found.path, *transaction):
        return Published(publish_id, None, 0)
    quota = quota or BacklogQuota(layout, found)
    if refused := quota.refusal(send_timeout_millis / 1000 if send_timeout_millis > 0 else float("inf")):
        raise refused
    version = TopicSchemas(layout).version_for_producer(found, schema or BytesSchema())
    columns = _with_constants(columns, version, producer_name, deliver_ms)
    if quota.max_delay_ms and "deliver_at_time" in columns:
        columns["deliver_at_time"] = not_too_late(columns["deliver_at_time"], now, quota.max_delay_ms)
    most = quota.max_message_size if isinstance(max_message_size, str) else max_message_size
    splitting = Chunking(most or quota.max_message_size, chunk_max_message_size or -1) if chunking else None
    messages = frame.select(*(column.alias(name) for name, column in columns.items()))
    largest, is_on_disk = splitting.most_bytes if splitting else most, store_of(layout.root).is_local
    writing = Writing(partitions, bool(found.partitions), scheme, sort_by_key, splitting, largest, is_on_disk)
    rows, by_tasks = writing.rows(*encoding.encoded(messages, set(columns)), publish_id, now)
    is_named = deduplicate and columns.keys() >= set(NAMED_BY)
    partition_by = ("partition",) if found.partitions else ()
    with (
        naming_errors(layout, found),
        staged(rows, found.path, partition_by, writing.options, by_tasks=by_tasks) as files,
    ):
        return Published(publish_id, *append_files(found, files, transaction, quota if is_named else None))


def _transaction(app_id: str | None, app_version: int | None) -> tuple[str, int] | None:
    if app_id is None and app_version is None:
        return None
    if app_id is None or app_version is None:
        raise InvalidConfiguration("app_id and app_version together identify a transaction: give both or neither")
    return app_id, app_version


def _with_constants(
    columns: dict[str, Column], schema_version: int | None, producer_name: str | None, deliver_ms: int | None
) -> dict[str, Column]:
    """*columns* with those that have one value in all rows, unless the frame has them."""
    added = {} if schema_version is None else {"schema_version": F.lit(schema_version)}
    if producer_name is not None:
        columns = {"producer_name": F.lit(producer_name)} | columns
    if deliver_ms is not None:
        columns = {"deliver_at_time": F.expr(instant(1000 * deliver_ms))} | columns
    return columns | added


def publish_stream(
    frame: DataFrame, root: str | os.PathLike, topic: str, *, app_id: str | None = None, **options: Any
) -> DataStreamWriter:
    """Return a stream writer that publishes each micro-batch of the streaming *frame* to *topic* of *root* exactly
    once. Give it a checkpoint and ``start()`` it; without one it logs a warning.

    *options* are those of :func:`publish`. Each micro-batch is the transaction (*app_id*, batch id); by default
    *app_id* is the query's id, which its checkpoint stores. Give an *app_id* to continue with a new checkpoint, but
    never use one with two checkpoints at a time. Through Spark Connect an *app_id* is required."""
    refused = {"app_version", "publish_id"} & set(options)
    if refused:
        raise InvalidConfiguration(f"{sorted(refused)} cannot be set for a stream: each micro-batch has its own")
    check_frame(frame, "frame", is_streaming=True)
    message_columns(with_payloads(frame, options.get("schema")), options.get("properties_from", ()))
    checked_scheme(options.get("hashing_scheme", DEFAULT_HASHING_SCHEME))
    Encoding.checked(
        options.get("compression"),
        options.get("encryption_key"),
        options.get("crypto_key_reader"),
        options.get("crypto_failure_action", "FAIL"),
    )
    layout = layout_for_frames(frame.sparkSession, root)
    if options.get("create", True):
        prepare_root(layout)
    found, _ = resolve_topic(layout, topic, create=options.get("create", True))
    if has_jvm := has_context(frame.sparkSession):
        options.setdefault("quota", BacklogQuota(layout, found))
    elif app_id is None:  # another process of Spark's publishes the micro-batches and does not know the query
        raise InvalidConfiguration(
            "through Spark Connect a stream does not know the id of its query: give an app_id, a "
            "different one for each checkpoint"
        )

    def publish_batch(batch: DataFrame, batch_id: int) -> None:
        query = app_id or batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        publish(batch, root, topic, app_id=query, app_version=batch_id, **options)

    writer = TopicWriter(frame, str(found.name)) if has_jvm else frame.writeStream
    return writer.foreachBatch(publish_batch)
