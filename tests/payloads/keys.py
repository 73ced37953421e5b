"""Keys for tests: pairs by name, made once, and a reader that has some of them and remembers what it was asked."""

from functools import cache
from typing import NamedTuple

import pytest

from pulsar_spark.payloads.keys import CryptoKeyReader


class KeyPair(NamedTuple):
    public: bytes
    private: bytes


@cache
def key_pair(name: str) -> KeyPair:
    """The key pair of that name, in PEM."""
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, 2048)
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    return KeyPair(
        key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo),
        key.private_bytes(pem, serialization.PrivateFormat.TraditionalOpenSSL, plain),
    )


class Keys(CryptoKeyReader):
    """Has the keys of these names."""

    def __init__(self, *names: str):
        self.names, self.asked = names, []

    def get_public_key(self, key_name, metadata):
        return self._key("public", key_name)

    def get_private_key(self, key_name, metadata):
        return self._key("private", key_name)

    def _key(self, kind: str, name: str) -> bytes:
        self.asked.append(f"{kind} {name}")
        if name not in self.names:
            raise KeyError(name)
        return getattr(key_pair(name), kind)
