"""Every public name of the ``pulsar`` package (release 3.13), with its arguments and their defaults, is one here.

``package_names.txt`` has a line for each, made by ``inspect`` from the package and each of its modules: a class, a
class that is an error, a method or function with its arguments, an attribute, a member of an enumeration with its
number. Left out are names of other libraries that the package's modules import, how to make what only a client makes,
and ``__about__``.
"""

import importlib
import inspect
import re
from contextlib import closing
from pathlib import Path

import pytest

import pulsar_spark as pulsar
from pulsar_spark.client import compat
from tests.support.judging import failures

LINES = Path(__file__).with_name("package_names.txt").read_text().splitlines()
STARS = {inspect.Parameter.VAR_KEYWORD: "**", inspect.Parameter.VAR_POSITIONAL: "*"}
OTHER_DEFAULTS = {"batch_index_ack_enabled"}
"""On here: what was acknowledged of a batch does not come again."""


MADE = {
    "ConsumerDeadLetterPolicy": pulsar.ConsumerDeadLetterPolicy(1),
    "ConsumerKeySharedPolicy": pulsar.ConsumerKeySharedPolicy(),
    "ConsumerBatchReceivePolicy": pulsar.ConsumerBatchReceivePolicy(1, 1, 1),
}
"""Classes of which each object has its attributes by itself."""
MODULES = sorted(
    {
        "asyncio",
        "exceptions",
        "functions.context",
        "functions.function",
        "functions.serde",
        "schema",
        "schema.definition",
        "schema.schema",
        "schema.schema_avro",
        "schema.schema_protobuf",
        "tableview",
    },
    key=len,
    reverse=True,
)


def found(path: str):
    """What a dotted name of the table is here."""
    for module in MODULES:
        if path.startswith(f"{module}."):
            return found_in(importlib.import_module(f"pulsar_spark.{module}"), path.removeprefix(f"{module}."))
    return found_in(pulsar, path)


def found_in(owner: object, path: str):
    *owners, last = path.split(".")
    for name in owners:
        owner = getattr(owner, name)
    return getattr(MADE.get(owners[0], owner) if owners and not hasattr(owner, last) else owner, last)


def arguments(function) -> dict[str, str]:
    """The arguments as the table writes them, without ``self``."""
    parameters = inspect.signature(function).parameters.values()
    return {_written(each): each for each in parameters if each.name not in ("self", "cls")}


def _written(parameter: inspect.Parameter) -> str:
    default = parameter.default
    if parameter.kind in STARS:
        return STARS[parameter.kind] + parameter.name
    if default is parameter.empty:
        return parameter.name
    if isinstance(default, pulsar.schema.Schema):
        return f"{parameter.name}={type(default).__name__}"
    return f"{parameter.name}={default}" if hasattr(default, "name") else f"{parameter.name}={default!r}"


def test_every_name_of_the_package_is_here():
    assert failures(_is_as_in_the_package, LINES) == {}


def _is_as_in_the_package(line: str) -> None:
    path, kind = re.fullmatch(r"([\w.]+)( error|\(.*\)| = \d+)?", line).groups()
    here = found(path)
    if kind == " error":
        assert issubclass(here, pulsar.PulsarException)
    elif kind and kind.startswith(" = "):
        assert here.value == int(here) == int(kind.removeprefix(" = "))
    elif kind:
        asked = [each for each in kind[1:-1].split(", ") if each]
        given = arguments(here)
        assert list(given)[: len(asked)] == [_ours(each) for each in asked]
        own = list(given.values())[len(asked) :]
        assert all(each.default is not each.empty or each.kind in STARS for each in own)


def _ours(argument: str) -> str:
    return argument.replace("=False", "=True") if argument.partition("=")[0] in OTHER_DEFAULTS else argument


@pytest.mark.parametrize(
    "make, name, instead",
    [
        (lambda: pulsar.Authentication("l", "p"), "Authentication", "leave it out of pulsar_spark.Client"),
        (lambda: pulsar.AuthenticationTLS("c", "k"), "AuthenticationTLS", "permissions of the file system"),
        (lambda: pulsar.AuthenticationToken(lambda: "t"), "AuthenticationToken", "leave it out"),
        (lambda: pulsar.AuthenticationBasic("u", "p"), "AuthenticationBasic", "leave it out"),
        (lambda: pulsar.AuthenticationAthenz("{}"), "AuthenticationAthenz", "leave it out"),
        (lambda: pulsar.AuthenticationOauth2("{}"), "AuthenticationOauth2", "leave it out"),
        (lambda: pulsar.AutoClusterFailover(None, []), "AutoClusterFailover", "give its URL 'delta:<root>'"),
        (lambda: pulsar.ServiceInfoProvider(), "ServiceInfoProvider", "one folder"),
        (lambda: pulsar.MessageBatch().with_message_id(None), "MessageBatch.with_message_id", "one by one"),
        (lambda: pulsar.MessageBatch().parse_from(b"", 1), "MessageBatch.parse_from", "rows of its topic"),
        (lambda: pulsar.Function().process("a", None), "Function.process", "pulsar_spark.frames.consume"),
        (lambda: pulsar.Context().get_message_id(), "Context.get_message_id", "use a consumer"),
        (lambda: pulsar.Context().publish("t", "a"), "Context.publish", "use a consumer"),
        (lambda: pulsar.SerDe().serialize("a"), "SerDe.serialize", "pulsar_spark.schema"),
        (lambda: pulsar.PickleSerDe().deserialize(b""), "PickleSerDe.deserialize", "a SerDe of your own"),
    ],
)
def test_what_is_not_served_raises_by_name_and_says_what_to_do(make, name, instead):
    with pytest.raises(pulsar.OperationNotSupported, match=rf"^(Pulsar error: )?{name}: .*{instead}"):
        make()


def test_no_name_can_be_made_and_does_nothing():
    """Each method of the module raises, but for a served address."""
    for cls in vars(compat).values():
        if inspect.isclass(cls) and cls.__module__ == compat.__name__ and cls is not pulsar.ServiceInfo:
            for name, method in vars(cls).items():
                assert not inspect.isfunction(method) or hasattr(method, "__wrapped__"), f"{cls.__name__}.{name}"


def test_credentials_of_a_class_of_ones_own_are_refused(service_url):
    own = type("Own", (pulsar.Authentication,), {"__init__": lambda self: None})()
    for use in (lambda: pulsar.Client(service_url, own), lambda: pulsar.Client(service_url, use_tls=True)):
        with pytest.raises(pulsar.InvalidConfiguration, match="file system"):
            use()


def test_a_client_is_made_from_the_address_of_another(lonely_client):
    info = lonely_client.get_service_info()
    assert not info.use_tls and pulsar.ServiceInfo("pulsar+ssl://h").use_tls
    with closing(pulsar.Client(info)) as client:
        assert client.get_service_info().service_url == info.service_url
    with pytest.raises(pulsar.InvalidConfiguration, match="tls_trust_certs_file_path='c' cannot be used"):
        pulsar.Client(pulsar.ServiceInfo(info.service_url, tls_trust_certs_file_path="c"))


def test_what_the_package_s_policies_give_is_there():
    policy = pulsar.ConsumerDeadLetterPolicy(3, "d", "s").policy()
    assert (policy.getMaxRedeliverCount(), policy.getDeadLetterTopic(), policy.getInitialSubscriptionName()) == (
        3,
        "d",
        "s",
    )
    built = pulsar.DeadLetterPolicyBuilder().deadLetterTopic("d").initialSubscriptionName("s").build()
    assert (built.getMaxRedeliverCount(), built.dead_letter_topic, built.initial_subscription_name) == (
        2147483647,
        "d",
        "s",
    )
    assert pulsar.DeadLetterPolicyBuilder().maxRedeliverCount(2).build().max_redeliver_count == 2
    received = pulsar.ConsumerBatchReceivePolicy(1, 2, 3).policy()
    assert isinstance(received, pulsar.BatchReceivePolicy)
    assert (received.getMaxNumMessages(), received.getMaxNumBytes(), received.getTimeoutMs()) == (1, 2, 3)
    shared = pulsar.ConsumerKeySharedPolicy(pulsar.KeySharedMode.Sticky, True, [(0, 5)]).policy()
    assert isinstance(shared, pulsar.KeySharedPolicy)
    assert (shared.get_key_shared_mode(), shared.is_allow_out_of_order_delivery(), shared.get_sticky_ranges()) == (
        pulsar.KeySharedMode.Sticky,
        True,
        [(0, 5)],
    )
    own = pulsar.KeySharedPolicy()
    assert own.get_sticky_ranges() == [] and own.get_key_shared_mode() is pulsar.KeySharedMode.AutoSplit
    assert own.set_sticky_ranges([(1, 2)]) is own and own.get_sticky_ranges() == [(1, 2)]


@pytest.mark.parametrize(
    "make",
    [
        lambda: pulsar.DeadLetterPolicyBuilder().maxRedeliverCount(0).build(),
        lambda: pulsar.KeySharedPolicy().set_sticky_ranges([]),
        lambda: pulsar.ConsumerKeySharedPolicy(1),  # which is Sticky, and lacks its ranges
        lambda: pulsar.KeySharedPolicy().set_sticky_ranges([(0, 70000)]),
        lambda: pulsar.BatchReceivePolicy(0, 0, 0),
        lambda: pulsar.ServiceInfo(None),
        lambda: pulsar.ServiceInfo("x", authentication="t"),
        lambda: pulsar.MessageId.wrap("(1,2,3,4)"),
        lambda: pulsar.Client("no address"),
        lambda: pulsar.Client(5),
        lambda: pulsar.Client("delta:r", authentication="t"),
    ],
)
def test_what_is_a_value_error_in_the_package_is_one_here(make):
    with pytest.raises(ValueError):
        make()


def test_a_timeout_reads_as_the_package_s(client):
    with pytest.raises(pulsar.Timeout) as timeout:
        client.subscribe("t", "s").receive(10)
    assert str(timeout.value).startswith("Pulsar error: TimeOut")


def test_a_message_id_that_is_wrapped_is_itself():
    message_id = pulsar.MessageId(1, 2, 3, 4)
    assert pulsar.MessageId.wrap(message_id) == message_id


def test_a_client_says_its_address(lonely_client, service_url):
    assert lonely_client.get_service_info().service_url == service_url


def test_what_is_closed_is_not_closed_again(client):
    for handle in (
        client.create_producer("t"),
        client.subscribe("t", "s"),
        client.create_reader("t", pulsar.MessageId.earliest),
    ):
        handle.close()
        with pytest.raises(pulsar.AlreadyClosed):
            handle.close()
    client.close()
    with pytest.raises(pulsar.AlreadyClosed):
        client.close()


MADE_BY_THE_CLIENT = {"Producer", "Consumer", "Reader", "TableView", "Message", "EncryptionContext"}
NEVER_CALLED = {"Context", "Function", "IdentitySerDe", "PickleSerDe", "SerDe"}
PUBLIC = [importlib.import_module(f"pulsar_spark{name}") for name in ("", ".asyncio", ".schema")]


def _public_classes():
    for module in PUBLIC:
        for name in module.__all__:
            owner = getattr(module, name)
            if inspect.isclass(owner) and not issubclass(owner, Exception) and name not in NEVER_CALLED:
                yield owner


def _description(cls: type, method: str, function) -> str:
    """What is said of the arguments of a *method*: by it, or by the one that it takes the place of, or by the class; of
    one of asyncio's also by the client's own, where it names that."""
    ancestors = [each for each in cls.__mro__ if each.__module__.startswith("pulsar_spark")]
    if method == "__init__":
        texts = [each.__doc__ for each in ancestors]
    else:
        texts = [getattr(vars(each)[method], "__doc__", None) for each in ancestors if method in vars(each)]
    if "for ``pulsar_spark.Client" in (function.__doc__ or cls.__doc__):
        owner = pulsar.Client if method == "__init__" else getattr(pulsar.Client, method)
        texts.append(owner.__doc__)
    return " ".join(filter(None, texts))


def test_every_class_and_argument_is_described():
    assert failures(_is_described, _public_classes(), lambda cls: f"{cls.__module__}.{cls.__name__}") == {}


def _is_described(cls: type) -> None:
    assert cls.__doc__
    for method, function in inspect.getmembers(cls, inspect.isroutine):
        is_own = (getattr(function, "__module__", None) or "").startswith("pulsar_spark")
        if not is_own or method.startswith("_") and method != "__init__":
            continue
        if method == "__init__" and cls.__name__ in MADE_BY_THE_CLIENT:
            continue
        text = _description(cls, method, function)
        assert text or not method.startswith("get"), method
        for argument, given in inspect.signature(function).parameters.items():
            if argument not in ("self", "cls") and given.kind not in (given.VAR_POSITIONAL, given.VAR_KEYWORD):
                assert re.search(rf"(``|\*){argument}\b", text), f"{method}: {argument}"


def _public_functions():
    for module in PUBLIC:
        for name in module.__all__:
            owner = getattr(module, name)
            if not inspect.isclass(owner):
                if inspect.isfunction(owner) and not name.startswith("_"):
                    yield f"{module.__name__}.{name}", owner
                continue
            for method, function in inspect.getmembers(owner, inspect.isfunction):
                is_own = function.__module__.startswith("pulsar_spark")
                if is_own and (method == "__init__" or not method.startswith("_")):
                    yield f"{module.__name__}.{name}.{method}", function


def test_every_argument_and_result_is_annotated():
    assert failures(_is_annotated, _public_functions(), lambda public: public[0]) == {}


def _is_annotated(public: tuple[str, object]) -> None:
    name, function = public
    signature = inspect.signature(function)
    given = [each for each in signature.parameters.values() if each.name not in ("self", "cls")]
    assert [each.name for each in given if each.annotation is each.empty] == []
    assert name.endswith("__init__") or signature.return_annotation is not signature.empty


@pytest.mark.parametrize("name", ["subscribe", "create_producer", "create_reader"])
def test_the_code_of_what_makes_something_names_its_arguments(name):
    """By which callers know whether options of Java's client are there."""
    method = getattr(pulsar.Client, name)
    assert set(inspect.signature(method).parameters) <= set(method.__code__.co_varnames)
