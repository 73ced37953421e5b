"""What a type checker makes of programs as users write them, and what it has to go by."""

import inspect
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import pulsar_spark as pulsar
import pulsar_spark.asyncio
import pulsar_spark.schema
from pulsar_spark import frames
from pulsar_spark.admin import Admin
from pulsar_spark.broker.runner import Broker
from pulsar_spark.client.model import enums
from pulsar_spark.frames.consuming import consumer
from pulsar_spark.frames.consuming.membership import INITIAL_POSITIONS
from pulsar_spark.payloads.compression import COMPRESSIONS
from pulsar_spark.protocol.subscriptions.membership import SUBSCRIPTION_TYPES
from pulsar_spark.protocol.topics import routing

HERE = Path(__file__).parent
PROGRAMS = sorted(path for path in HERE.glob("*.py") if path.name not in ("__init__.py", Path(__file__).name))


@pytest.mark.long
def test_programs_pass_mypy_as_strict_as_it_can_be_and_mistakes_are_found(tmp_path):
    """Of ``wrong.py`` each line is one; an ignored error that is none is an error by itself."""
    pytest.importorskip("mypy")
    asked = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", tmp_path, *PROGRAMS]
    done = subprocess.run(asked, cwd=HERE.parents[1], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_says_that_it_is_typed():
    assert (Path(pulsar.__file__).parent / "py.typed").is_file() and len(PROGRAMS) >= 8


def names_of(literal) -> set[str]:
    """The texts that an alias of an enumeration and its names allows."""
    (names,) = [each for each in typing.get_args(literal) if typing.get_origin(each) is typing.Literal]
    return set(typing.get_args(names))


def test_the_names_that_are_typed_are_those_that_are_taken():
    assert names_of(enums.SubscriptionType) == {*SUBSCRIPTION_TYPES, "Key_Shared"}
    assert names_of(enums.Position) == {*INITIAL_POSITIONS}
    assert names_of(enums.Compression) == {"NONE", *COMPRESSIONS}
    assert names_of(enums.ProducerCryptoAction) == {*enums.ProducerCryptoFailureAction.__members__}
    assert names_of(enums.ConsumerCryptoAction) == {*enums.ConsumerCryptoFailureAction.__members__}
    assert names_of(routing.Scheme) == {*routing.HashingScheme.__members__}
    assert set(typing.get_args(inspect.signature(frames.consume).parameters["on_error"].annotation)) == {
        *consumer.ON_ERROR
    }


def public_functions():
    """Every function and method that users call, with its name."""
    owners = [Admin, Broker]
    for module in (pulsar, pulsar.asyncio, pulsar.schema, frames):
        owners += [getattr(module, name) for name in module.__all__]
    for owner in owners:
        if inspect.isfunction(owner):
            yield owner.__qualname__, owner
        elif inspect.isclass(owner):
            for name, function in inspect.getmembers(owner, inspect.isfunction):
                is_ours = function.__module__.startswith("pulsar_spark")
                if is_ours and (name in ("__init__", "__call__", "__enter__") or not name.startswith("_")):
                    yield f"{owner.__name__}.{name}", function


def test_public_functions_say_their_types():
    lacking = {}
    for name, function in public_functions():
        signature = inspect.signature(function)
        named = [
            each
            for each in signature.parameters.values()
            if each.name not in ("self", "cls") and each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
        ]
        untyped = [each.name for each in named if each.annotation is each.empty]
        if untyped or signature.return_annotation is signature.empty and not (name.endswith("__init__") and named):
            lacking[name] = untyped
    assert lacking == {}
