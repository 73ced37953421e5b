"""Encryption as MessageCryptoBc does it: formats, rotation, keys by name; wrong, missing and damaged ones are named."""

import random
import re

import pytest

from pulsar_spark.errors import CryptoError, InvalidConfiguration
from pulsar_spark.payloads.encoding import PayloadDecoder, PayloadEncoder
from pulsar_spark.payloads.encryption import DATA_KEY_SECONDS, Decryptor, EncryptionKey, Encryptor
from pulsar_spark.payloads.keys import CryptoKeyReader, EncryptionKeyInfo, public_key_names
from tests.payloads.keys import Keys, key_pair

pytest.importorskip("cryptography")
from cryptography.hazmat.primitives import hashes, serialization  # noqa: E402
from cryptography.hazmat.primitives.asymmetric import ec, padding  # noqa: E402
from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: E402

PAYLOAD = b"flight UA1545, 517, EWR-IAH"
OAEP = padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None)


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_what_is_stored_is_what_pulsars_clients_read():
    """By the primitives themselves: the data key by RSA-OAEP with SHA-1, 256 bits, the payload by AES-GCM with twelve
    bytes of parameter and sixteen behind it, nothing added to what is authenticated."""
    stored = Encryptor(["a", "b"], Keys("a", "b")).encrypt(PAYLOAD)
    for wrapped in stored.keys:
        private = serialization.load_pem_private_key(key_pair(wrapped.key).private, password=None)
        data_key = private.decrypt(wrapped.value, OAEP)
        assert len(data_key) == 32 and AESGCM(data_key).decrypt(stored.param, stored.payload, None) == PAYLOAD
    assert [each.key for each in stored.keys] == ["a", "b"]
    assert (len(stored.param), len(stored.payload)) == (12, len(PAYLOAD) + 16)


def test_each_private_key_alone_reads_and_each_message_has_its_own_parameter():
    encryptor = Encryptor(["a", "b"], Keys("a", "b"))
    first, second = encryptor.encrypt(PAYLOAD), encryptor.encrypt(PAYLOAD)
    assert first.param != second.param and first.payload != second.payload and first.keys == second.keys
    for name in ("a", "b"):
        assert Decryptor(Keys(name)).decrypt(*first) == Decryptor(Keys(name)).decrypt(*second) == PAYLOAD


def test_the_data_key_is_renewed_after_four_hours_and_the_readers_kept_as_long():
    clock, keys = Clock(), Keys("a")
    encryptor, decryptor = Encryptor(["a"], keys, clock), Decryptor(keys, clock)
    before = encryptor.encrypt(PAYLOAD)
    clock.seconds = DATA_KEY_SECONDS - 1
    assert encryptor.encrypt(PAYLOAD).keys == before.keys
    clock.seconds = DATA_KEY_SECONDS
    after = encryptor.encrypt(PAYLOAD)
    assert after.keys != before.keys
    keys.asked.clear()
    assert decryptor.decrypt(*before) == decryptor.decrypt(*before) == decryptor.decrypt(*after) == PAYLOAD
    assert keys.asked == ["private a"] * 2  # once for each data key
    clock.seconds += DATA_KEY_SECONDS
    assert decryptor.decrypt(*after) == PAYLOAD and keys.asked == ["private a"] * 3


def test_a_key_that_is_gone_when_the_data_key_is_to_be_renewed_spoils_no_message():
    clock, keys = Clock(), Keys("a")
    encryptor = Encryptor(["a"], keys, clock)
    clock.seconds = DATA_KEY_SECONDS
    keys.names = ()
    with pytest.raises(CryptoError, match="gave no public key 'a': KeyError"):
        encryptor.encrypt(PAYLOAD)
    keys.names = ("a",)
    assert Decryptor(keys).decrypt(*encryptor.encrypt(PAYLOAD)) == PAYLOAD


def test_what_the_reader_says_of_a_key_goes_with_the_message_and_is_told_to_who_decrypts():
    class Versions(Keys):
        def get_public_key(self, key_name, metadata):
            return EncryptionKeyInfo(super().get_public_key(key_name, metadata), {"version": "7"})

        def get_private_key(self, key_name, metadata):
            self.asked.append(metadata)
            return super().get_private_key(key_name, metadata)

    keys = Versions("a")
    stored = Encryptor(["a"], keys).encrypt(PAYLOAD)
    assert stored.keys[0].metadata == {"version": "7"}
    assert Decryptor(keys).decrypt(*stored) == PAYLOAD and {"version": "7"} in keys.asked


def test_keys_from_files(tmp_path):
    public, private = tmp_path / "public.pem", tmp_path / "private.pem"
    public.write_bytes(key_pair("a").public)
    private.write_bytes(key_pair("a").private)
    reader = CryptoKeyReader(str(public), str(private))
    stored = Encryptor(["any name"], reader).encrypt(PAYLOAD)
    assert Decryptor(reader).decrypt(*stored) == PAYLOAD
    private.unlink()
    with pytest.raises(CryptoError, match="gave no private key 'any name': .*No such file.*private.pem"):
        Decryptor(reader).decrypt(*stored)
    with pytest.raises(ValueError, match="argument public_key_path: str expected, not bytes"):
        CryptoKeyReader(b"x", "y")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda stored: stored._replace(payload=stored.payload[:-1]), "ciphertext .* was changed"),
        (lambda stored: stored._replace(payload=b"\0" + stored.payload[1:]), "ciphertext .* was changed"),
        (lambda stored: stored._replace(payload=b""), "ciphertext .* was changed"),
        (lambda stored: stored._replace(param=bytes(12)), "was changed"),
        (lambda stored: stored._replace(param=b""), "was changed"),
        (lambda stored: stored._replace(param=None), "has no encryption_param"),
        (lambda stored: stored._replace(keys=(EncryptionKey("a", b"x"),)), "data key was not wrapped for this"),
        (lambda stored: stored._replace(keys=(EncryptionKey("c", b"x"),)), "gave no private key 'c': KeyError"),
    ],
)
def test_what_was_changed_is_named(change, said):
    stored = change(Encryptor(["a"], Keys("a")).encrypt(PAYLOAD))
    with pytest.raises(CryptoError, match=said):
        Decryptor(Keys("a")).decrypt(*stored)


def test_wrong_and_missing_keys_are_named_each():
    class Wrong(Keys):
        def get_private_key(self, key_name, metadata):
            return {"a": key_pair("other").private, "b": b"no key", "c": "text", "d": ec_key()}[key_name]

    stored = Encryptor(["a", "b", "c", "d", "e"], Keys("a", "b", "c", "d", "e")).encrypt(PAYLOAD)
    with pytest.raises(CryptoError) as failed:
        Decryptor(Wrong()).decrypt(*stored)
    said = str(failed.value)
    for part in (
        "'a': the data key was not wrapped for this private key",
        "'b': the private key 'b' is not a usable PEM key",
        "'c': the crypto key reader gave a str as private key",
        "'d': the private key 'd' is a ECPrivateKey: only RSA keys",
        "'e': the crypto key reader gave no private key 'e': KeyError",
    ):
        assert part in said
    assert "BEGIN" not in said
    with pytest.raises(
        CryptoError, match=r"is encrypted \(keys 'a', 'b', 'c', 'd', 'e'\) and there is no crypto_key_r"
    ):
        Decryptor(None).decrypt(*stored)


@pytest.mark.parametrize("public", [b"no key", b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "text"])
def test_a_public_key_that_is_none_is_named(public):
    class Bad(Keys):
        def get_public_key(self, key_name, metadata):
            return public

    with pytest.raises(CryptoError, match="public key 'a'"):
        Encryptor(["a"], Bad("a"))


def test_a_key_is_not_shown():
    assert "BEGIN" not in repr(EncryptionKeyInfo(key_pair("a").private, {"version": "7"}))
    assert repr(EncryptionKeyInfo(b"abc", {"version": "7"})) == "EncryptionKeyInfo(3 bytes, {'version': '7'})"


def test_payloads_are_compressed_before_they_are_encrypted_and_both_are_undone():
    payload = PAYLOAD * 1000
    stored = PayloadEncoder("ZSTD", Encryptor(["a"], Keys("a"))).encode(payload)
    assert len(stored.payload) < len(payload) / 10  # a ciphertext cannot be compressed
    assert set(stored.columns) == {"compression", "uncompressed_size", "encryption_keys", "encryption_param"}
    assert PayloadDecoder(Keys("a")).decode(stored.payload, stored.columns.get) == payload
    assert PayloadEncoder().encode(payload) == (payload, None)


def test_what_cannot_be_encrypted_is_refused_or_sent_as_it_is_and_said(caplog):
    clock, keys = Clock(), Keys("a")
    refusing, sending = (
        PayloadEncoder("LZ4", Encryptor(["a"], keys, clock), sends_unencrypted=sends) for sends in (False, True)
    )
    clock.seconds, keys.names = DATA_KEY_SECONDS, ()
    with pytest.raises(CryptoError):
        refusing.encode(PAYLOAD)
    stored = sending.encode(PAYLOAD)
    assert PayloadDecoder().decode(stored.payload, stored.columns.get) == PAYLOAD
    assert "sent unencrypted" in caplog.text and PAYLOAD.decode() not in caplog.text


def test_many_data_keys_take_bounded_memory(monkeypatch):
    monkeypatch.setattr("pulsar_spark.payloads.encryption._KNOWN_KEYS", 2)
    keys = Keys("a")
    stored = [Encryptor(["a"], keys).encrypt(bytes([number])) for number in range(4)]
    decryptor = Decryptor(keys)
    in_any_order = random.Random(1).choices(range(4), k=20)
    assert [decryptor.decrypt(*stored[number]) for number in in_any_order] == [bytes([n]) for n in in_any_order]
    assert len(decryptor._ciphers) == 2


def ec_key() -> bytes:
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def test_names_of_keys_as_clients_and_frames_take_them():
    assert public_key_names(None, has_reader=False) == []
    assert public_key_names("a", has_reader=True) == ["a"]
    assert public_key_names(("a", "b"), has_reader=True) == public_key_names(["a", "b"], has_reader=True) == ["a", "b"]


@pytest.mark.parametrize("given", ["", 7, [""], ["a", None], {"a": 1}, b"a"])
def test_what_is_no_name_of_a_key_is_refused_by_name(given):
    with pytest.raises(ValueError, match=re.escape(f"encryption_key: {given!r} is neither the name")):
        public_key_names(given, has_reader=True)


@pytest.mark.parametrize(
    "given, has_reader, text",
    [
        ("a", False, "encryption_key 'a' needs a crypto_key_reader"),
        (["a"], False, r"encryption_key .'a'. needs a crypto_key_reader"),
        (None, True, "crypto_key_reader needs an encryption_key"),
        ([], True, "crypto_key_reader needs an encryption_key"),
    ],
)
def test_a_key_and_a_reader_of_keys_need_each_other(given, has_reader, text):
    with pytest.raises(InvalidConfiguration, match=text):
        public_key_names(given, has_reader=has_reader)
