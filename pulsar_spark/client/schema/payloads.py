"""Payloads as producers store them, and as consumers and readers show them.

Rules: ProducerBuilder.cryptoFailureAction, ConsumerBuilder.cryptoFailureAction.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from pulsar_spark.client.arguments import check_type
from pulsar_spark.client.model.enums import CompressionType, ConsumerCryptoFailureAction, ProducerCryptoFailureAction
from pulsar_spark.errors import CryptoError
from pulsar_spark.payloads.compression import compression_name
from pulsar_spark.payloads.encoding import ENCODING_COLUMNS, PayloadDecoder, PayloadEncoder, encryption_keys
from pulsar_spark.payloads.encryption import EncryptionKey, Encryptor
from pulsar_spark.payloads.keys import CryptoKeyReader, public_key_names

AS_IT_IS = PayloadEncoder()


def payload_encoder(
    compression_type: CompressionType,
    encryption_key: str | list[str] | None,
    crypto_key_reader: CryptoKeyReader | None,
    crypto_failure_action: ProducerCryptoFailureAction,
) -> PayloadEncoder:
    """From arguments of ``create_producer``: ValueError, :class:`InvalidConfiguration` as ``public_key_names`` says,
    :class:`CryptoError` for a missing key."""
    check_type(CompressionType, compression_type, "compression_type")
    check_type(CryptoKeyReader | None, crypto_key_reader, "crypto_key_reader")
    check_type(ProducerCryptoFailureAction, crypto_failure_action, "crypto_failure_action")
    names = public_key_names(encryption_key, has_reader=crypto_key_reader is not None)
    compression = compression_name(compression_type)
    if not names or crypto_key_reader is None:
        return AS_IT_IS if compression is None else PayloadEncoder(compression)
    return PayloadEncoder(
        compression,
        Encryptor(names, crypto_key_reader),
        sends_unencrypted=crypto_failure_action is ProducerCryptoFailureAction.SEND,
    )


class EncryptionContext:
    """How a received message was encrypted, with everything needed to decrypt it."""

    def __init__(self, field: Callable[[str], Any], *, is_decryption_failed: bool):
        self._fields: dict[str, Any] = {name: field(name) for name in (*ENCODING_COLUMNS, "batch_size", "batch_index")}
        self._is_decryption_failed = is_decryption_failed

    def keys(self) -> list[EncryptionKey]:
        """The data key, wrapped for each public key."""
        return encryption_keys(self._fields["encryption_keys"])

    def param(self) -> bytes:
        """The initialization vector."""
        return self._fields["encryption_param"] or b""

    def algorithm(self) -> str:
        """The algorithm, as the producer names it; usually empty."""
        return self._fields["encryption_algo"] or ""

    def compression_type(self) -> CompressionType:
        """The compression of the payload before it was encrypted."""
        types = {each.name.upper(): each for each in CompressionType}
        return types.get(self._fields["compression"], CompressionType.NONE)

    def uncompressed_message_size(self) -> int:
        """The payload's bytes before compression; 0 if it was not compressed."""
        return self._fields["uncompressed_size"] or 0

    def batch_size(self) -> int:
        """The number of messages in the batch, each encrypted by itself; -1 outside a batch."""
        index = self._fields["batch_index"]
        return -1 if index is None or index < 0 else self._fields["batch_size"]

    def is_decryption_failed(self) -> bool:
        """Whether the payload is still encrypted, and compressed."""
        return self._is_decryption_failed

    def __repr__(self) -> str:
        return (
            f"EncryptionContext(algorithm={self.algorithm()!r}, compression_type={self.compression_type().name}, "
            f"uncompressed_message_size={self.uncompressed_message_size()}, batch_size={self.batch_size()}, "
            f"is_decryption_failed={self.is_decryption_failed()}, keys={[key.key for key in self.keys()]})"
        )


class Opened(NamedTuple):
    payload: bytes
    encryption_context: EncryptionContext | None


class PayloadOpener:
    """Opens received payloads of one consumer or reader; thread-safe."""

    def __init__(
        self,
        crypto_key_reader: CryptoKeyReader | None = None,
        crypto_failure_action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL,
    ):
        check_type(CryptoKeyReader | None, crypto_key_reader, "crypto_key_reader")
        check_type(ConsumerCryptoFailureAction, crypto_failure_action, "crypto_failure_action")
        self._decoder, self._action = PayloadDecoder(crypto_key_reader), crypto_failure_action

    def opened(self, payload: bytes, field: Callable[[str], object]) -> Opened:
        """The plain payload of a message; :class:`DecompressionError` or :class:`CryptoError`. ``field(name)`` gives
        the columns of its (last) row."""
        try:
            return Opened(self._decoder.decode(payload, field), _context(field, is_decryption_failed=False))
        except CryptoError:
            if self._action is not ConsumerCryptoFailureAction.CONSUME:
                raise
            return Opened(payload, _context(field, is_decryption_failed=True))

    def discards(self, error: Exception) -> bool:
        """Whether a message with this error is acknowledged undelivered."""
        return isinstance(error, CryptoError) and self._action is ConsumerCryptoFailureAction.DISCARD


def _context(field: Callable[[str], object], *, is_decryption_failed: bool) -> EncryptionContext | None:
    if not field("encryption_keys"):
        return None
    return EncryptionContext(field, is_decryption_failed=is_decryption_failed)
