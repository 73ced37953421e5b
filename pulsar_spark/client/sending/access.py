"""Which producers may share a topic, by ``access_mode`` (AbstractTopic.addProducer of Apache Pulsar)."""

from pulsar_spark.client.model.enums import ProducerAccessMode
from pulsar_spark.client.sending.producer_settings import ProducerSettings
from pulsar_spark.errors import OperationNotSupported, ProducerBusy, ProducerFenced
from pulsar_spark.storage.topics.exclusive import ExclusiveClaim
from pulsar_spark.storage.topics.producers import TopicProducers
from pulsar_spark.storage.topics.topics import Topic

LOOK_SECONDS = 0.1
"""How often a waiting producer checks its topic."""


class Access:
    """A producer's place on its topic, from :meth:`enter` until :meth:`leave`."""

    def __init__(self, topic: Topic, partitions: list[int], settings: ProducerSettings):
        self._mode, self._name, self._topic = settings.access_mode, settings.producer_name, str(topic.name)
        if self.is_alone and len(partitions) < len(topic.partition_indexes):
            raise OperationNotSupported(
                f"access_mode {self._mode.name} applies to a whole topic: give {self._topic!r} instead of a partition"
            )
        self.claim = ExclusiveClaim(topic.path, self._topic, self._name)
        self._producers = TopicProducers(topic.path, self._name, partitions)

    @property
    def is_alone(self) -> bool:
        return self._mode is not ProducerAccessMode.Shared

    def enter(self) -> bool:
        """Join the topic; False while the producer must wait, in the order of the topic's log.

        :class:`ProducerBusy` for a Shared producer if another has its name, has exclusive access or waits for it;
        :class:`ProducerFenced` for an Exclusive one if there are others.
        """
        with self._producers.alone():
            if self._mode is ProducerAccessMode.Shared:
                self._share()
            elif self._mode is ProducerAccessMode.WaitForExclusive:
                return self._take_when_free()
            else:
                self._take(is_fencing=self._mode is ProducerAccessMode.ExclusiveWithFencing)
            return True

    def grow(self, partitions: list[int]) -> None:
        """Add partitions, and lock the producer's name on each."""
        with self._producers.alone():
            self._producers.grow(partitions)

    @property
    def needs_renewal(self) -> bool:
        return self._producers.needs_renewal

    def renew(self) -> None:
        self._producers.renew()

    def leave(self) -> None:
        """Leave the topic, or stop waiting for it. A second call does nothing."""
        try:
            if self.is_alone:
                self.claim.release()
        finally:
            self._producers.leave()

    def _share(self) -> None:
        topic, others, holder = self._topic, self._producers.others(), self.claim.holder()
        if holder is not None:
            raise ProducerBusy(f"producer {holder!r} has exclusive access to topic {topic!r}: wait until it is closed")
        for other in others:
            if other.is_waiting:
                raise ProducerBusy(
                    f"producer {other.name!r} waits for exclusive access to topic {topic!r}: wait until it is closed"
                )
            if other.name == self._name:
                raise ProducerBusy(
                    f"topic {topic!r} already has a producer {self._name!r}: close it, or give another name"
                )
        self._producers.enter()

    def _take(self, *, is_fencing: bool) -> None:
        others = [] if is_fencing else self._producers.others()
        if others or not self.claim.take(is_fencing=is_fencing):
            other = others[0].name if others else self.claim.holder() or ""
            raise ProducerFenced(
                f"topic {self._topic!r} has producer {other!r}: close it, or take the topic over with "
                "access_mode ExclusiveWithFencing"
            )
        self._producers.send_away()
        self._producers.enter()

    def _take_when_free(self) -> bool:
        is_free = all(other.is_waiting for other in self._producers.others()) and self._producers.is_first()
        is_mine = is_free and self.claim.take()
        if is_mine or not self._producers.has_entered:
            self._producers.enter(is_waiting=not is_mine)
        else:
            self._producers.go_on_waiting()
        return is_mine
