"""Class :class:`Admin`; its bases have the verbs of each subject."""

from pulsar_spark.admin.brokers import Brokers
from pulsar_spark.admin.bundles import BundleVerbs
from pulsar_spark.admin.chunks import IncompleteChunks
from pulsar_spark.admin.compaction import TopicCompaction, compaction_stats
from pulsar_spark.admin.doctor import Doctor
from pulsar_spark.admin.explain import ExplainVerb
from pulsar_spark.admin.key_hashes import KeyHashes
from pulsar_spark.admin.namespaces import Namespaces
from pulsar_spark.admin.peek import Messages
from pulsar_spark.admin.raw_chunks import RawChunks
from pulsar_spark.admin.scheduled import ScheduledMessages
from pulsar_spark.admin.schemas import Schemas
from pulsar_spark.admin.set_aside import SetAsideVerbs
from pulsar_spark.admin.subscriptions import Subscriptions
from pulsar_spark.admin.waiting_letters import WaitingLetters
from pulsar_spark.described import Described
from pulsar_spark.errors import InvalidConfiguration, NotAllowedError
from pulsar_spark.link.requester import Requester, require_root
from pulsar_spark.protocol.policies.policies import deduplication_since
from pulsar_spark.protocol.topics.routing import HashingScheme, partition_for_key
from pulsar_spark.protocol.topics.topic_name import parse_namespace, parse_topic_name
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.entries.lost import lost_entries_of
from pulsar_spark.storage.layout import Layout, parse_service_url
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.processes import forks
from pulsar_spark.storage.repair.mending import mend_topic
from pulsar_spark.storage.store.away import saw_root
from pulsar_spark.storage.topics.bundles import layout_of
from pulsar_spark.storage.topics.partitions import raise_partitions
from pulsar_spark.storage.topics.topics import (
    Topic,
    create_topic,
    delete_topic,
    is_root,
    list_topics,
    read_topic,
    resolve_topic,
)
from pulsar_spark.views.stats import Observation, partition_stats, read_stored
from pulsar_spark.views.stats_sums import sum_stats


class Admin(
    Described,
    BundleVerbs,
    Brokers,
    Subscriptions,
    KeyHashes,
    Messages,
    Namespaces,
    Schemas,
    SetAsideVerbs,
    WaitingLetters,
    ScheduledMessages,
    IncompleteChunks,
    RawChunks,
    TopicCompaction,
    ExplainVerb,
    Doctor,
):
    """Administration of the root *service_url* (``delta:<root>``).

    Calls that need the broker wait up to *timeout_seconds* for its answer, then raise
    :class:`~pulsar_spark.errors.Timeout`.

    Arguments of many methods:

    - ``topic``: a topic in any of Pulsar's spellings, or one partition of it (``...-partition-N``). ``subscription``:
      the name of a subscription on it. Where both are optional, the default is all.
    - ``scope``: where a policy applies: a namespace (``tenant/namespace``), a topic, or ``broker`` for the whole root.
      ``name`` and ``value``: those of a policy, as ``pulsar-spark policies list`` shows them.
    - ``namespace``: ``tenant/namespace``.
    - ``ledger_id`` and ``entry_id``: the position of a message, as in its id.
    - ``hashing_scheme``: the hash of partition keys that the topic's producers use.
    - ``dry_run``: change nothing, and report what would be done.
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

    def create_topic(self, topic: str) -> None:
        """Create a topic without partitions; :class:`NotAllowedError` if it exists."""
        create_topic(self.layout, topic)

    def create_partitioned_topic(self, topic: str, partitions: int) -> None:
        """Create a topic with this number of *partitions*; :class:`NotAllowedError` if it exists."""
        if isinstance(partitions, int) and partitions < 1:
            raise InvalidConfiguration(
                f"partitions {partitions!r}: give at least 1, or create a topic without partitions with create_topic"
            )
        create_topic(self.layout, topic, partitions)

    def update_partitioned_topic(self, topic: str, partitions: int) -> None:
        """Raise the number of a topic's *partitions*. Its subscriptions read the new ones from the first message, for
        which the call needs the broker.

        A repeated call with the same number completes an interrupted one. :class:`NotAllowedError` for a smaller
        number, and for a topic without partitions. A key may then go to another partition.
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
            if reply.error is not None and not isinstance(reply.error, NotAllowedError):  # a consumer created it first
                raise reply.error

    def partition_for_key(self, topic: str, key: str, hashing_scheme: HashingScheme = HashingScheme.BoostHash) -> str:
        """The name of the partition for messages with *key*; the topic's own name if it has no partitions or is one."""
        found, partitions = resolve_topic(self.layout, topic)
        return str(found.name.partition(partitions[partition_for_key(key, len(partitions), hashing_scheme)]))

    def delete_topic(self, topic: str, force: bool = False) -> None:
        """Delete the topic with its messages and subscriptions; refused while consumers are connected, unless
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
        """The full names of the topics of a namespace; for a partitioned topic each partition, as in Pulsar."""
        return [
            str(topic.name.partition(index)) for topic in self._topics(namespace) for index in topic.partition_indexes
        ]

    def list_partitioned_topics(self, namespace: str) -> list[str]:
        """The full names of the partitioned topics of a namespace."""
        return [str(topic.name) for topic in self._topics(namespace) if topic.partitions]

    def list_topics(self, namespace: str | None = None) -> list[dict]:
        """``topic`` and ``partitions`` of every topic of *namespace*, or of the root. A partitioned topic is one
        entry."""
        require_root(self.layout)
        namespaces = [parse_namespace(namespace)] if namespace else self.layout.namespaces()
        return [
            {"topic": str(topic.name), "partitions": topic.partitions}
            for pair in namespaces
            for topic in list_topics(self.layout, *pair)
        ]

    def partitioned_topic_metadata(self, topic: str) -> dict:
        """``{"partitions": n}``; 0 for a topic without partitions."""
        return {"partitions": read_topic(self.layout, topic).partitions}

    def truncate(self, topic: str) -> list[dict]:
        """Acknowledge all messages on all subscriptions, and remove them whatever retention says; the newest publish
        commit of each partition stays, as the open ledger does in Pulsar.

        Returns a row per partition: ``topic``, ``first_position`` (the first that is left), ``files`` and ``bytes``
        that were removed, and ``kept_by``. Needs the broker if there are subscriptions. :class:`NotAllowedError` if
        letters wait to be written.
        """
        from pulsar_spark.admin.upkeep import trim  # here, because it imports pandas

        found, partitions = resolve_topic(self.layout, topic)
        for subscription in self.subscriptions(topic):
            self.clear_backlog(topic, subscription)
        rows = []
        for partition in partitions:
            latest = read_latest(layout_of(self.layout, found.name), "cursor")
            of_topic = [row for key, row in latest.cursors.items() if key[:2] == (found.topic_id, partition)]
            end = LedgerIndex(self.layout).of(found).end(found.topic_id, partition)
            before = min((row["mark_delete_position"] + 1 for row in of_topic), default=end)
            rows += trim(self.layout, str(found.name.partition(partition)), before=before)
        return rows

    def describe(self, topic: str) -> dict:
        """Name, id, path, partitions, subscriptions, messages and bytes of the topic."""
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
        """Disconnect all consumers of a topic, which subscribe again. Their unacknowledged messages keep their
        redelivery count."""
        self._ask(topic, None, "unload")

    def lost_messages(self, topic: str) -> list[dict]:
        """The ranges of messages whose file was deleted by hand or is damaged: positions, ledger and entry ids, count
        and file."""
        found, partitions = resolve_topic(self.layout, topic)
        return [each._asdict() for each in lost_entries_of(self.layout, found, partitions)]

    def mend(self, topic: str, dry_run: bool = False) -> list[dict]:
        """Repair a stopped topic: set the unreadable commit aside and remove rows that are not valid messages. Returns
        what was done. Needs no broker."""
        return [each._asdict() for each in mend_topic(self.layout, read_topic(self.layout, topic), dry_run=dry_run)]

    def stats(self, topic: str) -> dict:
        """The topic's statistics in the shape of Pulsar's. For a partitioned topic these are sums, with those of each
        partition under ``partitions``."""
        found, partitions = resolve_topic(self.layout, topic)
        observed = Observation(layout_of(self.layout, found.name))
        stored, since = observed.stored(found), deduplication_since(observed.latest.policies, str(found.name))
        of_topic = {
            "deduplicationStatus": "Disabled" if since is None else "Enabled",
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
