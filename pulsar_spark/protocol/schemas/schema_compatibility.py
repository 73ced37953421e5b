"""Which schemas a topic accepts beside those it keeps.

Rules: Pulsar's ``SchemaCompatibilityStrategy``, ``SchemaRegistryServiceImpl`` (putSchemaIfAbsent,
checkConsumerCompatibility) and PIP-44. A consumer's schema must read the latest one, or with BACKWARD_TRANSITIVE and
FULL_TRANSITIVE fit all. Avro's rules decide on AVRO and JSON; PROTOBUF_NATIVE needs the same message; other types
always fit. The type may change only with ALWAYS_COMPATIBLE.

Ours: with ALWAYS_INCOMPATIBLE a consumer may use a schema that the topic keeps."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache

from pulsar_spark.protocol.policies.policies import (
    ALLOW_AUTO_UPDATE_SCHEMA,
    SCHEMA_COMPATIBILITY_STRATEGY,
    SCHEMA_VALIDATION_ENFORCED,
    policy_text,
)
from pulsar_spark.protocol.schemas.avro_resolution import (
    AvroType,
    InvalidDefinition,
    canonical,
    parse_definition,
    unreadable,
)
from pulsar_spark.protocol.schemas.schema_info import SchemaInfo, SchemaType

_OF_AVRO = (SchemaType.AVRO, SchemaType.JSON)


_ALWAYS, _NEVER = "ALWAYS_COMPATIBLE", "ALWAYS_INCOMPATIBLE"
_TRANSITIVE = "_TRANSITIVE"
_CONSUMERS_WITH_ALL = ("BACKWARD_TRANSITIVE", "FULL_TRANSITIVE", _NEVER)


def strategy_of(policies: Mapping[tuple[str, str], str], topic: str) -> str:
    """The strategy of a topic, by its full name; *policies* are texts by owner and name.

    >>> topic, name = "persistent://public/default/t", SCHEMA_COMPATIBILITY_STRATEGY
    >>> strategy_of({(topic, name): "UNDEFINED", ("public/default", name): "FORWARD"}, topic), strategy_of({}, topic)
    ('FORWARD', 'FULL')
    """
    stated_policies = {key: text for key, text in policies.items() if text != "UNDEFINED"}
    return policy_text(stated_policies, topic, SCHEMA_COMPATIBILITY_STRATEGY)


def takes_new_schemas(policies: Mapping[tuple[str, str], str], topic: str) -> bool:
    """Whether clients may add schemas to the topic (is_allow_auto_update_schema)."""
    return policy_text(policies, topic, ALLOW_AUTO_UPDATE_SCHEMA) != "0"


def wants_schemas(policies: Mapping[tuple[str, str], str], topic: str) -> bool:
    return policy_text(policies, topic, SCHEMA_VALIDATION_ENFORCED) != "0"


def invalid(info: SchemaInfo) -> str | None:
    try:
        _compared(info)
    except InvalidDefinition as wrong:
        return str(wrong)
    return None


def is_same_schema(one: SchemaInfo, other: SchemaInfo) -> bool:
    """Whether two schemas are one version: same type and meaning.

    >>> def avro(text): return SchemaInfo(SchemaType.AVRO, "AVRO", text)
    >>> is_same_schema(avro('{"type": "int"}'), avro('"int"')), is_same_schema(avro('"int"'), avro('"long"'))
    (True, False)
    """
    if one.schema_type() is not other.schema_type():
        return False
    return one.schema() == other.schema() or _compared(one) == _compared(other)


def refusal(kept: Sequence[SchemaInfo], new: SchemaInfo, strategy: str) -> str | None:
    """Why *new* does not fit the schemas *kept* by a topic, oldest first; None if it does.

    >>> def json(text): return SchemaInfo(SchemaType.JSON, "JSON", text)
    >>> refusal([json('"int"')], json('"long"'), "FULL")
    'the existing schema cannot read its messages: long was written, int is expected'
    """
    if strategy == _ALWAYS:
        return None
    compared = kept if strategy.endswith(_TRANSITIVE) else kept[-1:]
    return next((why for old in reversed(compared) if (why := _misfit(old, new, strategy))), None)


def consumer_refusal(kept: Sequence[SchemaInfo], new: SchemaInfo, strategy: str) -> str | None:
    """Why a consumer may not read a topic that keeps these schemas with *new*; None if it may."""
    if strategy == _ALWAYS:
        return None
    if strategy not in _CONSUMERS_WITH_ALL:
        return refusal(kept, new, "BACKWARD")
    if strategy == _NEVER and any(is_same_schema(old, new) for old in kept):
        return None
    return refusal(kept, new, strategy)


def _misfit(old: SchemaInfo, new: SchemaInfo, strategy: str) -> str | None:
    if old.schema_type() is not new.schema_type():
        return f"the topic's schema is of type {old.schema_type().name}, this one of type {new.schema_type().name}"
    if old.schema() == new.schema():
        return None
    if strategy == _NEVER:
        return "the topic's strategy ALWAYS_INCOMPATIBLE allows no further schema"
    before, after = _compared(old), _compared(new)
    if new.schema_type() is SchemaType.PROTOBUF_NATIVE:
        return None if before == after else f"its message is {after!r}, the topic's is {before!r}"
    if new.schema_type() not in _OF_AVRO:
        return None
    old_type, new_type = _parsed(old.schema()), _parsed(new.schema())
    if not strategy.startswith("FORWARD") and (why := unreadable(old_type, new_type)):
        return f"it cannot read messages of the existing schema: {why}"
    if not strategy.startswith("BACKWARD") and (why := unreadable(new_type, old_type)):
        return f"the existing schema cannot read its messages: {why}"
    return None


@lru_cache(maxsize=1000)
def _parsed(definition: str) -> AvroType:
    return parse_definition(definition)


def _compared(info: SchemaInfo) -> object:
    """The part of a definition that is compared; :class:`InvalidDefinition` without one."""
    if info.schema_type() in _OF_AVRO:
        return canonical(_parsed(info.schema()))
    if info.schema_type() is SchemaType.PROTOBUF_NATIVE:
        try:
            return json.loads(info.schema())["rootMessageTypeName"]
        except (ValueError, KeyError, TypeError, RecursionError) as wrong:
            raise InvalidDefinition(f"the definition has no rootMessageTypeName: {wrong!r}") from wrong
    return info.schema()
