"""Payloads of frames, compressed and encrypted as clients do it (layer ``payloads``), batch by batch in Python workers;
rows that are stored as they are do not go there.

**Keys go by reference.** A frame's plan is shown, logged and sent around, so no key is ever in it: who encrypts or
decrypts gives a :class:`CryptoKeyReader` of files, of which the two paths are kept, or a function without arguments
that makes a reader of his own. Both are used where the rows are, once in each task, and a data key is a task's own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.functions import arrow_udf

from pulsar_spark.client.enums import CompressionType, ConsumerCryptoFailureAction, ProducerCryptoFailureAction
from pulsar_spark.errors import InvalidConfiguration, UnreadableMessage
from pulsar_spark.frames.membership import one_of
from pulsar_spark.frames.message_columns import REFUSED, spark_type
from pulsar_spark.payloads.compression import compression_name
from pulsar_spark.payloads.encoding import ENCODING_COLUMNS, PayloadDecoder, PayloadEncoder, is_encoded
from pulsar_spark.payloads.encryption import Encryptor
from pulsar_spark.payloads.keys import CryptoKeyReader
from pulsar_spark.table_specs import MESSAGES

KeyReader = CryptoKeyReader | Callable[[], CryptoKeyReader]
PAYLOAD_ERROR = "payload_error"
"""Column that says why a payload cannot be read; null where it can."""

_STORED = pa.struct([MESSAGES.schema.field(name) for name in ("payload", *ENCODING_COLUMNS)])
_STORED_TYPE = f"struct<{', '.join(f'{name}: {spark_type(name)}' for name in ('payload', *ENCODING_COLUMNS))}>"
_PLAIN = pa.struct({"payload": pa.binary(), PAYLOAD_ERROR: pa.string()})
_PLAIN_TYPE = f"struct<payload: binary, {PAYLOAD_ERROR}: string>"
_BATCH_BYTES = 64 << 20
"""A column of so many bytes goes back to Spark at a time: what was small compressed may be large."""


def key_reader_of(given: KeyReader | None) -> Callable[[], CryptoKeyReader] | None:
    """What makes the reader of keys in a task; :class:`InvalidConfiguration` for a reader that would travel there with
    the keys it may hold."""
    if given is None:
        return None
    if type(given) is CryptoKeyReader:
        return partial(CryptoKeyReader, given.public_key_path, given.private_key_path)
    if isinstance(given, CryptoKeyReader) or not callable(given):
        raise InvalidConfiguration(
            f"crypto_key_reader is a {type(given).__name__}: give a CryptoKeyReader of two paths, or a function "
            "without arguments that makes your own where the keys are used, so that none is in the plan"
        )
    return given


def _made(key_reader: Callable[[], CryptoKeyReader] | None) -> CryptoKeyReader | None:
    reader = None if key_reader is None else key_reader()
    if reader is not None and not isinstance(reader, CryptoKeyReader):
        wrong = f"crypto_key_reader made a {type(reader).__name__}: let it make a CryptoKeyReader"
        raise InvalidConfiguration(f"{REFUSED}InvalidConfiguration: {wrong}")
    return reader


class Encoding(NamedTuple):
    """How a publish stores its payloads."""

    compression: str | None
    key_names: tuple[str, ...]
    key_reader: Callable[[], CryptoKeyReader] | None
    sends_unencrypted: bool

    @classmethod
    def checked(
        cls,
        compression: CompressionType | str | None,
        encryption_key: str | Sequence[str] | None,
        crypto_key_reader: KeyReader | None,
        crypto_failure_action: ProducerCryptoFailureAction | str,
    ) -> "Encoding":
        """As a caller of ``publish`` gives it; :class:`InvalidConfiguration` for what says nothing."""
        names = (encryption_key,) if isinstance(encryption_key, str) else tuple(encryption_key or ())
        if any(not isinstance(name, str) or not name for name in names):
            raise InvalidConfiguration(f"encryption_key {encryption_key!r}: give the names of public keys")
        if bool(names) != (crypto_key_reader is not None):
            raise InvalidConfiguration(
                "encryption_key names a public key that crypto_key_reader has: give both or neither, or nothing would "
                "be encrypted"
            )
        action = _action(crypto_failure_action, ProducerCryptoFailureAction)
        return cls(
            compression_name(compression),
            names,
            key_reader_of(crypto_key_reader),
            action is ProducerCryptoFailureAction.SEND,
        )

    def encoded(self, messages: DataFrame, given: set[str]) -> tuple[DataFrame, set[str]]:
        """*messages*, which have the columns *given*, as they are stored; and the columns then. The job that runs it
        fails where a payload cannot be encrypted, and must be."""
        if self.compression is None and not self.key_names:
            return messages, given
        if twice := sorted(given.intersection(ENCODING_COLUMNS)):
            raise InvalidConfiguration(
                f"columns {twice} say that payloads are stored compressed or encrypted already: drop them, or ask for "
                "neither"
            )
        stored = messages.withColumn("stored", self._function()(F.col("payload")))
        names = [name for name in messages.columns if name != "payload"]
        return (
            stored.select(*names, *(F.col("stored")[name].alias(name) for name in ("payload", *ENCODING_COLUMNS))),
            {*given, *ENCODING_COLUMNS},
        )

    def _function(self) -> Callable[[Column], Column]:
        compression, names, key_reader, sends_unencrypted = self

        def stored(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
            try:
                encryptor = Encryptor(names, _made(key_reader)) if names else None
                encoder = PayloadEncoder(compression, encryptor, sends_unencrypted=sends_unencrypted)
                for payloads in batches:
                    rows = ((each.as_py(), encoder) for each in payloads)
                    yield from _in_pieces((_stored(*row) for row in rows), _STORED)
            except UnreadableMessage as failed:
                raise type(failed)(f"{REFUSED}{type(failed).__name__}: {failed}") from None

        # Each call has a parameter of its own for each message: what is evaluated twice would not fit together.
        return arrow_udf(stored, _STORED_TYPE).asNondeterministic()


def _stored(payload: bytes | None, encoder: PayloadEncoder) -> dict:
    if payload is None:
        return {"payload": None}
    stored = encoder.encode(payload)
    return {"payload": stored.payload, **(stored.columns or {})}


class Decoding(NamedTuple):
    """How payloads are read: with which keys, and what becomes of those that cannot be decrypted."""

    key_reader: Callable[[], CryptoKeyReader] | None
    action: ConsumerCryptoFailureAction

    @classmethod
    def checked(
        cls, crypto_key_reader: KeyReader | None, crypto_failure_action: ConsumerCryptoFailureAction | str
    ) -> "Decoding":
        return cls(key_reader_of(crypto_key_reader), _action(crypto_failure_action, ConsumerCryptoFailureAction))

    def shown(self, messages: DataFrame, has_encoded: bool = True) -> DataFrame:
        """:meth:`decoded` without rows that are discarded; no Python worker is asked unless *has_encoded*."""
        if not has_encoded:
            return messages.withColumn(PAYLOAD_ERROR, F.lit(None).cast("string"))
        decoded = self.decoded(messages)
        if self.action is not ConsumerCryptoFailureAction.DISCARD:
            return decoded
        return decoded.filter(~F.coalesce(F.col(PAYLOAD_ERROR).startswith("CryptoError"), F.lit(False)))

    def decoded(self, messages: DataFrame, *, keeps_stored: bool = False) -> DataFrame:
        """*messages*, which have ``payload`` and :data:`ENCODING_COLUMNS`, with plain payloads, those columns null
        then, and :data:`PAYLOAD_ERROR`. A payload that cannot be read is null and says why, or stays as it is stored
        with *keeps_stored*, or with CONSUME if it cannot be decrypted."""
        encoded = F.col("compression").isNotNull() | F.col("encryption_keys").isNotNull()
        plain = messages.withColumn(
            "plain", self._function()(*(F.when(encoded, F.col(name)) for name in ("payload", *ENCODING_COLUMNS)))
        )
        error, is_plain = F.col("plain")[PAYLOAD_ERROR], F.col("plain")["payload"].isNotNull()
        if self.action is ConsumerCryptoFailureAction.CONSUME:
            error = F.when(~error.startswith("CryptoError"), error)
        unread = F.when(error.isNull() | F.lit(keeps_stored), F.col("payload"))
        columns = {
            "payload": F.when(is_plain, F.col("plain")["payload"]).otherwise(unread),
            **{name: F.when(~is_plain, F.col(name)) for name in ENCODING_COLUMNS},
            PAYLOAD_ERROR: error,
        }
        names = [name for name in messages.columns if name not in columns]
        in_order = [*messages.columns, PAYLOAD_ERROR]
        decoded = plain.select(*names, *(column.alias(name) for name, column in columns.items()))
        return decoded.select(*in_order)

    def _function(self) -> Callable[..., Column]:
        key_reader = self.key_reader

        def plain(
            batches: Iterator[tuple[pa.Array, pa.Array, pa.Array, pa.Array, pa.Array, pa.Array]],
        ) -> Iterator[pa.Array]:
            decoder = PayloadDecoder(_made(key_reader))
            for batch in batches:
                yield from _in_pieces(_plain_rows(decoder, batch), _PLAIN)

        return arrow_udf(plain, _PLAIN_TYPE)


def _plain_rows(decoder: PayloadDecoder, batch: Sequence[pa.Array]) -> Iterator[dict | None]:
    """What is read of each row; of the errors of a batch the first is said in words."""
    is_said: set[str] = set()
    for row in zip(*batch):
        columns = dict(zip(("payload", *ENCODING_COLUMNS), (each.as_py() for each in row)))
        if columns["payload"] is None or not is_encoded(columns.get):
            yield None
            continue
        try:
            yield {"payload": decoder.decode(columns["payload"], columns.get)}
        except UnreadableMessage as failed:
            name = type(failed).__name__
            yield {PAYLOAD_ERROR: f"{name}: {failed}" if name not in is_said else name}
            is_said.add(name)


def _in_pieces(rows: Iterator[Mapping | None], kind: pa.StructType) -> Iterator[pa.Array]:
    """Rows as arrays of a limited size."""
    piece, size = [], 0
    for row in rows:
        piece.append(row)
        size += len((row or {}).get("payload") or b"")
        if size > _BATCH_BYTES:
            yield pa.array(piece, kind)
            piece, size = [], 0
    if piece:
        yield pa.array(piece, kind)


def plain_or_refused(decoded: DataFrame) -> DataFrame:
    """What :meth:`Decoding.decoded` gives of messages that could all be read a moment ago: a job that reads one which
    no longer can fails."""
    error = F.col(PAYLOAD_ERROR)
    refused = F.raise_error(F.concat(F.lit(REFUSED), error)).cast("binary")
    return decoded.withColumn("payload", F.when(error.isNotNull(), refused).otherwise(F.col("payload"))).drop(
        PAYLOAD_ERROR
    )


def decode_payloads(
    messages: DataFrame,
    *,
    crypto_key_reader: KeyReader | None = None,
    crypto_failure_action: ConsumerCryptoFailureAction | str = "FAIL",
) -> DataFrame:
    """*messages*, rows of a topic's table as ``spark.read`` gives them, with plain payloads and the column
    :data:`PAYLOAD_ERROR`.

    A payload that cannot be decompressed, or decrypted with the private keys that *crypto_key_reader* has, is null, and
    ``payload_error`` says why: of many in a row of the first in words, of the others by name. With
    *crypto_failure_action* DISCARD rows that cannot be decrypted are left out, with CONSUME they stay as they are
    stored, as their columns ``encryption_keys``, ``encryption_param`` and ``compression`` say; of plain payloads these
    are null. Chunks are put together before (``read_messages``, ``transforms.chunks``): each is a piece of what was
    compressed and encrypted.
    """
    missing = {"payload", *ENCODING_COLUMNS} - set(messages.columns)
    if "payload" in missing:
        raise InvalidConfiguration(f"the frame has no column 'payload', only {messages.columns}: select it, too")
    decoding = Decoding.checked(crypto_key_reader, crypto_failure_action)
    absent = {name: F.lit(None).cast(spark_type(name)) for name in sorted(missing)}
    return decoding.shown(messages.withColumns(absent) if absent else messages).drop(*absent)


def register_plain_payload(
    spark: SparkSession, name: str = "plain_payload", *, crypto_key_reader: KeyReader | None = None
) -> None:
    """Make ``plain_payload(payload, compression, uncompressed_size, encryption_keys, encryption_algo,
    encryption_param)`` a function of SQL in this session: the plain payload of a row of a topic's table, null where it
    cannot be read."""
    decoding = Decoding.checked(crypto_key_reader, ConsumerCryptoFailureAction.FAIL)

    def plain_payload(
        batches: Iterator[tuple[pa.Array, pa.Array, pa.Array, pa.Array, pa.Array, pa.Array]],
    ) -> Iterator[pa.Array]:
        decoder = PayloadDecoder(_made(decoding.key_reader))
        for batch in batches:
            read = (
                {"payload": stored.as_py()} if row is None else row
                for row, stored in zip(_plain_rows(decoder, batch), batch[0], strict=True)
            )
            yield from (piece.field("payload") for piece in _in_pieces(read, _PLAIN))

    spark.udf.register(name, arrow_udf(plain_payload, "binary"))


def _action(given: object, kind: type) -> object:
    return kind[one_of("crypto_failure_action", given, tuple(kind.__members__))]
