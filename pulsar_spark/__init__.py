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
    OlderLayout,
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
    "OlderLayout",
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
