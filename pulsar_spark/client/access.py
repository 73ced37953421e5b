"""Which producers may be on a topic together, as ``access_mode`` says (AbstractTopic.addProducer of Apache Pulsar).

Who is there storage.producers says, the claim on a topic is storage.exclusive's.
"""

from collections.abc import Callable
from contextlib import ExitStack

from pulsar_spark.client.enums import ProducerAccessMode
from pulsar_spark.client.producer_settings import ProducerSettings
from pulsar_spark.errors import OperationNotSupported, ProducerBusy, ProducerFenced
from pulsar_spark.link import interrupts
from pulsar_spark.storage.exclusive import ExclusiveClaim
from pulsar_spark.storage.producers import TopicProducers
from pulsar_spark.storage.topics import Topic

LOOK_SECONDS = 0.1
"""How often who waits for a topic looks whether it is free."""


class Access:
    """A producer's place on its topic, from :func:`admitted` until :meth:`let_go`."""

    def __init__(self, topic: Topic, partitions: list[int], settings: ProducerSettings):
        self.mode = settings.access_mode
        self.claim = ExclusiveClaim(topic.path, str(topic.name), settings.producer_name)
        self.producers = TopicProducers(topic.path, settings.producer_name, partitions)

    def let_go(self) -> None:
        """Nothing will be published any more: who waits for the topic may have it."""
        try:
            if self.mode is not ProducerAccessMode.Shared:
                self.claim.let_go()
        finally:
            self.producers.leave()


def admitted(topic: Topic, partitions: list[int], settings: ProducerSettings, check_open: Callable[[], None]) -> Access:
    """A producer's place on the topic.

    A Shared producer gets :class:`ProducerBusy` where another one has the topic for itself or waits for that, and where
    its name is in use; an Exclusive one :class:`ProducerFenced` where others are there. Who waits does until nobody is,
    or the client is closed. Who is refused, and who fails, leaves nothing behind that others would wait for.
    """
    access, name = Access(topic, partitions, settings), str(topic.name)
    if access.mode is not ProducerAccessMode.Shared and len(partitions) < len(topic.partition_indexes):
        raise OperationNotSupported(
            f"access_mode {access.mode.name}: a topic is had as a whole; name {name!r} and no partition of it"
        )
    with ExitStack() as undone:
        undone.callback(access.let_go)
        if access.mode is ProducerAccessMode.Shared:
            _share(access, name, settings.producer_name)
        elif access.mode is ProducerAccessMode.WaitForExclusive:
            _wait(access, check_open)
        else:
            is_fencing = access.mode is ProducerAccessMode.ExclusiveWithFencing
            if (other := _take(access, is_fencing=is_fencing)) is not None:
                raise ProducerFenced(
                    f"producer {other!r} is on topic {name!r}: close it, or take the topic from it with access_mode "
                    "ExclusiveWithFencing"
                )
        undone.pop_all()
    return access


def _share(access: Access, topic: str, name: str) -> None:
    with access.producers.alone():
        others, holder = access.producers.others(), access.claim.holder()
        if holder is not None:
            raise ProducerBusy(f"producer {holder!r} has topic {topic!r} for itself: wait until it is closed")
        for other in others:
            if other.is_waiting:
                raise ProducerBusy(f"producer {other.name!r} waits to have topic {topic!r} for itself: let it go first")
            if other.name == name:
                raise ProducerBusy(f"there is a producer {name!r} on topic {topic!r}: close it, or give another name")
        access.producers.enter()


def _take(access: Access, *, is_fencing: bool = False) -> str | None:
    """Have the topic; the name of a producer that is in the way."""
    with access.producers.alone():
        if not is_fencing and (others := access.producers.others()):
            return others[0].name
        if not access.claim.take(is_fencing=is_fencing):
            return access.claim.holder() or ""
        access.producers.send_away()
        access.producers.enter()
        return None


def _wait(access: Access, check_open: Callable[[], None]) -> None:
    """Wait until nobody is on the topic but others who wait."""
    sleep = interrupts.sleeper()
    with access.producers.alone():
        access.producers.enter(is_waiting=True)
    while True:
        with access.producers.alone():
            if all(other.is_waiting for other in access.producers.others()) and access.claim.take():
                access.producers.enter()
                return
        sleep(LOOK_SECONDS)
        check_open()
