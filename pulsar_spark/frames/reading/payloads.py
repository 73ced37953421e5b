"""Decode payloads in Python workers; rows stored plain pass nulls to the workers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsar_spark.client.model.enums import ConsumerCryptoAction, ConsumerCryptoFailureAction
from pulsar_spark.columns import arrow_udf
from pulsar_spark.errors import InvalidConfiguration, UnreadableMessage
from pulsar_spark.frames.publishing.message_columns import REFUSED, spark_type
from pulsar_spark.frames.reading.payload_batches import (
    KeyReader,
    failure_action,
    in_pieces,
    key_reader_of,
    make_key_reader,
    values_of,
)
from pulsar_spark.payloads.compression import SMALL_BYTES, uncompress_at_once
from pulsar_spark.payloads.encoding import ENCODING_COLUMNS, PAYLOAD_ERROR, PayloadDecoder, is_encoded
from pulsar_spark.payloads.keys import CryptoKeyReader

PLAIN = pa.struct({"payload": pa.binary(), PAYLOAD_ERROR: pa.string()})
PLAIN_TYPE = f"struct<payload: binary, {PAYLOAD_ERROR}: string>"


class Decoding(NamedTuple):
    """How payloads are read: the keys, and what happens to those that cannot be decrypted."""

    key_reader: Callable[[], CryptoKeyReader] | None
    action: ConsumerCryptoFailureAction

    @classmethod
    def checked(cls, crypto_key_reader: KeyReader | None, crypto_failure_action: ConsumerCryptoAction) -> "Decoding":
        return cls(key_reader_of(crypto_key_reader), failure_action(crypto_failure_action, ConsumerCryptoFailureAction))

    def shown(self, messages: DataFrame, has_encoded: bool = True) -> DataFrame:
        """:meth:`decoded` without discarded rows; uses Python workers only if *has_encoded*."""
        if not has_encoded:
            return messages.withColumn(PAYLOAD_ERROR, _error_before(messages))
        decoded = self.decoded(messages)
        if self.action is not ConsumerCryptoFailureAction.DISCARD:
            return decoded
        return decoded.filter(~F.coalesce(F.col(PAYLOAD_ERROR).startswith("CryptoError"), F.lit(False)))

    def decoded(self, messages: DataFrame, *, keeps_stored: bool = False) -> DataFrame:
        """*messages* with plain payloads and :data:`PAYLOAD_ERROR`.

        *messages* have ``payload`` and :data:`ENCODING_COLUMNS`, which become null for plain payloads. An unreadable
        payload is null with an error. With *keeps_stored*, or CONSUME if it cannot be decrypted, it stays as stored
        without one."""
        encoded = F.col("compression").isNotNull() | F.col("encryption_keys").isNotNull()
        plain = messages.withColumn(
            "plain", self._function()(*(F.when(encoded, F.col(name)) for name in ("payload", *ENCODING_COLUMNS)))
        )
        error, is_plain = F.col("plain")[PAYLOAD_ERROR], F.col("plain")["payload"].isNotNull()
        if self.action is ConsumerCryptoFailureAction.CONSUME:
            error = F.when(~error.startswith("CryptoError"), error)
        if keeps_stored:
            error = F.lit(None).cast("string")
        unread = F.when(error.isNull(), F.col("payload"))
        columns = {
            "payload": F.when(is_plain, F.col("plain")["payload"]).otherwise(unread),
            **{name: F.when(~is_plain, F.col(name)) for name in ENCODING_COLUMNS},
            PAYLOAD_ERROR: F.coalesce(_error_before(messages), error),
        }
        names = [name for name in messages.columns if name not in columns]
        in_order = dict.fromkeys([*messages.columns, PAYLOAD_ERROR])
        decoded = plain.select(*names, *(column.alias(name) for name, column in columns.items()))
        return decoded.select(*in_order)

    def _function(self) -> Callable[..., Column]:
        key_reader = self.key_reader

        def plain(
            batches: Iterator[tuple[pa.Array, pa.Array, pa.Array, pa.Array, pa.Array, pa.Array]],
        ) -> Iterator[pa.Array]:
            decoder = PayloadDecoder(make_key_reader(key_reader))
            for batch in batches:
                yield from in_pieces(plain_rows(decoder, batch), PLAIN)

        return arrow_udf(plain, PLAIN_TYPE)


def _error_before(messages: DataFrame) -> Column:
    if PAYLOAD_ERROR not in messages.columns:
        return F.lit(None).cast("string")
    return F.when(F.col("payload").isNull(), F.col(PAYLOAD_ERROR))


def plain_rows(decoder: PayloadDecoder, batch: Sequence[pa.Array]) -> Iterator[tuple[bytes | None, str | None]]:
    """The plain payload of each row, or an error, in full for the first of a kind in a batch."""
    payloads, *columns = batch
    values = {name: values_of(column) for name, column in zip(ENCODING_COLUMNS, columns)}
    reported: set[str] = set()
    known = _at_once(payloads, values)
    for at, payload in enumerate(payloads):
        if (plain := known.get(at)) is not None:
            yield plain, None
            continue
        row = {name: column[at] for name, column in values.items()}
        stored = payload.as_py()
        if stored is None or not is_encoded(row.get):
            yield None, None
            continue
        try:
            yield decoder.decode(stored, row.get), None
        except UnreadableMessage as failed:
            name = type(failed).__name__
            yield None, f"{name}: {failed}" if name not in reported else name
            reported.add(name)


def _at_once(payloads: pa.Array, values: Mapping[str, Sequence]) -> dict[int, bytes | None]:
    if "ZSTD" not in values["compression"]:
        return {}
    sizes = pc.fill_null(pc.binary_length(payloads), SMALL_BYTES + 1).to_pylist()
    rows = zip(values["compression"], values["encryption_keys"], sizes)
    small = [at for at, (name, keys, size) in enumerate(rows) if name == "ZSTD" and not keys and size <= SMALL_BYTES]
    stored = payloads.take(pa.array(small, pa.int64())).to_pylist()
    return dict(zip(small, uncompress_at_once(stored, [values["uncompressed_size"][at] for at in small])))


def plain_or_refused(decoded: DataFrame) -> DataFrame:
    """The result of :meth:`Decoding.decoded` for messages that were readable before; the job fails if one no longer
    is."""
    error = F.col(PAYLOAD_ERROR)
    refused = F.raise_error(F.concat(F.lit(REFUSED), error)).cast("binary")
    return decoded.withColumn("payload", F.when(error.isNotNull(), refused).otherwise(F.col("payload"))).drop(
        PAYLOAD_ERROR
    )


def decode_payloads(
    messages: DataFrame,
    *,
    crypto_key_reader: KeyReader | None = None,
    crypto_failure_action: ConsumerCryptoAction = "FAIL",
) -> DataFrame:
    """Decompress and decrypt the payloads of *messages*, rows of a topic's table as ``spark.read`` gives them.

    A payload that cannot be decompressed, or not decrypted with the private keys of *crypto_key_reader*, is null, and
    the added column :data:`PAYLOAD_ERROR` says why. Of several such rows in sequence only the first has the full
    reason.

    With *crypto_failure_action* DISCARD, rows that cannot be decrypted are left out. With CONSUME they stay as stored,
    with their ``encryption_keys``, ``encryption_param`` and ``compression``, which are null for plain payloads. Put
    chunks together first (``read_messages``, ``transforms.chunks``)."""
    missing = {"payload", *ENCODING_COLUMNS} - set(messages.columns)
    if "payload" in missing:
        raise InvalidConfiguration(f"the frame has no column 'payload', only {messages.columns}: select it, too")
    decoding = Decoding.checked(crypto_key_reader, crypto_failure_action)
    absent = {name: F.lit(None).cast(spark_type(name)) for name in sorted(missing)}
    return decoding.shown(messages.withColumns(absent) if absent else messages).drop(*absent)


def register_plain_payload(
    spark: SparkSession, name: str = "plain_payload", *, crypto_key_reader: KeyReader | None = None
) -> None:
    """Register the SQL function ``plain_payload(payload, compression, uncompressed_size, encryption_keys,
    encryption_algo, encryption_param)`` in the session *spark*, under the given *name*.

    It returns the payload of a row of a topic's table, decompressed, and decrypted with the keys of
    *crypto_key_reader*; null if it cannot be read."""
    decoding = Decoding.checked(crypto_key_reader, ConsumerCryptoFailureAction.FAIL)

    def plain_payload(
        batches: Iterator[tuple[pa.Array, pa.Array, pa.Array, pa.Array, pa.Array, pa.Array]],
    ) -> Iterator[pa.Array]:
        decoder = PayloadDecoder(make_key_reader(decoding.key_reader))
        for batch in batches:
            payloads, compression, _, keys, *_ = batch
            are_plain = (not (name or key) for name, key in zip(values_of(compression), values_of(keys)))
            rows = zip(plain_rows(decoder, batch), payloads, are_plain, strict=True)
            read = ((stored.as_py() if is_plain else plain, None) for (plain, _), stored, is_plain in rows)
            yield from (piece.field("payload") for piece in in_pieces(read, PLAIN))

    spark.udf.register(name, arrow_udf(plain_payload, "binary"))
