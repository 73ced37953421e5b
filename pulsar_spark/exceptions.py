"""``pulsar.exceptions`` for scripts: the errors of ``errors``, and others of the ``pulsar`` package, never raised
here."""

# ruff: noqa: F403, F405

from pulsar_spark.errors import *
from pulsar_spark.errors import PulsarSparkError

__all__ = [
    "AlreadyClosed",
    "AuthenticationError",
    "AuthorizationError",
    "BrokerFenced",
    "BrokerMetadataError",
    "BrokerPersistenceError",
    "ChecksumError",
    "ConnectError",
    "ConsumerAssignError",
    "ConsumerBusy",
    "ConsumerNotFound",
    "ConsumerNotInitialized",
    "CorruptState",
    "CryptoError",
    "CumulativeAcknowledgementNotAllowedError",
    "DecompressionError",
    "ErrorGettingAuthenticationData",
    "IncompatibleSchema",
    "Interrupted",
    "InvalidConfiguration",
    "InvalidMessage",
    "InvalidMessageId",
    "InvalidRequest",
    "InvalidTopicName",
    "InvalidTxnStatusError",
    "InvalidUrl",
    "JavaNotFound",
    "LookupError",
    "MemoryBufferIsFull",
    "MessageTooBig",
    "MessagesLost",
    "NamespaceNotFound",
    "NewerLayout",
    "NotARoot",
    "NotAllowedError",
    "NotConnected",
    "OlderLayout",
    "OperationNotSupported",
    "ProducerBlockedQuotaExceededError",
    "ProducerBlockedQuotaExceededException",
    "ProducerBusy",
    "ProducerFenced",
    "ProducerNotInitialized",
    "ProducerQueueIsFull",
    "PulsarException",
    "PulsarSparkError",
    "ReadError",
    "SchemaNotFound",
    "ServiceUnitNotReady",
    "SubscriptionBusy",
    "SubscriptionNotFound",
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
]


class AuthenticationError(PulsarSparkError):
    """A broker did not accept the client's credentials."""


class AuthorizationError(PulsarSparkError):
    """The client lacks the permission for its request."""


class BrokerPersistenceError(PulsarSparkError):
    """A broker could not store a message."""


class ChecksumError(PulsarSparkError):
    """A message's checksum is wrong."""


class ConsumerNotInitialized(PulsarSparkError):
    """A consumer was used before it had subscribed."""


class ErrorGettingAuthenticationData(PulsarSparkError):
    """The client could not get its credentials."""


class InvalidTxnStatusError(PulsarSparkError):
    """The transaction's state does not allow this."""


class LookupError(PulsarSparkError):
    """No broker was found for a topic."""


class ProducerNotInitialized(PulsarSparkError):
    """A producer was used before it was created."""


class ReadError(PulsarSparkError):
    """A connection broke during a read."""


class TooManyLookupRequestException(PulsarSparkError):
    """A broker has too many lookups to answer."""


class TopicTerminated(PulsarSparkError):
    """The topic was terminated."""


class TransactionConflict(PulsarSparkError):
    """Another transaction has acknowledged this message."""


class TransactionCoordinatorNotFoundError(PulsarSparkError):
    """No broker coordinates transactions."""


class TransactionNotFound(PulsarSparkError):
    """The transaction does not exist."""


class UnsupportedVersionError(PulsarSparkError):
    """The broker's version does not support this."""
