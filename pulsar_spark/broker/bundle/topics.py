"""The topics of a bundle, found on disk and numbered. A topic that cannot be read is stopped by itself."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from pulsar_spark.broker.bundle.numbering import number_topic
from pulsar_spark.broker.bundle.topic_news import TopicNews
from pulsar_spark.broker.bundle.topic_state import TopicState
from pulsar_spark.errors import InvalidTopicName, ServiceUnitNotReady, TopicNotFound
from pulsar_spark.protocol.topics.bundles import WHOLE, BundleRange
from pulsar_spark.protocol.topics.topic_name import TopicName, parse_topic_name
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.needed_runs import empty_publish_ids
from pulsar_spark.storage.store.away import check_there
from pulsar_spark.storage.store.faults import is_fault_of_disk
from pulsar_spark.storage.topics.bundles import check_served
from pulsar_spark.storage.topics.discovery import topic_folders
from pulsar_spark.storage.topics.topics import read_topic
from pulsar_spark.table_specs import LEDGERS

log = logging.getLogger(__name__)
_READ_AGAIN_SECONDS = 1.0


class Topics:
    """The root's topics in the slice *served*, by full name."""

    def __init__(self, layout: Layout, served: BundleRange = WHOLE):
        self.layout, self.served = layout, served
        self.topics: dict[str, TopicState] = {}
        self.stopped: list[TopicState] = []
        """Topics whose error was found since the last round, other than by numbering."""
        self._folders = topic_folders(layout)
        self._news = TopicNews(layout, self.topics)
        self._passed_over: dict[str, str] = {}
        self._unreadable: set[str] = set()
        """Topics that are known and whose definition could not be read when it was looked at last."""
        self._read_again_at = 0.0

    def topic_id(self, name: str) -> str | None:
        """The id of a known topic; None for any other name."""
        return self.topics[name].topic.topic_id if name in self.topics else None

    def topic(self, name: str) -> TopicState:
        """The topic with that name, also if new on disk. :class:`TopicNotFound` without one,
        :class:`ServiceUnitNotReady` in another bundle."""
        if name not in self.topics:
            parsed = parse_topic_name(name)
            name = str(parsed)
            if name not in self.topics:
                self._add_topic(parsed)
        return self.topics[name]

    def topic_by_id(self, topic_id: str) -> TopicState | None:
        return next((state for state in self.topics.values() if state.topic.topic_id == topic_id), None)

    def why_passed_over(self, name: str) -> str | None:
        return self._passed_over.get(name)

    def stop_unreadable(self, state: TopicState) -> None:
        """Add a topic that cannot be read, stopped with its error."""
        self._add(state)
        self.stopped.append(state)
        self._unreadable.add(str(state.topic.name))

    def scan(self) -> list[TopicState]:
        """Find new and deleted topics; returns the deleted ones. An unchanged folder costs one stat."""
        check_there(self.layout.root)
        self._unreadable &= self.topics.keys()
        gone = [self._drop(name) for name in sorted(self._unreadable) if self._is_other_life(self.topics[name])]
        self._read_again_at = time.monotonic() + _READ_AGAIN_SECONDS
        for namespace in self._folders.changed():
            names = self.layout.folder_names(*namespace)
            for name, state in list(self.topics.items()):
                if state.topic.name[:2] != namespace:
                    continue
                if state.topic.name.local_name not in names or self._is_other_life(state):
                    gone.append(self._drop(name))
                else:
                    names.remove(state.topic.name.local_name)
            for topic in (TopicName(*namespace, each) for each in names):
                if self.served.holds(str(topic)) and self._has_log(topic):
                    with self._looking_at(str(topic)):
                        self._add_topic(parse_topic_name(str(topic)))
        self._folders.seen()
        return gone

    def number_new(
        self, names: Iterable[str | None] = (), delayed_after: Callable[[str, int], int] = lambda topic_id, partition: 0
    ) -> tuple[list[TopicState], list[dict]]:
        """Number new publishes; returns topics that moved, and rows of ``ledgers``. The logs of *names* are always
        read. *delayed_after* returns after which instant new entries of a topic id and partition wait."""
        moved, rows, named = [], [], dict.fromkeys(name for name in names if name)
        self._news.enqueue(named)
        for name in [name for name in named if name not in self.topics]:
            with contextlib.suppress(InvalidTopicName):
                parsed = parse_topic_name(name)
                with self._looking_at(str(parsed)):
                    self.topic(str(parsed))
        for _, state in self.moved():
            rows += number_topic(state, partial(delayed_after, state.topic.topic_id))
            moved.append(state)
        moved += [state for state in self.stopped if state not in moved]
        self.stopped = []
        return moved, rows

    def moved(self) -> list[tuple[str, TopicState]]:
        """Topics with commits to number, by name (see topic_news)."""
        return self._news.moved()

    def enqueue_all(self) -> None:
        """Let the next look read all logs, and search for topics."""
        self._news.enqueue()
        self._folders.ask_again()

    def has_news(self) -> bool:
        """Has a log that this look reads, or a folder, changed?"""
        return bool(self.moved()) or self.has_new_folders()

    def has_new_folders(self) -> bool:
        """Has a folder changed, or are unreadable definitions to be read again?"""
        return bool(self._folders.changed()) or (bool(self._unreadable) and time.monotonic() >= self._read_again_at)

    def _has_log(self, topic: TopicName) -> bool:
        """Is there a log? Not in a folder without permission."""
        try:
            return TableLog(self.layout.topic(topic)).exists()
        except PermissionError:
            return False

    @contextlib.contextmanager
    def _looking_at(self, name: str) -> Iterator[None]:
        try:
            yield
            self._passed_over.pop(name, None)
        except (TopicNotFound, InvalidTopicName, ServiceUnitNotReady):
            return
        except Exception as broken:  # any error: the folder is not served, and the log says why
            if is_fault_of_disk(broken):
                raise
            if self._passed_over.get(name) != str(broken):
                self._passed_over[name] = str(broken)
                log.warning("%s is not served: %s: %s", name, type(broken).__name__, broken)

    def _is_other_life(self, state: TopicState) -> bool:
        """Was the topic deleted or created again? Usually a stat answers. An unreadable topic is stopped."""
        name = str(state.topic.name)
        try:
            life = state.log.life()
            if life is not None and life == state.life and name not in self._unreadable:
                return False
            found = read_topic(self.layout, state.topic.name)
        except (FileNotFoundError, TopicNotFound):
            self._unreadable.discard(name)
            return True
        except Exception as broken:  # any error: the topic is stopped
            if is_fault_of_disk(broken):
                raise
            if state.error is None:
                state.error = f"{type(broken).__name__}: {broken}"
                self.stopped.append(state)
            self._unreadable.add(name)
            return False
        if name in self._unreadable:
            self._unreadable.discard(name)
            state.error = state.stopped_at = None
            self.stopped.append(state)
        state.life = life
        return found.topic_id != state.topic.topic_id

    def _add_topic(self, name: TopicName) -> None:
        check_served(self.served, str(name))
        log, life = TableLog(self.layout.topic(name)), None
        with contextlib.suppress(FileNotFoundError):
            life = log.life()
        topic = read_topic(self.layout, name)
        known = empty_publish_ids(self.layout.broker_table(LEDGERS.name), topic.topic_id)
        self._add(TopicState(topic, log, life, publish_ids=known))

    def _add(self, state: TopicState) -> None:
        name = str(state.topic.name)
        self.topics[name] = state
        self._news.add(name)

    def _drop(self, name: str) -> TopicState:
        state = self.topics.pop(name)
        self._news.drop(state)
        return state
