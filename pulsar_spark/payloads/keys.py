"""Keys for end-to-end encryption, from a :class:`CryptoKeyReader` by name.

Rule: CryptoKeyReader, DefaultCryptoKeyReader and EncryptionKeyInfo of Pulsar's Java client. Keys are RSA in PEM, not
elliptic curves (ECIES). They never appear in ``repr`` or errors.
"""

import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from pulsar_spark.errors import CryptoError, InvalidConfiguration


class EncryptionKeyInfo(NamedTuple):
    """A key and its metadata. Messages encrypted with the key carry the metadata; the reader gets it for decryption."""

    key: bytes
    metadata: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"EncryptionKeyInfo({len(self.key)} bytes, {dict(self.metadata)!r})"


def public_key_names(encryption_key: str | Sequence[str] | None, *, has_reader: bool) -> list[str]:
    """The names of public keys in *encryption_key*.

    ValueError for other types; :class:`InvalidConfiguration` for names without a key reader, or a reader without names.
    """
    names = [encryption_key] if isinstance(encryption_key, str) else encryption_key
    if names is not None and not (
        isinstance(names, list | tuple) and all(isinstance(name, str) and name for name in names)
    ):
        raise ValueError(
            f"argument encryption_key: {encryption_key!r} is neither the name of a public key nor a list of names"
        )
    if names and not has_reader:
        raise InvalidConfiguration(
            f"encryption_key {encryption_key!r} needs a crypto_key_reader that has the public key; without it "
            "nothing would be encrypted"
        )
    if has_reader and not names:
        raise InvalidConfiguration(
            "crypto_key_reader needs an encryption_key, the name of the public key; without it "
            "nothing would be encrypted"
        )
    return list(names or ())


class CryptoKeyReader:
    """Reads one public key and one private key from the files ``public_key_path`` and ``private_key_path``.

    The files are read each time, and the name of the key is ignored. To read keys from elsewhere, or several keys by
    name, derive a class and override :meth:`get_public_key` and :meth:`get_private_key`; it needs no paths.
    """

    def __init__(self, public_key_path: str | os.PathLike, private_key_path: str | os.PathLike):
        for name, path in (("public_key_path", public_key_path), ("private_key_path", private_key_path)):
            if not isinstance(path, str | os.PathLike):
                raise ValueError(f"argument {name}: str expected, not {type(path).__name__}")
        self.public_key_path, self.private_key_path = os.fspath(public_key_path), os.fspath(private_key_path)

    def get_public_key(self, key_name: str, metadata: Mapping[str, str]) -> EncryptionKeyInfo | bytes:
        """The public key *key_name*, with which a producer wraps its data keys. *metadata* is empty here."""
        return _file(self.public_key_path)

    def get_private_key(self, key_name: str, metadata: Mapping[str, str]) -> EncryptionKeyInfo | bytes:
        """The private key *key_name*. *metadata* is what the message says about the key it was encrypted with."""
        return _file(self.private_key_path)


def public_key(reader: CryptoKeyReader, name: str) -> tuple[Any, dict[str, str]]:
    """The public key and its metadata; :class:`CryptoError` without a usable one."""
    info = _key_of(reader.get_public_key, name, {}, "public")
    serialization, _ = _cryptography()
    from cryptography import x509

    pem = info.key
    try:
        if b"BEGIN CERTIFICATE" in pem:
            key = x509.load_pem_x509_certificate(pem).public_key()
        else:
            key = serialization.load_pem_public_key(pem)
    except _unusable() as failed:
        raise CryptoError(_NOT_A_KEY.format("public", name, type(failed).__name__)) from None
    return _rsa(key, "public", name), dict(info.metadata or {})


def private_key(reader: CryptoKeyReader, name: str, metadata: Mapping[str, str]) -> Any:
    """The private key; :class:`CryptoError` without a usable one."""
    info = _key_of(reader.get_private_key, name, dict(metadata), "private")
    _cryptography()
    try:
        key = _parsed(info.key)
    except _unusable() as failed:
        raise CryptoError(_NOT_A_KEY.format("private", name, type(failed).__name__)) from None
    return _rsa(key, "private", name)


@lru_cache(maxsize=16)
def _parsed(pem: bytes) -> Any:
    """Parse a private key, cached because checking one is slow."""
    serialization, _ = _cryptography()
    return serialization.load_pem_private_key(pem, password=None)


_NOT_A_KEY = "the {} key {!r} is not a usable PEM key ({}): give an RSA key without a password"


def _key_of(read_key, name: str, metadata: dict[str, str], kind: str) -> EncryptionKeyInfo:
    """The key from the application's reader. Texts of its exceptions might contain a key, except system errors'."""
    try:
        found = read_key(name, metadata)
    except Exception as failed:
        reason = str(failed) if isinstance(failed, OSError) else type(failed).__name__
        raise CryptoError(f"the crypto key reader gave no {kind} key {name!r}: {reason}") from failed
    info = EncryptionKeyInfo(found) if isinstance(found, bytes) else found
    if not isinstance(info, EncryptionKeyInfo) or not isinstance(info.key, bytes):
        raise CryptoError(
            f"the crypto key reader gave a {type(found).__name__} as {kind} key {name!r}: return its bytes, or an "
            "EncryptionKeyInfo"
        )
    return info


def _file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _rsa(key: Any, kind: str, name: str) -> Any:
    _, rsa = _cryptography()
    if not isinstance(key, rsa.RSAPublicKey | rsa.RSAPrivateKey):
        raise CryptoError(
            f"the {kind} key {name!r} is a {type(key).__name__}: only RSA keys are supported, create one with "
            "'openssl genrsa -out private.pem 2048' and 'openssl rsa -in private.pem -pubout -out public.pem'"
        )
    return key


def _unusable() -> tuple[type[Exception], ...]:
    from cryptography.exceptions import UnsupportedAlgorithm

    return ValueError, TypeError, UnsupportedAlgorithm


def _cryptography():
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import rsa
    except ModuleNotFoundError as missing:
        raise InvalidConfiguration(
            "encryption needs the package 'cryptography': install it with pip install 'pulsar_spark[crypto]'"
        ) from missing
    return serialization, rsa
