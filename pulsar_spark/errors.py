"""Every error the package raises on purpose: what happened, the value in quotes, what to do about it. New ones are
written here; ``exceptions`` shows them to scripts written for ``pulsar``.

Two branches. :class:`InvalidRequest` is the caller's: nothing was changed and the message says how to ask again.
:class:`CorruptState` means that stored rows break an invariant: the process stops rather than guess. The leaves carry
the names of Apache Pulsar's client exceptions, so that ``except pulsar.ConsumerBusy`` keeps working after ``import
pulsar_spark as pulsar``.
"""

import errno

DOCTOR = "run 'pulsar-spark doctor' on the root, which says what mends it, such as 'pulsar-spark repair'"
"""What to do about stored rows that break an invariant; the end of such a message."""


class PulsarException(Exception):
    """The root of all errors by the name that the ``pulsar`` package gives it."""


class PulsarSparkError(PulsarException):
    """The root of every error raised on purpose."""


class InvalidRequest(PulsarSparkError):
    """The caller asked for something that cannot be done; nothing was changed."""


class CorruptState(PulsarSparkError):
    """Stored rows break an invariant; nothing was written after it was seen."""


class DelayIndexNotReady(PulsarSparkError):
    """What waits for its deliver time on a topic is being indexed again: asked later, it is there."""


class LogShortened(PulsarSparkError):
    """Commits of a table that somebody wanted to follow are no longer in its log: they are older than it is kept."""


class MessagesLost(CorruptState):
    """Files of a topic are gone though nobody took them out of its table, and their messages with them.

    ``topic`` is the table's folder; ``ranges`` are the lost entries as (first, last) entry ids of publish commit
    ``ledger_id`` in ``partition``; ``path`` is the file. What else was published can be read.
    """

    def __init__(
        self, text: str, topic: str = "", partition: int = -1, ledger_id: int = -1, ranges: tuple = (), path: str = ""
    ):
        super().__init__(text)
        self.topic, self.partition, self.ledger_id, self.ranges, self.path = (
            topic,
            partition,
            ledger_id,
            tuple(ranges),
            path,
        )


class TopicStopped(CorruptState, InvalidRequest):
    """Something in the log of a topic's table cannot be read: nothing is delivered of what lies after it, and nothing
    is asked of the topic until it is mended."""


class UnreadableMessage(PulsarSparkError):
    """One message cannot be read, as it is stored or with the keys there are; those around it can. ``message_id`` names
    it, where it was received: whoever wants it no more acknowledges it by that."""

    message_id = None


class DecompressionError(UnreadableMessage):
    """The stored bytes are not what the message says was compressed, or would become larger than they may."""


class CryptoError(UnreadableMessage):
    """A message could not be encrypted or decrypted."""


class NewerLayout(InvalidRequest):
    """A table was written by a newer release than this one."""


class OlderLayout(InvalidRequest):
    """A root was made by an older release, and could not be brought up to this one's layout; it is as it was."""


class NotARoot(InvalidRequest):
    """The folder holds something else than tables of this package."""


class BrokerFenced(PulsarSparkError):
    """Another broker has taken over the bundle; this one must stop."""


class JavaNotFound(InvalidRequest):
    """No Java 17 or 21 on this machine."""


class SparkNotStarted(InvalidRequest):
    """Spark's JVM ended while it started."""


class AlreadyClosed(InvalidRequest):
    """The client, producer, consumer or reader was closed before."""


class BrokerMetadataError(InvalidRequest):
    """A consumer ends a subscription that other consumers use, too."""


class ConnectError(InvalidRequest):
    """The root cannot be reached."""


class RootAway(ConnectError, OSError):
    """A root that was there is not there now, as a mount that dropped: it is waited for."""

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
    """The schema does not fit the topic."""


class Interrupted(PulsarSparkError, KeyboardInterrupt):
    """Ctrl-C was pressed while the call waited. ``except KeyboardInterrupt`` catches it too."""


class InvalidConfiguration(InvalidRequest):
    """Options that are wrong or exclude each other."""


class InvalidMessage(InvalidRequest):
    """The message or message id is not one of this topic."""


class InvalidMessageId(InvalidMessage, ValueError):
    """What was given is no message id. The ``pulsar`` package raises ValueError there."""


class InvalidTopicName(InvalidRequest):
    """The topic name breaks the grammar."""


class InvalidUrl(InvalidRequest, ValueError):
    """The service URL is not ``delta:<root>``. The ``pulsar`` package raises ValueError there."""


class MemoryBufferIsFull(InvalidRequest):
    """The client's memory limit for pending messages is reached."""


class MessageTooBig(InvalidRequest):
    """The payload is above the maximum message size."""


class NamespaceNotFound(InvalidRequest):
    """No such namespace, and it may not be created on the fly."""


class NotAllowedError(InvalidRequest):
    """The operation is not allowed on this topic or subscription."""


class NotConnected(InvalidRequest):
    """No broker serves the bundle."""


class OperationNotSupported(InvalidRequest):
    """The ``pulsar`` package offers this call, this package does not."""


class ProducerBlockedQuotaExceededError(InvalidRequest):
    """The backlog quota of the topic is reached; the producer is held."""


class ProducerBlockedQuotaExceededException(InvalidRequest):
    """The backlog quota of the topic is reached; the publish is refused."""


class ProducerBusy(InvalidRequest):
    """Another producer of that name, or an exclusive one, is connected."""


class ProducerFenced(InvalidRequest):
    """An exclusive producer took the topic over."""


class ProducerQueueIsFull(InvalidRequest):
    """Too many messages wait to be published."""


class SchemaNotFound(InvalidRequest):
    """The topic keeps no schema, or none of that version."""


class ServiceUnitNotReady(InvalidRequest):
    """The topic is in another bundle than the one whose broker was asked; who asks again finds it there."""


class SubscriptionNotFound(InvalidRequest):
    """The topic has no such subscription."""


class SubscriptionBusy(ConsumerBusy):
    """Consumers of another subscription type are connected."""


class Timeout(InvalidRequest):
    """Nothing came, or no broker answered, in the time given.

    Its text begins as that of the ``pulsar`` package's, which is all of it there and what scripts search for.

    >>> str(Timeout("no message within 100 ms"))
    'Pulsar error: TimeOut: no message within 100 ms'
    """

    def __str__(self) -> str:
        return f"Pulsar error: TimeOut: {super().__str__()}"


class TopicNotFound(InvalidRequest):
    """No such topic, and it may not be created on the fly."""


class UnknownError(PulsarSparkError):
    """A failure without a name of its own."""


def named(name: str) -> type[PulsarSparkError]:
    """The error class a refusal row names; :class:`UnknownError` for a name this release does not know."""
    found = globals().get(name)
    return found if isinstance(found, type) and issubclass(found, PulsarSparkError) else UnknownError


def shown(value: object, most: int = 80) -> str:
    """A value in quotes for a message, cut where it is long.

    >>> shown("x" * 100, 10)
    "'xxxxxxxxx...(102 characters)"
    """
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}...({len(text)} characters)"
