"""What values of the ``pulsar`` package (release 3.13) equal, print and raise, as its own objects do."""

import copy
import operator
import pickle

import pytest

import pulsar_spark as pulsar
from pulsar_spark.schema import SchemaType
from tests.client.test_payloads import EARLIEST, encrypting

NUMBERED = [
    pulsar.BatchingType,
    pulsar.CompressionType,
    pulsar.ConsumerType,
    pulsar.HashingScheme,
    pulsar.InitialPosition,
    pulsar.KeySharedMode,
    pulsar.LoggerLevel,
    pulsar.PartitionsRoutingMode,
    pulsar.ProducerAccessMode,
    pulsar.ProducerCryptoFailureAction,
    pulsar.RegexSubscriptionMode,
    pulsar.Result,
    SchemaType,
]
LETTERS = "abcdefghijklmnopqrstuvwxyz" * 2


@pytest.mark.parametrize("kind", [*NUMBERED, pulsar.ConsumerCryptoFailureAction], ids=lambda kind: kind.__name__)
def test_a_member_stands_for_its_number(kind):
    for name, member in kind.__members__.items():
        number = member.value
        assert int(member) == operator.index(member) == number and float(member) == number
        assert LETTERS[member] == LETTERS[number] and hash(member) == hash(number)
        assert (member.name, str(member), f"{member}") == (name, f"{kind.__name__}.{name}", f"{kind.__name__}.{name}")
        assert repr(member) == f"<{kind.__name__}.{name}: {number}>"
        assert kind(number) is kind[name] is member and member == copy.deepcopy(member)
        assert pickle.loads(pickle.dumps(member)) is member
        assert not (member == name or member is None or member == str(number)) and not isinstance(member, int)
        with pytest.raises(TypeError):
            member < member  # noqa: B015 - members have no order


@pytest.mark.parametrize("kind", NUMBERED, ids=lambda kind: kind.__name__)
def test_a_member_equals_its_number(kind):
    for member in kind:
        number = member.value
        assert member == number == member and member == float(number) and {number: "x"}[member] == "x"
        assert member != number + 1 and number in (member,) and [member].index(number) == 0
        assert [each for each in kind if each == member] == [member]


def test_only_the_crypto_failure_action_of_consumers_equals_no_number():
    action = pulsar.ConsumerCryptoFailureAction.DISCARD
    assert action == pulsar.ConsumerCryptoFailureAction.DISCARD != pulsar.ConsumerCryptoFailureAction.FAIL
    assert action != 1 and 1 != action and action != pulsar.ConsumerType.Shared


def test_the_errors_have_the_names_of_the_package():
    for name in pulsar.__all__:
        kind = getattr(pulsar, name)
        if isinstance(kind, type) and issubclass(kind, Exception):
            assert kind.__name__ == name and issubclass(kind, pulsar.PulsarException)
    assert pulsar.exceptions.PulsarException is pulsar.PulsarException


@pytest.mark.parametrize("junk", [b"junk", b"", b"\x08", bytearray(b"junk"), "text", None, 5, b"\xff" * 30])
def test_bytes_that_are_no_message_id_are_a_value_error(junk):
    for refused in (ValueError, pulsar.InvalidMessage, pulsar.PulsarException):
        with pytest.raises(refused):
            pulsar.MessageId.deserialize(junk)


def test_a_message_can_be_made_and_derived_from():
    message = pulsar.Message()
    assert repr(message) == str(message) == "Message(not received)"
    for read in (message.data, message.message_id, message.properties, message.redelivery_count, message.value):
        with pytest.raises(pulsar.InvalidMessage, match="use a received message"):
            read()

    class Mine(pulsar.Message):
        def data(self):
            return b"mine"

    assert Mine().data() == b"mine" and Mine().length() == 4 and isinstance(Mine(), pulsar.Message)


def test_what_was_not_received_is_not_acknowledged(client):
    consumer = client.subscribe("t", "s")
    for refuse in (consumer.acknowledge, consumer.negative_acknowledge, consumer.acknowledge_cumulative):
        with pytest.raises(pulsar.InvalidMessage, match="use a received message"):
            refuse(pulsar.Message())


def test_functions_and_their_parts_can_be_made_and_derived_from():
    class Doubled(pulsar.Function):
        def __init__(self, times=2):
            self.times = times

        def process(self, input, context):
            return input * self.times + context.get_function_name()

    class Named(pulsar.Context):
        def get_function_name(self):
            return "f"

    class Bytes(pulsar.SerDe):
        def serialize(self, input):
            return input

    assert Doubled().process("a", Named()) == "aaf" and Doubled(3).times == 3
    assert Bytes().serialize(b"x") == b"x"


@pytest.mark.parametrize(
    "value, stored, read",
    [
        ("a", b"a", "a"),
        (1, b"1", 1),
        (1.5, b"1.5", 1.5),
        (b"x", b"x", "x"),
        ("7", b"7", 7),
        (b"\xff", b"\xff", b"\xff"),
    ],
)
def test_the_identity_serde_takes_texts_numbers_and_bytes(value, stored, read):
    identity = pulsar.IdentitySerDe()
    assert identity.serialize(value) == stored and identity.deserialize(stored) == read


def test_serdes_refuse_what_they_cannot():
    for value in (True, [1], None):
        with pytest.raises(TypeError, match="IdentitySerDe"):
            pulsar.IdentitySerDe().serialize(value)
    with pytest.raises(pulsar.OperationNotSupported, match="schema"):
        pulsar.PickleSerDe().serialize(1)
    with pytest.raises(pulsar.OperationNotSupported, match="schema"):
        pulsar.PickleSerDe().deserialize(b"")


def test_the_encryption_context_says_the_size_of_a_batch_and_none_outside_one(client):
    single = client.create_producer("t", **encrypting("a"))
    single.send(b"one")
    batched = client.create_producer("t", batching_enabled=True, **encrypting("a"))
    for text in (b"two", b"three", b"four"):
        batched.send_async(text, None)
    batched.flush()
    reader = client.create_reader(
        "t", pulsar.MessageId.earliest, crypto_failure_action=pulsar.ConsumerCryptoFailureAction.CONSUME
    )
    contexts = [reader.read_next(5000).encryption_context() for _ in range(4)]
    assert [context.batch_size() for context in contexts] == [-1, 3, 3, 3]
    assert all(context.is_decryption_failed() for context in contexts)
    assert "batch_size=3" in repr(contexts[1]) and contexts[1].keys()[0].key == "a"
    assert contexts[1].keys()[0].value.hex() not in repr(contexts[1])
    assert client.subscribe("t", "s", **EARLIEST)
