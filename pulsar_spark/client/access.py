"""Which producers may be on a topic together, as ``access_mode`` says; the claim itself is storage.exclusive's."""

from collections.abc import Callable

from pulsar_spark.client.enums import ProducerAccessMode
from pulsar_spark.client.producer_settings import ProducerSettings
from pulsar_spark.errors import OperationNotSupported, ProducerBusy, ProducerFenced
from pulsar_spark.link import interrupts
from pulsar_spark.storage.exclusive import ExclusiveClaim
from pulsar_spark.storage.topics import Topic

LOOK_SECONDS = 0.1
"""How often who waits for a topic looks whether it is free."""


def claimed(
    topic: Topic, partitions: list[int], settings: ProducerSettings, check_open: Callable[[], None]
) -> ExclusiveClaim:
    """A producer's view of the claim on its topic, which is its own where it asks for that.

    :class:`ProducerBusy` for a Shared producer where another one has the topic for itself, :class:`ProducerFenced` for
    an Exclusive one. Who waits does until the topic is free, or the client is closed.
    """
    mode, name = settings.access_mode, settings.producer_name
    claim = ExclusiveClaim(topic.path, str(topic.name), name)
    if mode is ProducerAccessMode.Shared:
        holder = claim.holder()
        if holder is not None:
            raise ProducerBusy(f"producer {holder!r} has topic {str(topic.name)!r} for itself: wait until it is closed")
        return claim
    if len(partitions) < len(topic.partition_indexes):
        raise OperationNotSupported(
            f"access_mode {mode.name}: a topic is had as a whole; name {str(topic.name)!r} and no partition of it"
        )
    sleep = interrupts.sleeper()
    while not claim.take(is_fencing=mode is ProducerAccessMode.ExclusiveWithFencing):
        if mode is ProducerAccessMode.Exclusive:
            raise ProducerFenced(
                f"producer {claim.holder()!r} has topic {str(topic.name)!r} for itself: close it, or take the topic "
                "from it with access_mode ExclusiveWithFencing"
            )
        sleep(LOOK_SECONDS)
        check_open()
    return claim
