"""``pulsar.exceptions`` for scripts: the errors of ``errors``, and further ones of the ``pulsar`` package, which are
never raised here."""

from pulsar_spark.errors import *  # noqa: F403 - this module is that list, and more
from pulsar_spark.errors import PulsarSparkError


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
