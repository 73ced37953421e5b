"""Every error that the package raises on purpose: what happened, the value in quotes, what to do.

:class:`InvalidRequest` is the caller's mistake: nothing was changed. :class:`CorruptState` means that stored rows break
an invariant: the process stops. Leaves have the names of Apache Pulsar's client exceptions; ``exceptions`` offers them
too.
"""

import errno
from typing import Any

DOCTOR = "run 'pulsar-spark doctor' on the root, which says what mends it, such as 'pulsar-spark repair'"
"""For stored rows that break an invariant."""


class PulsarException(Exception):
    """The base class of all errors, under the ``pulsar`` package's name."""


class PulsarSparkError(PulsarException):
    """The base class of every error of this package."""


class InvalidRequest(PulsarSparkError):
    """The caller's request cannot be fulfilled; nothing was changed."""


class CorruptState(PulsarSparkError):
    """Stored rows break an invariant; nothing was written after it was seen."""


class DelayIndexNotReady(PulsarSparkError):
    """The index of the topic's delayed messages is being rebuilt; try again later."""


class LogShortened(PulsarSparkError):
    """A reader needs commits that the table's log no longer has."""


class MessagesLost(CorruptState):
    """Files of a topic are gone while its table still refers to them. All other messages can be read.

    ``topic`` is the table's folder, ``path`` the file. ``ranges`` are the lost entries: (first, last) entry ids of
    publish commit ``ledger_id`` in ``partition``.
    """

    def __init__(
        self, text: str, topic: str = "", partition: int = -1, ledger_id: int = -1, ranges: tuple = (), path: str = ""
    ):
        super().__init__(text)
        self.topic, self.partition, self.ledger_id = topic, partition, ledger_id
        self.ranges, self.path = tuple(ranges), path


class TopicStopped(CorruptState, InvalidRequest):
    """A commit in the log of the topic's table cannot be read. Nothing after it is delivered, and requests are refused,
    until the log is repaired."""


class MessagesTrimmed(InvalidRequest):
    """Messages were trimmed before a reader without a subscription read them."""


class UnreadableMessage(PulsarSparkError):
    """One message cannot be decrypted, decompressed or parsed; other messages can be read.

    ``message_id`` names a received message; acknowledge it to skip the message.
    """

    message_id: Any = None


class DecompressionError(UnreadableMessage):
    """A payload cannot be decompressed: it is damaged, or would exceed the allowed size."""


class CryptoError(UnreadableMessage):
    """A message could not be encrypted or decrypted."""


class NewerLayout(InvalidRequest):
    """A newer release made the table, with a layout that this one does not read."""


class OlderLayout(InvalidRequest):
    """An older release made the table, with a layout that this one does not read."""


class NotARoot(InvalidRequest):
    """The folder contains files that are not tables of this package."""


class BrokerFenced(PulsarSparkError):
    """Another broker has taken over the bundle; this one must stop."""


class JavaNotFound(InvalidRequest):
    """This machine has no Java 17 or 21."""


class SparkNotStarted(InvalidRequest):
    """Spark's JVM ended during its start."""


class AlreadyClosed(InvalidRequest):
    """The client, producer, consumer or reader was closed before."""


class BrokerMetadataError(InvalidRequest):
    """Other consumers are connected to a subscription that a consumer tried to delete."""


class ConnectError(InvalidRequest):
    """The root cannot be reached."""


class RootAway(ConnectError, OSError):
    """The root cannot be reached now although it existed before, such as on a dropped mount. The process waits for
    it."""

    def __init__(self, text: str):
        super().__init__(text)
        self.errno = errno.ENODEV


class ConsumerAssignError(InvalidRequest):
    """The hash ranges of a Key_Shared consumer cannot be assigned."""


class ConsumerBusy(InvalidRequest):
    """The subscription has all the consumers its type or policy allows."""


class ConsumerNotFound(InvalidRequest):
    """No consumer of that id is connected to the subscription."""


class CumulativeAcknowledgementNotAllowedError(InvalidRequest):
    """Shared and Key_Shared subscriptions take individual acknowledgements only."""


class IncompatibleSchema(InvalidRequest):
    """The schema does not fit those of the topic."""


class Interrupted(PulsarSparkError, KeyboardInterrupt):
    """Ctrl-C was pressed during the call. ``except KeyboardInterrupt`` catches it too."""


class InvalidConfiguration(InvalidRequest):
    """Options are wrong, or exclude each other."""


class InvalidMessage(InvalidRequest):
    """The message or message id does not belong to this topic."""


class InvalidMessageId(InvalidMessage, ValueError):
    """The value is not a message id. The ``pulsar`` package raises ValueError here."""


class InvalidTopicName(InvalidRequest):
    """The topic name is not valid."""


class InvalidUrl(InvalidRequest, ValueError):
    """The service URL is not ``delta:<root>``. The ``pulsar`` package raises ValueError here."""


class MemoryBufferIsFull(InvalidRequest):
    """The client's memory limit for pending messages is reached."""


class MessageTooBig(InvalidRequest):
    """The payload is above the maximum message size."""


class NamespaceNotFound(InvalidRequest):
    """The namespace does not exist, and is not created automatically."""


class NotAllowedError(InvalidRequest):
    """The operation is not allowed on this topic or subscription."""


class NotConnected(InvalidRequest):
    """No broker serves the bundle."""


class OperationNotSupported(InvalidRequest):
    """A call of the ``pulsar`` package that this package does not support."""


class ProducerBlockedQuotaExceededError(InvalidRequest):
    """The topic's backlog has reached its quota; the producer waited without success."""


class ProducerBlockedQuotaExceededException(InvalidRequest):
    """The topic's backlog has reached its quota; the publish is refused."""


class ProducerBusy(InvalidRequest):
    """Another producer with that name, or an exclusive producer, is connected."""


class ProducerFenced(InvalidRequest):
    """An exclusive producer has taken the topic over."""


class ProducerQueueIsFull(InvalidRequest):
    """Too many messages wait to be published."""


class SchemaNotFound(InvalidRequest):
    """The topic has no schema, or none of that version."""


class ServiceUnitNotReady(InvalidRequest):
    """The broker does not serve the topic's bundle; a retry finds the broker that does."""


class SubscriptionNotFound(InvalidRequest):
    """The topic has no such subscription."""


class SubscriptionBusy(ConsumerBusy):
    """Consumers of another subscription type are connected."""


class Timeout(InvalidRequest):
    """No message came, or no broker answered, in the given time. The text begins with that of the ``pulsar`` package,
    ``Pulsar error: TimeOut``."""

    def __str__(self) -> str:
        return f"Pulsar error: TimeOut: {super().__str__()}"


class TopicNotFound(InvalidRequest):
    """The topic does not exist, and is not created automatically."""


class UnknownError(PulsarSparkError):
    """An error without a name of its own."""


def named(name: str) -> type[PulsarSparkError]:
    """The error class of this name; :class:`UnknownError` for an unknown one."""
    found = globals().get(name)
    return found if isinstance(found, type) and issubclass(found, PulsarSparkError) else UnknownError


def shown(value: object, most: int = 80) -> str:
    """A value in quotes for a message, shortened if long.

    >>> shown("x" * 100, 10)
    "'xxxxxxxxx...(102 characters)"
    """
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}...({len(text)} characters)"
