"""Compress and encrypt payloads for publishing in Python workers."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pulsar_spark.client.model.enums import Compression, ProducerCryptoAction, ProducerCryptoFailureAction
from pulsar_spark.columns import arrow_udf
from pulsar_spark.errors import InvalidConfiguration, UnreadableMessage
from pulsar_spark.frames.publishing.message_columns import REFUSED, spark_type
from pulsar_spark.frames.reading.payload_batches import (
    KeyReader,
    failure_action,
    in_pieces,
    key_reader_of,
    make_key_reader,
)
from pulsar_spark.payloads.compression import compression_name
from pulsar_spark.payloads.encoding import ENCODING_COLUMNS, PayloadEncoder
from pulsar_spark.payloads.encryption import Encryptor
from pulsar_spark.payloads.keys import CryptoKeyReader, public_key_names
from pulsar_spark.table_specs import MESSAGES

_STORED = pa.struct([MESSAGES.schema.field(name) for name in ("payload", *ENCODING_COLUMNS)])
_STORED_TYPE = f"struct<{', '.join(f'{name}: {spark_type(name)}' for name in ('payload', *ENCODING_COLUMNS))}>"


class Encoding(NamedTuple):
    """How a publish stores its payloads."""

    compression: str | None
    key_names: tuple[str, ...]
    key_reader: Callable[[], CryptoKeyReader] | None
    sends_unencrypted: bool

    @classmethod
    def checked(
        cls,
        compression: Compression | None,
        encryption_key: str | Sequence[str] | None,
        crypto_key_reader: KeyReader | None,
        crypto_failure_action: ProducerCryptoAction,
    ) -> "Encoding":
        """The checked arguments of ``publish``; :class:`InvalidConfiguration` if they do not fit."""
        try:
            names = public_key_names(encryption_key, has_reader=crypto_key_reader is not None)
        except ValueError as wrong:
            raise InvalidConfiguration(str(wrong)) from None
        action = failure_action(crypto_failure_action, ProducerCryptoFailureAction)
        return cls(
            compression_name(compression),
            tuple(names),
            key_reader_of(crypto_key_reader),
            action is ProducerCryptoFailureAction.SEND,
        )

    @property
    def is_plain(self) -> bool:
        """Whether payloads are stored as they are."""
        return self.compression is None and not self.key_names

    def check_given(self, given: Collection[str]) -> None:
        """:class:`InvalidConfiguration` if payloads with the columns *given* would be encoded twice."""
        if not self.is_plain and (twice := sorted(set(given).intersection(ENCODING_COLUMNS))):
            raise InvalidConfiguration(
                f"columns {twice} say that payloads are already compressed or encrypted: drop them, or ask "
                "for no compression and encryption"
            )

    def encoded(self, messages: DataFrame, given: set[str]) -> tuple[DataFrame, set[str]]:
        """*messages* with the columns *given* as they are stored, and the resulting columns. The job fails if a payload
        must be encrypted and cannot be."""
        if self.is_plain:
            return messages, given
        self.check_given(given)
        stored = messages.withColumn("stored", self._function()(F.col("payload")))
        names = [name for name in messages.columns if name != "payload"]
        return (
            stored.select(*names, *(F.col("stored")[name].alias(name) for name in ("payload", *ENCODING_COLUMNS))),
            {*given, *ENCODING_COLUMNS},
        )

    def stored(self, arrays: Iterable[pa.Array]) -> Iterator[pa.StructArray]:
        """Payloads as they are stored, with :data:`ENCODING_COLUMNS`, in order, in arrays of limited size."""
        keys = make_key_reader(self.key_reader)
        encryptor = Encryptor(list(self.key_names), keys) if self.key_names and keys is not None else None
        encoder = PayloadEncoder(self.compression, encryptor, sends_unencrypted=self.sends_unencrypted)
        for payloads in arrays:
            yield from in_pieces((_stored(each.as_py(), encoder) for each in payloads), _STORED)

    def _function(self) -> Callable[[Column], Column]:
        def stored(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
            try:
                yield from self.stored(batches)
            except UnreadableMessage as failed:
                raise type(failed)(f"{REFUSED}{type(failed).__name__}: {failed}") from None

        # Each call encrypts with new parameters, so results of two evaluations would not fit together.
        return arrow_udf(stored, _STORED_TYPE).asNondeterministic()


def _stored(payload: bytes | None, encoder: PayloadEncoder) -> tuple:
    if payload is None:
        return (None,) * len(_STORED)
    stored = encoder.encode(payload)
    return stored.payload, *map((stored.columns or {}).get, ENCODING_COLUMNS)
