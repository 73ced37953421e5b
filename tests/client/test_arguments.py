"""What the client takes: the ``pulsar`` package's names and defaults; and what bad input gets."""

import inspect
import re
import time

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.client.model.enums import result_of
from pulsar_spark.storage.layout import Layout

OWN_ARGUMENTS = {
    "hashing_scheme",
    "retry_enable",
    "priority_level",
    "lease_seconds",
    "negative_ack_redelivery_backoff",
    "ack_timeout_redelivery_backoff",
    "ack_group_time_ms",
    "max_ack_group_size",
    "ack_receipt_enabled",
    "retry_letter_topic",
}
OWN_DEFAULTS = {"batch_index_ack_enabled"}


@pytest.mark.parametrize(
    "name",
    [
        "Client.__init__",
        "Client.create_producer",
        "Client.subscribe",
        "Client.create_reader",
        "Producer.send",
        "Producer.send_async",
        "Consumer.receive",
        "Consumer.seek",
        "Reader.read_next",
        "ConsumerDeadLetterPolicy.__init__",
        "ConsumerKeySharedPolicy.__init__",
        "ConsumerBatchReceivePolicy.__init__",
        "MessageId.__init__",
    ],
)
def test_arguments_and_defaults_are_those_of_the_package(name):
    package = pytest.importorskip("pulsar")

    def arguments(module):
        cls, method = name.split(".")
        found = inspect.signature(getattr(getattr(module, cls), method)).parameters.values()
        return {
            parameter.name: getattr(parameter.default, "name", None) or str(parameter.default) for parameter in found
        }

    theirs, ours = arguments(package), arguments(pulsar)
    assert list(theirs) == [argument for argument in ours if argument not in OWN_ARGUMENTS]
    assert {key: value for key, value in theirs.items() if key not in OWN_DEFAULTS} == {
        key: value for key, value in ours.items() if key not in OWN_DEFAULTS | OWN_ARGUMENTS
    }


@pytest.mark.parametrize(
    "name",
    [
        "Result",
        "ConsumerType",
        "InitialPosition",
        "PartitionsRoutingMode",
        "BatchingType",
        "CompressionType",
        "LoggerLevel",
        "ProducerAccessMode",
        "KeySharedMode",
        "RegexSubscriptionMode",
        "ConsumerCryptoFailureAction",
    ],
)
def test_enumerations_are_those_of_the_package(name):
    package = pytest.importorskip("pulsar")
    theirs = {member: int(value) for member, value in getattr(package, name).__members__.items()}
    assert {member: int(value) for member, value in getattr(pulsar, name).__members__.items()} == theirs
    assert [str(member) for member in getattr(pulsar, name)] == [f"{name}.{member}" for member in theirs]


@pytest.mark.parametrize("name", ["Client", "Producer", "Consumer", "Reader", "Message", "MessageId"])
def test_every_method_of_the_package_is_there(name):
    package = pytest.importorskip("pulsar")
    theirs = {method for method in vars(getattr(package, name)) if not method.startswith("_")}
    assert theirs <= set(dir(getattr(pulsar, name)))


def test_errors_have_results():
    assert result_of(pulsar.Timeout("x")) is pulsar.Result.Timeout
    assert result_of(pulsar.SubscriptionBusy("x")) is pulsar.Result.ConsumerBusy
    assert result_of(pulsar.CorruptState("x")) is pulsar.Result.UnknownError
    assert issubclass(pulsar.exceptions.Timeout, pulsar.PulsarException)


@pytest.mark.parametrize("url", ["pulsar://localhost:6650", "", "delta:", "delta:   ", "/tmp/x"])
def test_service_urls(url):
    with pytest.raises(pulsar.InvalidUrl, match="delta:<root>"):
        pulsar.Client(url)


@pytest.mark.parametrize(
    "options, error",
    [
        ({"service_url": 5}, ValueError),
        ({"operation_timeout_seconds": "30"}, ValueError),
        ({"logger": "stdout"}, ValueError),
        ({"authentication": object()}, ValueError),
        ({"use_tls": True}, pulsar.InvalidConfiguration),
        ({"tls_trust_certs_file_path": "x"}, pulsar.InvalidConfiguration),
        ({"listener_name": "x"}, pulsar.InvalidConfiguration),
        ({"tls_validate_hostname": True}, pulsar.InvalidConfiguration),
        ({"lease_seconds": 0}, ValueError),
        ({"lease_seconds": "1"}, ValueError),
        ({"lease_seconds": float("nan")}, ValueError),
        ({"lease_seconds": float("inf")}, ValueError),
    ],
)
def test_client_options(service_url, options, error):
    with pytest.raises(error):
        pulsar.Client(**{"service_url": service_url, **options})


def test_a_root_is_made_or_refused(tmp_path):
    pulsar.Client(f"delta:{tmp_path / 'new' / 'root'}").close()
    assert (tmp_path / "new" / "root" / "_bundles").is_dir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for root in ("other", "file"):
        with pytest.raises(pulsar.NotARoot):
            pulsar.Client(f"delta:{tmp_path / root}")
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["file.txt"]


HOSTILE_TOPICS = [
    "../t",
    "a/../../t",
    "persistent://a/b/../c",
    "a b/n/t",
    "a/n\n/t",
    "\t\n",
    "t\udc00",
    "x" * 300,
    "",
    "/",
    "non-persistent://public/default/t",
    "a/b",
    "t\u202e/",
    "..",
]


@pytest.mark.local_disk
@pytest.mark.parametrize("topic", HOSTILE_TOPICS)
def test_hostile_topic_names(lonely_client, topic):
    before = sorted(str(path) for path in lonely_client._layout.root.parent.rglob("*"))
    for call in (
        lonely_client.create_producer,
        lambda name: lonely_client.subscribe(name, "s"),
        lonely_client.get_topic_partitions,
        lambda name: lonely_client.create_reader(name, pulsar.MessageId.earliest),
    ):
        with pytest.raises(pulsar.InvalidTopicName):
            call(topic)
    assert sorted(str(path) for path in lonely_client._layout.root.parent.rglob("*")) == before


def test_names_that_differ_in_case_are_different_topics(lonely_client):
    for name in ("orders", "Orders"):
        lonely_client.create_producer(name).send(name.encode())
    for name in ("orders", "Orders"):
        assert lonely_client.create_reader(name, pulsar.MessageId.earliest).read_next(1000).data() == name.encode()


@pytest.mark.parametrize(
    "options, error",
    [
        ({"producer_name": 5}, ValueError),
        ({"schema": "bytes"}, ValueError),
        ({"batching_enabled": 1}, ValueError),
        ({"max_pending_messages": -1}, ValueError),
        ({"send_timeout_millis": "1"}, ValueError),
        ({"compression_type": 1}, ValueError),
        ({"properties": {"a": 1}}, ValueError),
        ({"message_router": 5}, ValueError),
        ({"message_routing_mode": pulsar.PartitionsRoutingMode.CustomPartition}, ValueError),
        ({"batching_enabled": True, "chunking_enabled": True}, ValueError),
        ({"chunking_enabled": "yes"}, ValueError),
        ({"chunking_enabled": True, "chunk_max_message_size": 0}, ValueError),
        ({"chunking_enabled": True, "chunk_max_message_size": -2}, ValueError),
        ({"chunking_enabled": True, "chunk_max_message_size": "5 MB"}, ValueError),
        ({"access_mode": "Exclusive"}, ValueError),
        ({"encryption_key": "k"}, pulsar.InvalidConfiguration),
        ({"hashing_scheme": "murmur"}, ValueError),
    ],
)
def test_producer_options(lonely_client, options, error):
    with pytest.raises(error):
        lonely_client.create_producer("t", **options)


@pytest.mark.parametrize(
    "options, error",
    [
        ({"subscription_name": 5}, ValueError),
        ({"subscription_name": ""}, pulsar.InvalidConfiguration),
        ({"subscription_name": " "}, pulsar.InvalidConfiguration),
        ({"subscription_name": "x" * 1001}, pulsar.InvalidConfiguration),
        ({"consumer_name": "a\ud800b"}, pulsar.InvalidConfiguration),
        ({"topic": 5}, ValueError),
        ({"topic": []}, pulsar.InvalidConfiguration),
        ({"topic": ["t", "../u"]}, pulsar.InvalidTopicName),
        ({"topic": re.compile("a/t.*")}, pulsar.InvalidTopicName),
        ({"consumer_type": "Shared"}, ValueError),
        ({"receiver_queue_size": -1}, ValueError),
        ({"receiver_queue_size": 0, "topic": ["t", "u"]}, pulsar.InvalidConfiguration),
        ({"unacked_messages_timeout_ms": 9999}, ValueError),
        ({"message_listener": 5}, ValueError),
        ({"properties": {1: "a"}}, ValueError),
        ({"batch_receive_policy": 5}, ValueError),
        ({"dead_letter_policy": 5}, ValueError),
        ({"is_read_compacted": 1}, ValueError),
        ({"is_read_compacted": True, "consumer_type": pulsar.ConsumerType.KeyShared}, pulsar.InvalidConfiguration),
        ({"is_read_compacted": True, "consumer_type": pulsar.ConsumerType.Shared}, pulsar.InvalidConfiguration),
        ({"priority_level": -1}, ValueError),
        ({"crypto_key_reader": object()}, ValueError),
        ({"initial_position": 1}, ValueError),
        ({"negative_ack_redelivery_backoff": 5}, ValueError),
        ({"ack_timeout_redelivery_backoff": 5}, ValueError),
        ({"ack_group_time_ms": -1}, ValueError),
        ({"max_ack_group_size": "1"}, ValueError),
        ({"ack_receipt_enabled": 1}, ValueError),
        ({"dead_letter_policy": pulsar.ConsumerDeadLetterPolicy(1, "../t")}, pulsar.InvalidTopicName),
        (
            {"dead_letter_policy": pulsar.ConsumerDeadLetterPolicy(1, retry_letter_topic="a b/c")},
            pulsar.InvalidTopicName,
        ),
        (
            {"dead_letter_policy": pulsar.ConsumerDeadLetterPolicy(1, initial_subscription_name=" ")},
            pulsar.InvalidConfiguration,
        ),
        ({"retry_enable": True, "receiver_queue_size": 0}, pulsar.InvalidConfiguration),
    ],
)
def test_consumer_options(lonely_client, options, error):
    with pytest.raises(error):
        lonely_client.subscribe(**{"topic": "t", "subscription_name": "s", **options})


def test_what_a_consumer_tells_the_broker(client, broker):
    policy = pulsar.ConsumerKeySharedPolicy(pulsar.KeySharedMode.Sticky, sticky_ranges=[(0, 9), (20, 29)])
    client.subscribe(
        "t",
        "s",
        consumer_type=pulsar.ConsumerType.KeyShared,
        consumer_name="me",
        properties={"a": "b"},
        priority_level=2,
        unacked_messages_timeout_ms=10_000,
        key_shared_policy=policy,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(3, "dead"),
    )
    (asked,) = broker.asked("subscribe")
    assert (asked.topic, asked.partition, asked.subscription) == ("persistent://public/default/t", -1, "s")
    properties = dict(asked.properties)
    assert int(properties.pop("valid_until_ms")) > time.time() * 1000
    assert properties == {
        "consumer_name": "me",
        "subscription_type": "KeyShared",
        "priority_level": "2",
        "initial_position": "Latest",
        "lease_ms": "30000",
        "max_pending_chunked_message": "10",
        "auto_ack_oldest_chunked_message_on_queue_full": "false",
        "expire_time_of_incomplete_chunked_message_ms": "60000",
        "property.a": "b",
        "key_shared_mode": "STICKY",
        "allow_out_of_order_delivery": "false",
        "hash_ranges": "0-9,20-29",
        "max_redeliver_count": "3",
        "dead_letter_topic": "dead",
        "initial_subscription_name": "",
    }


@pytest.mark.parametrize("count", [0, -1, None, True, "3"])
def test_dead_letter_policies(count):
    with pytest.raises(ValueError):
        pulsar.ConsumerDeadLetterPolicy(count)
    with pytest.raises(ValueError):
        pulsar.ConsumerDeadLetterPolicy(1, dead_letter_topic=5)


STICKY_RANGES = [
    (None, ValueError, "you must also provide sticky_ranges"),
    ([], ValueError, "must not be empty"),
    ([(0, 65536)], ValueError, r"must be \[0, 65535\]"),
    ([(-1, 5)], ValueError, r"must be \[0, 65535\]"),
    ([(0, 9), (9, 20)], ValueError, "with overlap"),
    ([(100, 110), (0, 1000), (50, 60)], ValueError, "with overlap"),
    ([("a", "b")], TypeError, "is not a pair of int"),
    ([(1, 2, 3)], TypeError, "is not a pair of int"),
    ([(0.0, 1.0)], TypeError, "is not a pair of int"),
    ([5], TypeError, "is not a pair of int"),
    ("0-9", TypeError, "list of pairs of int expected, not str"),
    (5, TypeError, "list of pairs of int expected, not int"),
    (iter([(0, 1)]), TypeError, "list of pairs of int expected"),
]


@pytest.mark.parametrize("ranges, error, words", STICKY_RANGES)
@pytest.mark.parametrize("module", [pulsar, "pulsar"])
def test_sticky_ranges_are_refused_as_the_package_refuses_them(module, ranges, error, words):
    module = pytest.importorskip(module) if isinstance(module, str) else module
    with pytest.raises(error) as refused:
        module.ConsumerKeySharedPolicy(module.KeySharedMode.Sticky, sticky_ranges=ranges)
    if module is pulsar:
        assert re.search(words, str(refused.value))
        return
    assert error is TypeError or re.search(words, str(refused.value)), "ours say what theirs say, and more"


@pytest.mark.parametrize("ranges", [[(0, 65535)], ((5, 1),), [(0, 9), (0, 9)], [(0, 9), (5, 3)], {(True, 7)}, [[1, 2]]])
@pytest.mark.parametrize("module", [pulsar, "pulsar"])
@pytest.mark.parametrize("mode", ["Sticky", "AutoSplit"])
def test_key_shared_policies_say_what_they_were_given(module, mode, ranges):
    module = pytest.importorskip(module) if isinstance(module, str) else module
    mode = getattr(module.KeySharedMode, mode)
    policy = module.ConsumerKeySharedPolicy(mode, None, ranges)
    assert (policy.key_shared_mode, policy.allow_out_of_order_delivery) == (mode, False)
    assert policy.sticky_ranges == [tuple(map(int, pair)) for pair in ranges]
    assert module.ConsumerKeySharedPolicy(allow_out_of_order_delivery=1).allow_out_of_order_delivery is True
    for wrong in ("yes", [True], object()):
        with pytest.raises(TypeError):
            module.ConsumerKeySharedPolicy(mode, wrong, ranges)
    for wrong in ("Sticky", 0, None):
        with pytest.raises(TypeError):
            module.ConsumerKeySharedPolicy(wrong, False, ranges)


def test_policies():
    with pytest.raises(ValueError):
        pulsar.ConsumerBatchReceivePolicy(-1, -1, -1)


def test_readers(lonely_client):
    for wrong in (None, "earliest", 5):
        with pytest.raises(ValueError):
            lonely_client.create_reader("t", wrong)
    with pytest.raises(ValueError):
        lonely_client.create_reader("t", pulsar.MessageId.earliest, is_read_compacted="yes")


def test_errors_have_the_names_of_the_package():
    package = pytest.importorskip("pulsar")
    names = [name for name, value in vars(package.exceptions).items() if isinstance(value, type)]
    assert len(names) > 40
    for name in names:
        error = getattr(pulsar, name)
        assert getattr(pulsar.exceptions, name) is error
        assert issubclass(error, pulsar.PulsarException)


class _Foreign:
    """Stands for one of the ``pulsar`` package's, known by its module."""

    def __init__(self, name: str, module: str):
        self.__class__ = type(name, (), {"__module__": module, "__str__": lambda self: f"{name}.Shared"})


@pytest.mark.parametrize("module", ["_pulsar", "pulsar", "pulsar.schema.schema"])
@pytest.mark.parametrize(
    "name, use",
    [
        ("ConsumerType", lambda client, given: client.subscribe("t", "s", consumer_type=given)),
        ("InitialPosition", lambda client, given: client.subscribe("t", "s", initial_position=given)),
        ("RegexSubscriptionMode", lambda client, given: client.subscribe("t", "s", regex_subscription_mode=given)),
        ("StringSchema", lambda client, given: client.subscribe("t", "s", schema=given)),
        ("ConsumerDeadLetterPolicy", lambda client, given: client.subscribe("t", "s", dead_letter_policy=given)),
        ("ConsumerKeySharedPolicy", lambda client, given: client.subscribe("t", "s", key_shared_policy=given)),
        ("ConsumerBatchReceivePolicy", lambda client, given: client.subscribe("t", "s", batch_receive_policy=given)),
        ("CompressionType", lambda client, given: client.create_producer("t", compression_type=given)),
        ("BatchingType", lambda client, given: client.create_producer("t", batching_type=given)),
        ("PartitionsRoutingMode", lambda client, given: client.create_producer("t", message_routing_mode=given)),
        ("ProducerAccessMode", lambda client, given: client.create_producer("t", access_mode=given)),
        ("MessageId", lambda client, given: client.create_reader("t", given)),
        ("MessageId", lambda client, given: client.create_reader("t", pulsar.MessageId.earliest).seek(given)),
        ("LoggerLevel", lambda client, given: pulsar.ConsoleLogger(given)),
        ("LoggerLevel", lambda client, given: pulsar.FileLogger(given, "x")),
        ("KeySharedMode", lambda client, given: pulsar.ConsumerKeySharedPolicy(given)),  # as there, a TypeError
        ("ConsoleLogger", lambda client, given: pulsar.Client(f"delta:{client._layout.root}", logger=given)),
    ],
)
def test_what_is_of_the_pulsar_package_says_which_import_to_change(lonely_client, module, name, use):
    with pytest.raises(
        TypeError if name == "KeySharedMode" else ValueError,
        match=f"{name} of the pulsar package .*import pulsar_spark as pulsar.*from pulsar_spark import {name}",
    ):
        use(lonely_client, _Foreign(name, module))


def test_messages_and_ids_of_the_pulsar_package_say_it_too(client, broker):
    consumer = client.subscribe("t", "s")
    for name in ("Message", "MessageId"):
        for call in (
            consumer.acknowledge,
            consumer.negative_acknowledge,
            consumer.acknowledge_cumulative,
            consumer.seek,
        ):
            with pytest.raises(ValueError, match="import pulsar_spark as pulsar"):
                call(_Foreign(name, "pulsar"))


LONG = ["x" * 201, "X" * 200, "é" * 100, "a/b/" + "Ä" * 60, "Q" * 84 + "x" * 100, "public/" + "N" * 90 + "/t"]
LONG_BESIDE = [
    pytest.param(
        "Q" * 84,
        marks=pytest.mark.skipif(
            not hasattr(Layout, "check_new_topic"), reason="what lies beside a table has no bound yet"
        ),
    )
]


@pytest.mark.local_disk
@pytest.mark.parametrize("topic", LONG + LONG_BESIDE)
def test_names_that_are_too_long_for_their_files_are_refused_by_name(lonely_client, topic):
    admin = Admin(f"delta:{lonely_client._layout.root}", timeout_seconds=1)
    before = sorted(str(path) for path in lonely_client._layout.root.rglob("*") if "clients" not in path.parts)
    for call in (
        lonely_client.create_producer,
        lambda name: lonely_client.subscribe(name, "s"),
        lambda name: lonely_client.create_reader(name, pulsar.MessageId.earliest),
        admin.create_topic,
        admin.stats,
        admin.describe,
        lambda name: admin.create_partitioned_topic(name, 2),
        lambda name: admin.create_subscription(name, "s"),
    ):
        with pytest.raises(
            (pulsar.InvalidTopicName, pulsar.TopicNotFound) if topic == "Q" * 84 else pulsar.InvalidTopicName
        ):
            call(topic)
    assert sorted(str(path) for path in lonely_client._layout.root.rglob("*") if "clients" not in path.parts) == before
