"""Encode payloads for storage, compressed then encrypted, and decode them (semantics 1.3)."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pulsar_spark.errors import CryptoError
from pulsar_spark.payloads.compression import compress, uncompress
from pulsar_spark.payloads.encryption import Decryptor, EncryptionKey, Encryptor
from pulsar_spark.payloads.keys import CryptoKeyReader

ENCODING_COLUMNS = ("compression", "uncompressed_size", "encryption_keys", "encryption_algo", "encryption_param")
"""Columns that describe how a payload is stored. ``encryption_algo`` is null, as in Java's client."""
PAYLOAD_ERROR = "payload_error"
"""The column with the reason why a payload cannot be read; null otherwise."""

log = logging.getLogger(__name__)


class Stored(NamedTuple):
    """Bytes to store, None for a null payload, and the columns that describe them; None for plain bytes."""

    payload: bytes | None
    columns: dict[str, object] | None


class PayloadEncoder:
    """Encodes one producer's messages.

    With *sends_unencrypted*, payloads that cannot be encrypted are sent as they are (ProducerCryptoFailureAction.SEND).
    """

    def __init__(
        self, compression: str | None = None, encryptor: Encryptor | None = None, *, sends_unencrypted: bool = False
    ):
        self._compression, self._encryptor, self._sends_unencrypted = compression, encryptor, sends_unencrypted
        self._last_keys: tuple[tuple[EncryptionKey, ...] | None, list[dict]] = None, []

    def encode(self, payload: bytes) -> Stored:
        """Encode a payload; :class:`CryptoError` if it must be encrypted and cannot be."""
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
        last, rows = self._last_keys
        if last is not keys:
            rows = [{**key._asdict(), "metadata": list(key.metadata.items())} for key in keys]
            self._last_keys = keys, rows
        return rows


class PayloadDecoder:
    """Decodes messages, with a key reader or none; safe for threads."""

    def __init__(self, key_reader: CryptoKeyReader | None = None):
        self._decryptor = Decryptor(key_reader)

    def decode(self, payload: bytes, column: Callable[[str], Any]) -> bytes:
        """The plain payload; ``column(name)`` returns the message's value of one of :data:`ENCODING_COLUMNS`.

        :class:`CryptoError` or :class:`DecompressionError` if it cannot be decoded.
        """
        if keys := column("encryption_keys"):
            payload = self._decryptor.decrypt(payload, encryption_keys(keys), column("encryption_param"))
        if compression := column("compression"):
            payload = uncompress(payload, compression, column("uncompressed_size"))
        return payload


def is_encoded(column: Callable[[str], Any]) -> bool:
    return bool(column("compression") or column("encryption_keys"))


def encryption_keys(keys: list[Mapping]) -> list[EncryptionKey]:
    """The keys in a value of the column ``encryption_keys``, as Arrow converts it to Python."""
    return [
        EncryptionKey(each["key"] or "", each["value"] or b"", dict(each["metadata"] or {}))
        for each in keys
        if each is not None
    ]
