"""Class :class:`Admin`: see the package's docstring for what it does by itself and what it asks of the broker."""

import itertools
from collections.abc import Iterator

from pulsar_spark.admin.bundles import BundleVerbs
from pulsar_spark.admin.chunks import IncompleteChunks
from pulsar_spark.admin.compaction import TopicCompaction, compaction_stats
from pulsar_spark.admin.doctor import Doctor
from pulsar_spark.admin.key_hashes import KeyHashes
from pulsar_spark.admin.peek import place_of
from pulsar_spark.admin.policies import Policies
from pulsar_spark.admin.raw_chunks import RawChunks
from pulsar_spark.admin.scheduled import ScheduledMessages
from pulsar_spark.admin.schemas import Schemas
from pulsar_spark.admin.set_aside import SetAsideVerbs
from pulsar_spark.admin.subscriptions import Subscriptions
from pulsar_spark.admin.waiting_letters import WaitingLetters
from pulsar_spark.client.arguments import check_count, check_type
from pulsar_spark.client.message import Message
from pulsar_spark.described import Described
from pulsar_spark.errors import InvalidConfiguration, NotAllowedError
from pulsar_spark.link.requester import Requester, require_root
from pulsar_spark.protocol.message_id import MessageId
from pulsar_spark.protocol.policies import deduplication_status
from pulsar_spark.protocol.routing import HashingScheme, partition_for_key
from pulsar_spark.protocol.topic_name import DEFAULT_NAMESPACE, check_subscription, parse_namespace, parse_topic_name
from pulsar_spark.storage import forks
from pulsar_spark.storage.away import saw_root
from pulsar_spark.storage.bundles import layout_of
from pulsar_spark.storage.cursor_ledger import read_latest
from pulsar_spark.storage.layout import Layout, parse_service_url
from pulsar_spark.storage.lost import lost_entries_of
from pulsar_spark.storage.mending import mend_topic
from pulsar_spark.storage.partitions import raise_partitions
from pulsar_spark.storage.topics import (
    Topic,
    create_namespace,
    create_topic,
    delete_topic,
    is_root,
    list_topics,
    prepare_root,
    read_topic,
    resolve_topic,
)
from pulsar_spark.views.stats import Observation, partition_stats, read_stored, sum_stats


class Admin(
    Described,
    BundleVerbs,
    Subscriptions,
    KeyHashes,
    Policies,
    Schemas,
    SetAsideVerbs,
    WaitingLetters,
    ScheduledMessages,
    IncompleteChunks,
    RawChunks,
    TopicCompaction,
    Doctor,
):
    """Administration of the root that *service_url* names (``delta:<root>``).

    Calls that need the broker wait at most *timeout_seconds* for its answer and raise
    :class:`~pulsar_spark.errors.Timeout` without one.

    What many methods are given:

    - ``topic``: a topic in any of Pulsar's spellings, all of it or, ``...-partition-N``, a partition; ``subscription``:
      the name of one on it. Where both may be left out, all are meant.
    - ``scope``: where a policy holds: a namespace (``tenant/namespace``), a topic in any of those spellings, or
      ``broker`` for all of the root. ``name`` and ``value``: a policy's, as ``pulsar-spark policies list`` shows them.
    - ``namespace``: ``tenant/namespace``.
    - ``ledger_id`` and ``entry_id``: where a message lies, as its id says.
    - ``hashing_scheme``: the hash of partition keys that the topic's producers have.
    - ``dry_run``: nothing is done, and what would be is told.
    """

    def __init__(self, service_url: str, *, timeout_seconds: float = 30):
        forks.check_usable()
        layout = Layout(parse_service_url(service_url))
        if is_root(layout):
            saw_root(layout)
        super().__init__(layout, Requester(layout, timeout_seconds=timeout_seconds))
        self._timeout_seconds = timeout_seconds

    def _facts(self) -> dict[str, object]:
        return {"root": str(self.layout.root), "timeout_seconds": self._timeout_seconds}

    # Namespaces

    def create_namespace(self, namespace: str) -> None:
        """Make a *namespace*, ``tenant/namespace``, and its tenant; :class:`NotAllowedError` when it exists."""
        create_namespace(self.layout, namespace)

    def namespaces(self, tenant: str | None = None) -> list[str]:
        """``tenant/namespace`` of all that were made, or of those of a *tenant*; ``public/default`` is always there."""
        made = {*self.layout.namespaces(), DEFAULT_NAMESPACE}
        return sorted("/".join(pair) for pair in made if tenant in (None, pair[0]))

    # Topics

    def create_topic(self, topic: str) -> None:
        """Create a topic without partitions; :class:`NotAllowedError` when it exists."""
        create_topic(self.layout, topic)

    def create_partitioned_topic(self, topic: str, partitions: int) -> None:
        """Create a topic of *partitions* partitions; :class:`NotAllowedError` when it exists."""
        if isinstance(partitions, int) and partitions < 1:
            raise InvalidConfiguration(
                f"partitions {partitions!r}: give at least 1, or create a topic without partitions with create_topic"
            )
        create_topic(self.layout, topic, partitions)

    def update_partitioned_topic(self, topic: str, partitions: int) -> None:
        """Raise the number of a topic's *partitions*; its subscriptions get the new ones from the first message on, for
        which the broker is asked. Said again with the same number it does what is left of that.

        :class:`NotAllowedError` for fewer than there are, and for a topic without partitions. Clients that have the
        topic open follow within seconds. A key may go to another partition from then on.
        """
        found = raise_partitions(self.layout, topic, partitions)
        there = {
            key[1:]
            for key in read_latest(layout_of(self.layout, found.name), "cursor").cursors
            if key.topic_id == found.topic_id
        }
        replies = self._requester.replies(
            [
                {
                    "kind": "create_subscription",
                    "topic": str(found.name),
                    "partition": partition,
                    "subscription": subscription,
                    "properties": {"initial_position": "Earliest"},
                }
                for subscription in sorted({subscription for _, subscription in there})
                for partition in found.partition_indexes
                if (partition, subscription) not in there
            ]
        )
        for reply in replies:
            if reply.error is not None and not isinstance(reply.error, NotAllowedError):  # a consumer was quicker
                raise reply.error

    def partition_for_key(self, topic: str, key: str, hashing_scheme: HashingScheme = HashingScheme.BoostHash) -> str:
        """Name of the partition that messages with *key* go to; of a topic without partitions, or a partition by its
        own name, that name."""
        found, partitions = resolve_topic(self.layout, topic)
        return str(found.name.partition(partitions[partition_for_key(key, len(partitions), hashing_scheme)]))

    def delete_topic(self, topic: str, force: bool = False) -> None:
        """Delete the topic with its messages and subscriptions; refused while consumers are connected unless
        *force*."""
        found = read_topic(self.layout, topic)
        consumers = read_latest(layout_of(self.layout, found.name), "consumer").consumers
        connected = {
            row["consumer_name"]
            for key, rows in consumers.items()
            if key.topic_id == found.topic_id
            for row in rows.values()
        }
        if connected and not force:
            raise NotAllowedError(
                f"topic {str(found.name)!r} has connected consumers ({', '.join(sorted(connected))}): close them "
                "or force the deletion"
            )
        delete_topic(self.layout, topic)

    def topics(self, namespace: str) -> list[str]:
        """Full names of the topics of ``tenant/namespace``; of a partitioned topic each partition, as in Pulsar."""
        return [
            str(topic.name.partition(index)) for topic in self._topics(namespace) for index in topic.partition_indexes
        ]

    def list_partitioned_topics(self, namespace: str) -> list[str]:
        """Full names of the partitioned topics of ``tenant/namespace``."""
        return [str(topic.name) for topic in self._topics(namespace) if topic.partitions]

    def list_topics(self, namespace: str | None = None) -> list[dict]:
        """``topic`` and ``partitions`` of every topic of *namespace*, or of the root; a partitioned topic is one
        entry."""
        require_root(self.layout)
        namespaces = [parse_namespace(namespace)] if namespace else self.layout.namespaces()
        return [
            {"topic": str(topic.name), "partitions": topic.partitions}
            for pair in namespaces
            for topic in list_topics(self.layout, *pair)
        ]

    def partitioned_topic_metadata(self, topic: str) -> dict:
        """``{"partitions": n}``, 0 for a topic without partitions."""
        return {"partitions": read_topic(self.layout, topic).partitions}

    def describe(self, topic: str) -> dict:
        """What the topic is and holds: name, id, path, partitions, subscriptions, messages and bytes."""
        found = read_topic(self.layout, topic)
        stored = read_stored(found)
        return {
            "topic": str(found.name),
            "topicId": found.topic_id,
            "path": str(found.path),
            "partitions": found.partitions,
            "messages": {index: part.messages for index, part in stored.items()},
            "storageSize": sum(part.size for part in stored.values()),
            "subscriptions": self.subscriptions(topic),
        }

    def unload(self, topic: str) -> None:
        """Let go of all consumers of a topic, which subscribe again by themselves: what they have not acknowledged
        comes again, with the redelivery count it had. A broker has nothing else to unload: what it holds in memory is
        what it committed."""
        self._ask(topic, None, "unload")

    def reset_namespace(self, namespace: str) -> None:
        """Delete all topics of ``tenant/namespace`` and remove its policies; the namespace exists afterwards, and is
        made where it did not."""
        tenant, name = parse_namespace(namespace)
        prepare_root(self.layout)
        for topic in list_topics(self.layout, tenant, name):
            delete_topic(self.layout, topic.name)
        self.layout.make_namespace(tenant, name)
        self.remove_policies(namespace, *self.get_policies(namespace))

    def lost_messages(self, topic: str) -> list[dict]:
        """Stretches of messages that are lost: their file was taken by hand, or is damaged. Positions, ledger and entry
        ids, how many, and the file. Reads every file of the topic."""
        found, partitions = resolve_topic(self.layout, topic)
        return [each._asdict() for each in lost_entries_of(self.layout, found, partitions)]

    def mend(self, topic: str, dry_run: bool = False) -> list[dict]:
        """Take out of the way what stops the topic, and remove rows that are no publish; what was done, or with
        *dry_run* would be. Needs no broker."""
        return [each._asdict() for each in mend_topic(self.layout, read_topic(self.layout, topic), dry_run=dry_run)]

    # Messages

    def peek_messages(self, topic: str, subscription: str, messages: int = 1, at: int | MessageId = 0) -> list[Message]:
        """The next *messages* of the subscription's backlog, fewer where it ends; with *at* only from that position or
        entry on.

        Nothing is acknowledged or moved, and what a consumer holds is shown too. Of a partitioned topic, name one
        partition, or give an id of one.
        """
        check_count("messages", messages)
        return list(itertools.islice(self.backlog(topic, subscription, at), messages))

    def backlog(self, topic: str, subscription: str, at: int | MessageId = 0) -> Iterator[Message]:
        """What :meth:`peek_messages` gives, *at* a place or all of it, one by one: who keeps none needs the memory of
        one."""
        check_subscription(subscription)
        found, first = place_of(self.layout, topic, at)
        return found.backlog(subscription, first)

    def get_message_by_id(self, topic: str, ledger_id: int, entry_id: int) -> Message:
        """One message, acknowledged or not; of a batch the first. Of a partitioned topic, name one partition."""
        return self.get_messages_by_id(topic, ledger_id, entry_id)[0]

    def get_messages_by_id(self, topic: str, ledger_id: int, entry_id: int) -> list[Message]:
        """All messages of one entry. Of a partitioned topic, name one partition."""
        check_type(int, ledger_id, "ledger_id")
        check_type(int, entry_id, "entry_id")
        return self.get_messages_at(topic, MessageId(-1, ledger_id, entry_id))

    def get_messages_at(self, topic: str, at: int | MessageId) -> list[Message]:
        """All messages of the entry at a position, or of the entry that *at* names."""
        found, position = place_of(self.layout, topic, at)
        return found.at(position)

    # Stats

    def stats(self, topic: str) -> dict:
        """The topic's stats in the shape of Pulsar's; of a partitioned topic the sums, with each partition's under
        ``partitions``."""
        found, partitions = resolve_topic(self.layout, topic)
        observed = Observation(layout_of(self.layout, found.name))
        stored = observed.stored(found)
        of_topic = {
            "deduplicationStatus": deduplication_status(observed.latest.policies, str(found.name)),
            "compaction": compaction_stats(found),
        }
        parts = {index: partition_stats(observed, found, index, stored[index]) | of_topic for index in partitions}
        if not found.partitions or str(found.name) != str(parse_topic_name(topic)):
            return parts[partitions[0]]
        return {
            **sum_stats(parts),
            **of_topic,
            "partitions": {str(found.name.partition(index)): part for index, part in parts.items()},
        }

    def _topics(self, namespace: str) -> list[Topic]:
        require_root(self.layout)
        return list_topics(self.layout, *parse_namespace(namespace))
