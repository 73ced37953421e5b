"""Apache Pulsar's broker semantics on tables; ``import pulsar_spark as pulsar`` gives a script the client it knows.

Modules that need Arrow are imported on first use, so that the command line starts quickly.
"""

import importlib
from typing import TYPE_CHECKING

from pulsar_spark import exceptions
from pulsar_spark.client.model.enums import (
    BatchingType,
    CompressionType,
    ConsumerCryptoFailureAction,
    ConsumerType,
    InitialPosition,
    KeySharedMode,
    LoggerLevel,
    PartitionsRoutingMode,
    ProducerAccessMode,
    ProducerCryptoFailureAction,
    RegexSubscriptionMode,
    Result,
)
from pulsar_spark.exceptions import *  # noqa: F403
from pulsar_spark.protocol.topics.message_id import MessageId

if TYPE_CHECKING:
    from pulsar_spark import functions, schema, tableview
    from pulsar_spark.client.client import Client
    from pulsar_spark.client.compat import (
        Authentication,
        AuthenticationAthenz,
        AuthenticationBasic,
        AuthenticationOauth2,
        AuthenticationTLS,
        AuthenticationToken,
        AutoClusterFailover,
        Context,
        Function,
        MessageBatch,
        PickleSerDe,
        SerDe,
        ServiceInfo,
        ServiceInfoProvider,
    )
    from pulsar_spark.client.model.loggers import ConsoleLogger, FileLogger
    from pulsar_spark.client.model.message import Message
    from pulsar_spark.client.model.policies import (
        BatchReceivePolicy,
        ConsumerBatchReceivePolicy,
        ConsumerDeadLetterPolicy,
        ConsumerKeySharedPolicy,
        DeadLetterPolicyBuilder,
        KeySharedPolicy,
    )
    from pulsar_spark.client.readers.reader import Reader
    from pulsar_spark.client.readers.table_view import TableView
    from pulsar_spark.client.schema.payloads import EncryptionContext
    from pulsar_spark.client.sending.producer import Producer
    from pulsar_spark.client.subscribing.consumer import Consumer
    from pulsar_spark.functions.serde import IdentitySerDe
    from pulsar_spark.payloads.encryption import EncryptionKey
    from pulsar_spark.payloads.keys import CryptoKeyReader, EncryptionKeyInfo
    from pulsar_spark.protocol.redelivery.redelivery import MultiplierRedeliveryBackoff
    from pulsar_spark.protocol.topics.routing import HashingScheme, partition_for_key
    from pulsar_spark.schema import BytesSchema

__version__ = "0.1.0"

__all__ = [
    "Authentication",
    "AuthenticationAthenz",
    "AuthenticationBasic",
    "AuthenticationOauth2",
    "AuthenticationTLS",
    "AuthenticationToken",
    "AutoClusterFailover",
    "BatchReceivePolicy",
    "BatchingType",
    "BytesSchema",
    "Client",
    "CompressionType",
    "ConsoleLogger",
    "Consumer",
    "ConsumerBatchReceivePolicy",
    "ConsumerCryptoFailureAction",
    "ConsumerDeadLetterPolicy",
    "ConsumerKeySharedPolicy",
    "ConsumerType",
    "Context",
    "CryptoKeyReader",
    "DeadLetterPolicyBuilder",
    "EncryptionContext",
    "EncryptionKey",
    "EncryptionKeyInfo",
    "FileLogger",
    "Function",
    "HashingScheme",
    "IdentitySerDe",
    "InitialPosition",
    "KeySharedMode",
    "KeySharedPolicy",
    "LoggerLevel",
    "Message",
    "MessageBatch",
    "MessageId",
    "MultiplierRedeliveryBackoff",
    "PartitionsRoutingMode",
    "PickleSerDe",
    "Producer",
    "ProducerAccessMode",
    "ProducerCryptoFailureAction",
    "Reader",
    "RegexSubscriptionMode",
    "Result",
    "SerDe",
    "ServiceInfo",
    "ServiceInfoProvider",
    "TableView",
    "__version__",
    "exceptions",
    "partition_for_key",
    "schema",
]
__all__ += exceptions.__all__

if not TYPE_CHECKING:  # else checkers would take any name for one of the package's
    _NAMES = {
        "client.client": "Client",
        "client.compat": (
            "Authentication AuthenticationAthenz AuthenticationBasic AuthenticationOauth2 AuthenticationTLS "
            "AuthenticationToken AutoClusterFailover Context Function MessageBatch PickleSerDe SerDe ServiceInfo "
            "ServiceInfoProvider"
        ),
        "client.subscribing.consumer": "Consumer",
        "client.model.loggers": "ConsoleLogger FileLogger",
        "client.model.message": "Message",
        "client.schema.payloads": "EncryptionContext",
        "client.model.policies": (
            "BatchReceivePolicy ConsumerBatchReceivePolicy ConsumerDeadLetterPolicy "
            "ConsumerKeySharedPolicy DeadLetterPolicyBuilder KeySharedPolicy"
        ),
        "client.sending.producer": "Producer",
        "client.readers.reader": "Reader",
        "client.readers.table_view": "TableView",
        "functions.serde": "IdentitySerDe",
        "payloads.encryption": "EncryptionKey",
        "payloads.keys": "CryptoKeyReader EncryptionKeyInfo",
        "protocol.redelivery.redelivery": "MultiplierRedeliveryBackoff",
        "protocol.topics.routing": "HashingScheme partition_for_key",
        "schema": "BytesSchema",
    }
    _HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}
    _MODULES = ("functions", "schema", "tableview")

    def __getattr__(name: str) -> object:
        """Import the public *name* from its home, once."""
        if name in _MODULES:
            return importlib.import_module(f"{__name__}.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *_HOMES, *_MODULES})
