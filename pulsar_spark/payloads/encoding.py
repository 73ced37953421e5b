"""From a payload to what is stored, and back: compressed, then encrypted; decrypted, then decompressed (semantics 1.3).

What is stored beside the bytes are columns of the messages table, by name; nothing is said of a payload that is stored
as it is.
"""

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pulsar_spark.errors import CryptoError
from pulsar_spark.payloads.compression import compress, uncompress
from pulsar_spark.payloads.encryption import Decryptor, EncryptionKey, Encryptor

ENCODING_COLUMNS = ("compression", "uncompressed_size", "encryption_keys", "encryption_algo", "encryption_param")
"""Columns of the messages table that say how a payload is stored. ``encryption_algo`` is null, as Java's client leaves
it: a key says by itself what it is for."""

log = logging.getLogger(__name__)


class Stored(NamedTuple):
    """The bytes to store, and the columns that say how they are to be read; None where as they are."""

    payload: bytes
    columns: dict[str, object] | None


class PayloadEncoder:
    """Encodes the messages of one producer: compressed by the name of a compression, or not, and encrypted, or not.
    With *sends_unencrypted* what cannot be encrypted is sent as it is (ProducerCryptoFailureAction.SEND)."""

    def __init__(
        self, compression: str | None = None, encryptor: Encryptor | None = None, *, sends_unencrypted: bool = False
    ):
        self._compression, self._encryptor, self._sends_unencrypted = compression, encryptor, sends_unencrypted
        self._last_keys: tuple[tuple[EncryptionKey, ...] | None, list[dict]] = None, []

    def encode(self, payload: bytes) -> Stored:
        """What to store of a payload; :class:`CryptoError` where it cannot be encrypted and must be."""
        columns: dict[str, object] = {}
        if self._compression is not None and (compressed := compress(payload, self._compression)) is not None:
            columns |= {"compression": self._compression, "uncompressed_size": len(payload)}
            payload = compressed
        if self._encryptor is not None:
            try:
                encrypted = self._encryptor.encrypt(payload)
            except CryptoError as failed:
                if not self._sends_unencrypted:
                    raise
                log.warning("a message is sent unencrypted, as crypto_failure_action SEND asks for: %s", failed)
            else:
                payload = encrypted.payload
                columns["encryption_keys"] = self._rows_of(encrypted.keys)
                columns["encryption_param"] = encrypted.param
        return Stored(payload, columns or None)

    def _rows_of(self, keys: tuple[EncryptionKey, ...]) -> list[dict]:
        """What the column says of *keys*: one and the same object, while they are."""
        last, rows = self._last_keys
        if last is not keys:
            rows = [{**key._asdict(), "metadata": list(key.metadata.items())} for key in keys]
            self._last_keys = keys, rows
        return rows


class PayloadDecoder:
    """Decodes messages, with the keys of a reader of keys, or none; safe for threads."""

    def __init__(self, key_reader=None):
        self._decryptor = Decryptor(key_reader)

    def decode(self, payload: bytes, column: Callable[[str], object]) -> bytes:
        """The plain payload of stored bytes; ``column(name)`` gives what the message says in one of
        :data:`ENCODING_COLUMNS`. :class:`CryptoError` or :class:`DecompressionError` where it cannot be had."""
        if keys := column("encryption_keys"):
            payload = self._decryptor.decrypt(payload, encryption_keys(keys), column("encryption_param"))
        if compression := column("compression"):
            payload = uncompress(payload, compression, column("uncompressed_size"))
        return payload


def is_encoded(column: Callable[[str], object]) -> bool:
    """Is a message stored otherwise than as it is?"""
    return bool(column("compression") or column("encryption_keys"))


def encryption_keys(keys: list[Mapping]) -> list[EncryptionKey]:
    """The value of the column ``encryption_keys``, as Arrow gives it to Python."""
    return [
        EncryptionKey(each["key"] or "", each["value"] or b"", dict(each["metadata"] or {}))
        for each in keys
        if each is not None
    ]
