"""Apache Pulsar's broker semantics on tables; ``import pulsar_spark as pulsar`` gives a script the client it knows."""

from pulsar_spark import exceptions, schema
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
from pulsar_spark.functions.context import Context
from pulsar_spark.functions.function import Function
from pulsar_spark.functions.serde import IdentitySerDe, PickleSerDe, SerDe
from pulsar_spark.payloads.encryption import EncryptionKey
from pulsar_spark.payloads.keys import CryptoKeyReader, EncryptionKeyInfo
from pulsar_spark.protocol.message_id import MessageId
from pulsar_spark.protocol.redelivery import MultiplierRedeliveryBackoff
from pulsar_spark.protocol.routing import HashingScheme, partition_for_key
from pulsar_spark.schema import BytesSchema

__version__ = "0.1.0"

__all__ = [name for name, value in list(globals().items()) if isinstance(value, type)] + [
    "exceptions",
    "partition_for_key",
    "schema",
    "__version__",
]
