"""Apache Pulsar's broker semantics on tables; ``import pulsar_spark as pulsar`` gives a script the client it knows.

Modules that need Arrow are imported on first use, so that the command line starts quickly.
"""

import importlib
from typing import TYPE_CHECKING

from pulsar_spark import exceptions
from pulsar_spark.client.enums import (
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
from pulsar_spark.errors import (
    AlreadyClosed,
    BrokerFenced,
    BrokerMetadataError,
    ConnectError,
    ConsumerAssignError,
    ConsumerBusy,
    ConsumerNotFound,
    CorruptState,
    CryptoError,
    CumulativeAcknowledgementNotAllowedError,
    DecompressionError,
    IncompatibleSchema,
    Interrupted,
    InvalidConfiguration,
    InvalidMessage,
    InvalidMessageId,
    InvalidRequest,
    InvalidTopicName,
    InvalidUrl,
    JavaNotFound,
    MemoryBufferIsFull,
    MessagesLost,
    MessageTooBig,
    NamespaceNotFound,
    NewerLayout,
    NotAllowedError,
    NotARoot,
    NotConnected,
    OperationNotSupported,
    ProducerBlockedQuotaExceededError,
    ProducerBlockedQuotaExceededException,
    ProducerBusy,
    ProducerFenced,
    ProducerQueueIsFull,
    PulsarException,
    PulsarSparkError,
    SchemaNotFound,
    SubscriptionBusy,
    SubscriptionNotFound,
    Timeout,
    TopicNotFound,
    TopicStopped,
    UnknownError,
    UnreadableMessage,
)
from pulsar_spark.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BrokerPersistenceError,
    ChecksumError,
    ConsumerNotInitialized,
    ErrorGettingAuthenticationData,
    InvalidTxnStatusError,
    LookupError,
    ProducerNotInitialized,
    ReadError,
    ServiceUnitNotReady,
    TooManyLookupRequestException,
    TopicTerminated,
    TransactionConflict,
    TransactionCoordinatorNotFoundError,
    TransactionNotFound,
    UnsupportedVersionError,
)
from pulsar_spark.protocol.message_id import MessageId

if TYPE_CHECKING:
    from pulsar_spark import functions, schema, tableview
    from pulsar_spark.client.client import Client
    from pulsar_spark.client.connections import (
        Authentication,
        AuthenticationAthenz,
        AuthenticationBasic,
        AuthenticationOauth2,
        AuthenticationTLS,
        AuthenticationToken,
        AutoClusterFailover,
        ServiceInfo,
        ServiceInfoProvider,
    )
    from pulsar_spark.client.consumer import Consumer
    from pulsar_spark.client.loggers import ConsoleLogger, FileLogger
    from pulsar_spark.client.message import Message, MessageBatch
    from pulsar_spark.client.payloads import EncryptionContext
    from pulsar_spark.client.policies import (
        BatchReceivePolicy,
        ConsumerBatchReceivePolicy,
        ConsumerDeadLetterPolicy,
        ConsumerKeySharedPolicy,
        DeadLetterPolicyBuilder,
        KeySharedPolicy,
    )
    from pulsar_spark.client.producer import Producer
    from pulsar_spark.client.reader import Reader
    from pulsar_spark.client.table_view import TableView
    from pulsar_spark.functions.context import Context
    from pulsar_spark.functions.function import Function
    from pulsar_spark.functions.serde import IdentitySerDe, PickleSerDe, SerDe
    from pulsar_spark.payloads.encryption import EncryptionKey
    from pulsar_spark.payloads.keys import CryptoKeyReader, EncryptionKeyInfo
    from pulsar_spark.protocol.redelivery import MultiplierRedeliveryBackoff
    from pulsar_spark.protocol.routing import HashingScheme, partition_for_key
    from pulsar_spark.schema import BytesSchema

__version__ = "0.1.0"

__all__ = [
    "AlreadyClosed",
    "Authentication",
    "AuthenticationAthenz",
    "AuthenticationBasic",
    "AuthenticationError",
    "AuthenticationOauth2",
    "AuthenticationTLS",
    "AuthenticationToken",
    "AuthorizationError",
    "AutoClusterFailover",
    "BatchReceivePolicy",
    "BatchingType",
    "BrokerFenced",
    "BrokerMetadataError",
    "BrokerPersistenceError",
    "BytesSchema",
    "ChecksumError",
    "Client",
    "CompressionType",
    "ConnectError",
    "ConsoleLogger",
    "Consumer",
    "ConsumerAssignError",
    "ConsumerBatchReceivePolicy",
    "ConsumerBusy",
    "ConsumerCryptoFailureAction",
    "ConsumerDeadLetterPolicy",
    "ConsumerKeySharedPolicy",
    "ConsumerNotFound",
    "ConsumerNotInitialized",
    "ConsumerType",
    "Context",
    "CorruptState",
    "CryptoError",
    "CryptoKeyReader",
    "CumulativeAcknowledgementNotAllowedError",
    "DeadLetterPolicyBuilder",
    "DecompressionError",
    "EncryptionContext",
    "EncryptionKey",
    "EncryptionKeyInfo",
    "ErrorGettingAuthenticationData",
    "FileLogger",
    "Function",
    "HashingScheme",
    "IdentitySerDe",
    "IncompatibleSchema",
    "InitialPosition",
    "Interrupted",
    "InvalidConfiguration",
    "InvalidMessage",
    "InvalidMessageId",
    "InvalidRequest",
    "InvalidTopicName",
    "InvalidTxnStatusError",
    "InvalidUrl",
    "JavaNotFound",
    "KeySharedMode",
    "KeySharedPolicy",
    "LoggerLevel",
    "LookupError",
    "MemoryBufferIsFull",
    "Message",
    "MessageBatch",
    "MessageId",
    "MessageTooBig",
    "MessagesLost",
    "MultiplierRedeliveryBackoff",
    "NamespaceNotFound",
    "NewerLayout",
    "NotARoot",
    "NotAllowedError",
    "NotConnected",
    "OperationNotSupported",
    "PartitionsRoutingMode",
    "PickleSerDe",
    "Producer",
    "ProducerAccessMode",
    "ProducerBlockedQuotaExceededError",
    "ProducerBlockedQuotaExceededException",
    "ProducerBusy",
    "ProducerCryptoFailureAction",
    "ProducerFenced",
    "ProducerNotInitialized",
    "ProducerQueueIsFull",
    "PulsarException",
    "PulsarSparkError",
    "ReadError",
    "Reader",
    "RegexSubscriptionMode",
    "Result",
    "SchemaNotFound",
    "SerDe",
    "ServiceInfo",
    "ServiceInfoProvider",
    "ServiceUnitNotReady",
    "SubscriptionBusy",
    "SubscriptionNotFound",
    "TableView",
    "Timeout",
    "TooManyLookupRequestException",
    "TopicNotFound",
    "TopicStopped",
    "TopicTerminated",
    "TransactionConflict",
    "TransactionCoordinatorNotFoundError",
    "TransactionNotFound",
    "UnknownError",
    "UnreadableMessage",
    "UnsupportedVersionError",
    "__version__",
    "exceptions",
    "partition_for_key",
    "schema",
]

if not TYPE_CHECKING:  # else checkers would take any name for one of the package's
    _NAMES = {
        "client.client": "Client",
        "client.connections": (
            "Authentication AuthenticationAthenz AuthenticationBasic AuthenticationOauth2 "
            "AuthenticationTLS AuthenticationToken AutoClusterFailover ServiceInfo ServiceInfoProvider"
        ),
        "client.consumer": "Consumer",
        "client.loggers": "ConsoleLogger FileLogger",
        "client.message": "Message MessageBatch",
        "client.payloads": "EncryptionContext",
        "client.policies": (
            "BatchReceivePolicy ConsumerBatchReceivePolicy ConsumerDeadLetterPolicy "
            "ConsumerKeySharedPolicy DeadLetterPolicyBuilder KeySharedPolicy"
        ),
        "client.producer": "Producer",
        "client.reader": "Reader",
        "client.table_view": "TableView",
        "functions.context": "Context",
        "functions.function": "Function",
        "functions.serde": "IdentitySerDe PickleSerDe SerDe",
        "payloads.encryption": "EncryptionKey",
        "payloads.keys": "CryptoKeyReader EncryptionKeyInfo",
        "protocol.redelivery": "MultiplierRedeliveryBackoff",
        "protocol.routing": "HashingScheme partition_for_key",
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
