"""``pulsar.exceptions`` of scripts: the errors of ``errors``, and the names of the ``pulsar`` package that nothing here
raises.

Only those are defined here: of connections, credentials and transactions, which there are none of. A script may name
them in ``except``; a new error of ours goes into ``errors``.
"""

from pulsar_spark.errors import *  # noqa: F403 - this module is that list, and more
from pulsar_spark.errors import PulsarSparkError


class AuthenticationError(PulsarSparkError):
    """A broker refused who the client says it is."""


class AuthorizationError(PulsarSparkError):
    """A broker refused what the client may not do."""


class BrokerPersistenceError(PulsarSparkError):
    """A broker could not store a message."""


class ChecksumError(PulsarSparkError):
    """A message's checksum is wrong; Parquet has checksums of its own."""


class ConsumerNotInitialized(PulsarSparkError):
    """A consumer was used before it was subscribed."""


class ErrorGettingAuthenticationData(PulsarSparkError):
    """The client found no credentials."""


class InvalidTxnStatusError(PulsarSparkError):
    """A transaction is not in the state for this."""


class LookupError(PulsarSparkError):
    """No broker was found for a topic."""


class ProducerNotInitialized(PulsarSparkError):
    """A producer was used before it was created."""


class ReadError(PulsarSparkError):
    """A connection broke while it was read."""


class TooManyLookupRequestException(PulsarSparkError):
    """A broker has too many lookups to answer."""


class TopicTerminated(PulsarSparkError):
    """The topic was terminated."""


class TransactionConflict(PulsarSparkError):
    """Another transaction has acknowledged this."""


class TransactionCoordinatorNotFoundError(PulsarSparkError):
    """No broker coordinates transactions."""


class TransactionNotFound(PulsarSparkError):
    """The transaction is not known."""


class UnsupportedVersionError(PulsarSparkError):
    """The broker is too old for this."""
