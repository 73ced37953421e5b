"""End-to-end encryption as in Pulsar's clients. Source: MessageCryptoBc.

Payloads are encrypted by AES-GCM with a 256-bit data key and twelve random bytes (``encryption_param``). Each message
has the data key, wrapped for each public key by RSA-OAEP with SHA-1 (``encryption_keys``). A producer renews it every
four hours.
"""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from pulsar_spark.errors import CryptoError, MessageTooBig
from pulsar_spark.payloads.keys import CryptoKeyReader, private_key, public_key

DATA_KEY_SECONDS = 4 * 60 * 60
_DATA_KEY_BITS = 256
_IV_BYTES = 12
_KNOWN_KEYS = 1000
_MOST_BYTES = 2**31 - 1 - 16


class EncryptionKey(NamedTuple):
    """A data key in a message, wrapped with the public key of this name. ``metadata`` comes from the key reader."""

    key: str
    value: bytes
    metadata: dict[str, str] = {}


class Encrypted(NamedTuple):
    payload: bytes
    keys: tuple[EncryptionKey, ...]
    param: bytes


class Encryptor:
    """Encrypts one producer's messages for the named public keys; safe for threads. *clock* counts seconds."""

    def __init__(
        self, key_names: Sequence[str], key_reader: CryptoKeyReader, clock: Callable[[], float] = time.monotonic
    ):
        self._names, self._reader, self._clock = tuple(dict.fromkeys(key_names)), key_reader, clock
        self._lock = threading.Lock()
        self._renew()

    def encrypt(self, payload: bytes) -> Encrypted:
        """The encrypted payload.

        :class:`CryptoError` if the data key expired and a public key is unavailable, :class:`MessageTooBig` from 2 GiB.
        """
        if len(payload) > _MOST_BYTES:
            raise MessageTooBig(f"a payload of {len(payload)} bytes cannot be encrypted: the maximum is {_MOST_BYTES}")
        with self._lock:
            if self._clock() - self._since >= DATA_KEY_SECONDS:
                self._renew()
            cipher, keys = self._cipher, self._keys
        param = os.urandom(_IV_BYTES)
        return Encrypted(cipher.encrypt(param, payload, None), keys, param)

    def _renew(self) -> None:
        public = [(name, *public_key(self._reader, name)) for name in self._names]
        aesgcm, oaep, _ = _algorithms()
        data_key = aesgcm.generate_key(_DATA_KEY_BITS)
        self._keys = tuple(EncryptionKey(name, key.encrypt(data_key, oaep), metadata) for name, key, metadata in public)
        self._cipher, self._since = aesgcm(data_key), self._clock()


class Decryptor:
    """Decrypts messages with the private keys of *key_reader*, or none; safe for threads."""

    def __init__(self, key_reader: CryptoKeyReader | None, clock: Callable[[], float] = time.monotonic):
        self._reader, self._clock = key_reader, clock
        self._lock = threading.Lock()
        self._ciphers: OrderedDict[bytes, tuple[float, Any]] = OrderedDict()

    def decrypt(self, payload: bytes, keys: Iterable[EncryptionKey], param: bytes | None) -> bytes:
        """The payload; :class:`CryptoError` with a reason for each key."""
        keys = list(keys)
        names = ", ".join(repr(each.key) for each in keys)
        if self._reader is None:
            raise CryptoError(f"the message is encrypted (keys {names}) and there is no crypto_key_reader: give one")
        if param is None:
            raise CryptoError(f"the message is encrypted (keys {names}) but has no encryption_param")
        reasons = []
        for each in keys:
            try:
                return _decrypted(self._cipher(each, self._reader), payload, param)
            except CryptoError as failed:
                reasons.append(f"{each.key!r}: {failed}")
        raise CryptoError(f"the message cannot be decrypted with any of its keys ({'; '.join(reasons)})")

    def _cipher(self, wrapped: EncryptionKey, reader: CryptoKeyReader) -> Any:
        now = self._clock()
        with self._lock:
            since, cipher = self._ciphers.pop(wrapped.value, (now, None))
        if cipher is None or now - since >= DATA_KEY_SECONDS:
            cipher = _unwrapped(wrapped, reader)
        with self._lock:
            self._ciphers[wrapped.value] = now, cipher
            while len(self._ciphers) > _KNOWN_KEYS:
                self._ciphers.popitem(last=False)
        return cipher


def _unwrapped(wrapped: EncryptionKey, reader: CryptoKeyReader) -> Any:
    key = private_key(reader, wrapped.key, wrapped.metadata)
    aesgcm, oaep, _ = _algorithms()
    try:
        return aesgcm(key.decrypt(wrapped.value, oaep))
    except ValueError:
        raise CryptoError(
            "the data key was not wrapped for this private key, or was changed: give the key that belongs to the "
            "producer's public key"
        ) from None


def _decrypted(cipher: Any, payload: bytes, param: bytes) -> bytes:
    _, _, invalid_tag = _algorithms()
    try:
        return cipher.decrypt(param, payload, None)
    except (invalid_tag, ValueError):
        raise CryptoError("the ciphertext or its encryption_param was changed since it was encrypted") from None


def _algorithms():
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM, padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None), InvalidTag
