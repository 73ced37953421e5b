"""The ``pulsar`` package's enumerations, with its members and numbers.

``ProducerCryptoFailureAction`` is one of Pulsar's other clients.
"""

from typing import Literal

from pulsar_spark.errors import PulsarSparkError
from pulsar_spark.protocol.numbered import Numbered


class ConsumerType(Numbered):
    """The type of a subscription; all its consumers have the same."""

    Exclusive = 0
    Shared = 1
    Failover = 2
    KeyShared = 3


class InitialPosition(Numbered):
    """Where a new subscription begins: after the last message, or at the first."""

    Latest = 0
    Earliest = 1


class PartitionsRoutingMode(Numbered):
    """The partition of a message without a key: always the same one, each in turn, or the router's choice."""

    UseSinglePartition = 0
    RoundRobinDistribution = 1
    CustomPartition = 2


class BatchingType(Numbered):
    """How messages are grouped into batches: in order of sending, or by key."""

    Default = 0
    KeyBased = 1


class CompressionType(Numbered):
    """The algorithm that compresses payloads."""

    NONE = 0
    LZ4 = 1
    ZLib = 2
    ZSTD = 3
    SNAPPY = 4


class ProducerAccessMode(Numbered):
    """Whether a topic may have other producers, and what happens to those."""

    Shared = 0
    Exclusive = 1
    WaitForExclusive = 2
    ExclusiveWithFencing = 3


class KeySharedMode(Numbered):
    """Who chooses the hash ranges of a Key_Shared consumer: the broker, or the consumer."""

    AutoSplit = 0
    Sticky = 1


class RegexSubscriptionMode(Numbered):
    """Which topics a pattern matches. All topics here are persistent."""

    PersistentOnly = 0
    NonPersistentOnly = 1
    AllTopics = 2


class ProducerCryptoFailureAction(Numbered):
    """What to do with a message that cannot be encrypted: raise an error, or send it unencrypted."""

    FAIL = 0
    SEND = 1


class ConsumerCryptoFailureAction(Numbered):
    """What to do with a message that cannot be decrypted: raise an error, acknowledge it undelivered, or deliver it
    encrypted."""

    FAIL = 0
    DISCARD = 1
    CONSUME = 2

    def __eq__(self, other: object) -> bool:
        """Equal to no number, as in the package."""
        return self is other

    def __hash__(self) -> int:
        return super().__hash__()


class LoggerLevel(Numbered):
    """The lowest level that a logger writes."""

    Debug = 0
    Info = 1
    Warn = 2
    Error = 3


class Result(Numbered):
    """The outcome that a send callback receives: ``Result.Ok``, or the name of the error."""

    Ok = 0
    UnknownError = 1
    InvalidConfiguration = 2
    Timeout = 3
    LookupError = 4
    ConnectError = 5
    ReadError = 6
    AuthenticationError = 7
    AuthorizationError = 8
    ErrorGettingAuthenticationData = 9
    BrokerMetadataError = 10
    BrokerPersistenceError = 11
    ChecksumError = 12
    ConsumerBusy = 13
    NotConnected = 14
    AlreadyClosed = 15
    InvalidMessage = 16
    ConsumerNotInitialized = 17
    ProducerNotInitialized = 18
    ProducerBusy = 19
    TooManyLookupRequestException = 20
    InvalidTopicName = 21
    InvalidUrl = 22
    ServiceUnitNotReady = 23
    OperationNotSupported = 24
    ProducerBlockedQuotaExceededError = 25
    ProducerBlockedQuotaExceededException = 26
    ProducerQueueIsFull = 27
    MessageTooBig = 28
    TopicNotFound = 29
    SubscriptionNotFound = 30
    ConsumerNotFound = 31
    UnsupportedVersionError = 32
    TopicTerminated = 33
    CryptoError = 34
    IncompatibleSchema = 35
    ConsumerAssignError = 36
    CumulativeAcknowledgementNotAllowedError = 37
    TransactionCoordinatorNotFoundError = 38
    InvalidTxnStatusError = 39
    NotAllowedError = 40
    TransactionConflict = 41
    TransactionNotFound = 42
    ProducerFenced = 43
    MemoryBufferIsFull = 44
    Interrupted = 45


SubscriptionType = ConsumerType | Literal["Exclusive", "Shared", "Failover", "KeyShared", "Key_Shared"]
Position = InitialPosition | Literal["Latest", "Earliest"]
Compression = CompressionType | Literal["NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY"]
ProducerCryptoAction = ProducerCryptoFailureAction | Literal["FAIL", "SEND"]
ConsumerCryptoAction = ConsumerCryptoFailureAction | Literal["FAIL", "DISCARD", "CONSUME"]


def result_of(error: PulsarSparkError) -> Result:
    """The result for *error*: that of its nearest class that has one, else ``UnknownError``."""
    return next(
        (Result[cls.__name__] for cls in type(error).__mro__ if cls.__name__ in Result.__members__), Result.UnknownError
    )
