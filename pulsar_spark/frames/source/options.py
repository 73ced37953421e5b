"""The options of ``format("pulsar_spark")``, parsed and checked.

Options have the names of the client's and the DataFrame API's arguments. Case and underscores do not count:
``maxMessagesPerTrigger`` is ``max_messages_per_trigger``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.protocol.suggestions import close_names, did_you_mean

BATCH_READ, STREAM_READ, SUBSCRIPTION = "a batch read", "a stream without a subscription", "a subscription"
BATCH_WRITE, STREAM_WRITE = "a batch write", "a stream write"
_READS = (BATCH_READ, STREAM_READ, SUBSCRIPTION)
_STREAMS = (STREAM_READ, SUBSCRIPTION)
_WRITES = (BATCH_WRITE, STREAM_WRITE)
OURS, CONNECTOR = "pulsar_spark", "connector"
TOPIC_SCHEMA = "topic"
EARLIEST, LATEST = "earliest", "latest"

_OF_SPARK = {"checkpointlocation", "queryname"}
"""Options that Spark passes on to every source or sink."""
_OF_OTHERS = {
    "path": "root",
    "service.url": "root",
    "admin.url": "root",
    "kafka.bootstrap.servers": "root",
    "subscribe": "topic or topics",
    "assign": "topic or topics, and startingPosition",
    "subscribepattern": "topicsPattern",
    "startingoffsets": "startingPosition",
    "endingoffsets": "endingPosition",
    "startingtime": "startingPosition",
    "endingtime": "endingPosition",
    "startingtimestamp": "startingPosition",
    "endingtimestamp": "endingPosition",
    "startingoffsetsbytimes": "startingPosition",
    "endingoffsetsbytimes": "endingPosition",
    "startingoffsetsbytimestamp": "startingPosition",
    "endingoffsetsbytimestamp": "endingPosition",
    "maxoffsetspertrigger": "maxMessagesPerTrigger",
    "minoffsetspertrigger": "trigger(processingTime=...)",
    "maxtriggerdelay": "trigger(processingTime=...)",
    "maxrecordsperpartition": "maxMessagesPerTrigger",
    "minpartitions": "repartition() after the read",
    "startingoffsetsbytimestampstrategy": "startingPosition",
    "kafkaconsumer.polltimeoutms": "operationTimeoutSeconds",
    "fetchoffset.numretries": "operationTimeoutSeconds",
    "fetchoffset.retryintervalms": "operationTimeoutSeconds",
    "maxfilespertrigger": "maxMessagesPerTrigger or maxBytesPerTrigger",
    "predefinedsubscription": "subscription",
    "subscriptionprefix": "subscription",
    "subscriptionnameprefix": "subscription",
    "subscriptionname": "subscription",
    "consumertype": "subscriptionType",
    "groupidprefix": "subscription",
    "kafka.group.id": "subscription",
    "includeheaders": "no option: the column properties is always there",
    "topicname": "topic",
    "topicnames": "topics",
}
"""Options of Spark's Kafka source, of the Pulsar-Spark connector and of other clients, and what to give instead."""
_PREFIXES_OF_OTHERS = ("kafka.", "pulsar.client.", "pulsar.reader.", "pulsar.producer.", "pulsar.admin.")


_MOST = 1 << 53
"""Of bytes, messages and times; so sums of them have 64 bits."""


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("give true or false")
    return text.lower() == "true"


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= _MOST:
        raise ValueError(f"give a number of at least 1, and {_MOST} at most")
    return int(text)


def _number(text: str) -> int:
    if not (text.isascii() and text.removeprefix("-").isdigit()):
        raise ValueError("give a whole number")
    return int(text)


def _option(*uses: str, parse: Callable[[str], Any] = str, default: Any = None) -> Any:
    return field(default=default, metadata={"uses": uses, "parse": parse})


@dataclass(frozen=True)
class SourceOptions:
    """The options as given, or their defaults. None: not given."""

    root: str = _option(*_READS, *_WRITES, default="")
    topic: str | None = _option(*_READS, *_WRITES)
    topics: tuple[str, ...] = _option(*_READS, parse=_names, default=())
    topics_pattern: str | None = _option(*_READS)
    columns: str = _option(*_READS, default=OURS)
    value_schema: str | None = _option(*_READS, *_WRITES)
    private_key_path: str | None = _option(*_READS)
    crypto_failure_action: str = _option(*_READS, *_WRITES, default="FAIL")

    starting_position: str = _option(BATCH_READ, STREAM_READ, default=EARLIEST)
    ending_position: str = _option(BATCH_READ, default=LATEST)
    pattern_auto_discovery_period: int = _option(*_STREAMS, parse=_number, default=60)
    max_messages_per_trigger: int | None = _option(*_STREAMS, parse=_count)
    max_bytes_per_trigger: int | None = _option(*_STREAMS, parse=_count)

    subscription: str | None = _option(SUBSCRIPTION)
    subscription_type: str = _option(SUBSCRIPTION, default="Exclusive")
    consumer_name: str | None = _option(SUBSCRIPTION)
    initial_position: str = _option(SUBSCRIPTION, default="Earliest")
    priority_level: int = _option(SUBSCRIPTION, parse=_number, default=0)
    max_redeliver_count: int | None = _option(SUBSCRIPTION, parse=_count)
    dead_letter_topic: str | None = _option(SUBSCRIPTION)
    initial_subscription_name: str | None = _option(SUBSCRIPTION)
    fail_on_data_loss: bool = _option(SUBSCRIPTION, parse=_flag, default=True)
    lease_ms: int = _option(SUBSCRIPTION, parse=_count, default=300_000)
    operation_timeout_seconds: int = _option(SUBSCRIPTION, parse=_count, default=30)

    producer_name: str | None = _option(*_WRITES)
    hashing_scheme: str = _option(*_WRITES, default="JavaStringHash")
    properties_from: tuple[str, ...] = _option(*_WRITES, parse=_names, default=())
    compression: str | None = _option(*_WRITES)
    encryption_key: tuple[str, ...] = _option(*_WRITES, parse=_names, default=())
    public_key_path: str | None = _option(*_WRITES)
    max_message_size: int | None = _option(*_WRITES, parse=_count)
    deduplicate: bool = _option(*_WRITES, parse=_flag, default=True)
    create: bool = _option(SUBSCRIPTION, *_WRITES, parse=_flag, default=True)
    send_timeout_millis: int = _option(*_WRITES, parse=_number, default=30_000)
    app_id: str | None = _option(*_WRITES)
    app_version: int | None = _option(BATCH_WRITE, parse=_number)

    given: frozenset[str] = frozenset()
    """The names of the fields that were given."""

    def check_use(self, use: str) -> None:
        """:class:`InvalidConfiguration` if an option was given that does not belong to *use*, such as
        :data:`BATCH_READ`."""
        for name in sorted(self.given):
            uses = _FIELDS[_plain(name)].metadata["uses"]
            if use not in uses:
                raise InvalidConfiguration(
                    f"option {shown_name(name)!r} does not belong to {use}, but to {' or '.join(uses)}: leave it out"
                )


_FIELDS = {each.name.replace("_", ""): each for each in fields(SourceOptions) if each.metadata}


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def shown_name(name: str) -> str:
    """The option *name* in Spark's spelling.

    >>> shown_name("max_messages_per_trigger")
    'maxMessagesPerTrigger'
    """
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """The options of a read or write; :class:`InvalidConfiguration` for an unknown, invalid, missing or contradicting
    one."""
    found: dict[str, Any] = {}
    for name, text in options.items():
        known = _FIELDS.get(_plain(name))
        if known is None:
            if name.lower() not in _OF_SPARK:
                raise _unknown(name)
            continue
        if known.name in found:
            raise InvalidConfiguration(f"option {shown_name(known.name)!r} is given twice, as {name!r} too: give one")
        try:
            found[known.name] = known.metadata["parse"](text)
        except ValueError as wrong:
            raise InvalidConfiguration(f"option {shown_name(known.name)!r} is {text!r}: {wrong}") from None
    parsed = SourceOptions(**found, given=frozenset(found))
    if not parsed.root:
        raise InvalidConfiguration(
            'there is no option \'root\': give the root\'s folder or URL, .option("root", "/data/pulsar")'
        )
    _check_topics(parsed)
    for name in ("dead_letter_topic", "initial_subscription_name"):
        if getattr(parsed, name) is not None and parsed.max_redeliver_count is None:
            raise InvalidConfiguration(
                f"option {shown_name(name)!r} is part of a dead letter policy: give maxRedeliverCount as well"
            )
    if parsed.columns not in (OURS, CONNECTOR):
        raise InvalidConfiguration(f"option 'columns' is {parsed.columns!r}: give {OURS!r} or {CONNECTOR!r}")
    if parsed.value_schema not in (None, TOPIC_SCHEMA):
        raise InvalidConfiguration(
            f"option 'valueSchema' is {parsed.value_schema!r}: give {TOPIC_SCHEMA!r}, the topic's schema"
        )
    if parsed.value_schema and parsed.columns == CONNECTOR:
        raise InvalidConfiguration("options valueSchema and columns contradict each other: leave one out")
    return parsed


def _check_topics(options: SourceOptions) -> None:
    given = [name for name in ("topic", "topics", "topics_pattern") if getattr(options, name)]
    if len(given) != 1:
        there = (
            f"options {' and '.join(map(shown_name, given))} contradict each other" if given else "there is no topic"
        )
        raise InvalidConfiguration(f"{there}: give one of the options topic, topics and topicsPattern")


def _unknown(name: str) -> InvalidConfiguration:
    lower = name.lower()
    ours = _OF_OTHERS.get(lower)
    if ours is None and lower.startswith(_PREFIXES_OF_OTHERS):
        ours = "root, the folder of the tables: there is no connection to a cluster"
    if ours is not None:
        return InvalidConfiguration(f"option {name!r} belongs to another source: give {ours} instead")
    known = {shown_name(each.name): "" for each in _FIELDS.values()}
    return InvalidConfiguration(f"option {name!r} is unknown{did_you_mean(close_names(name, known)) or _listed(known)}")


def _listed(known: Mapping[str, str]) -> str:
    return f": give one of {', '.join(sorted(known))}"
