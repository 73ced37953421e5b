"""Stats of a partitioned topic, summed over its partitions."""

from pulsar_spark.views.key_shared import add_key_shared
from pulsar_spark.views.stats import DELETED_RANGES, ERROR_FIELDS, HARM_FIELDS

_SUMMED_OF_TOPIC = ("msgInCounter", "msgRateIn", "storageSize", "backlogSize")
_SUMMED = tuple(
    (
        "msgBacklog msgBacklogNoDelayed unackedMessages msgOutCounter msgRedeliverCounter ackedEntries msgDelayed "
        "msgRateOut msgRateRedeliver waitingLetters letterlessMessages"
    ).split()
)
_SUMMED_OF_CONSUMER = tuple(
    ("availablePermits unackedMessages msgOutCounter msgRedeliverCounter msgRateOut msgRateRedeliver").split()
)


def sum_stats(partitions: dict[int, dict]) -> dict:
    """Stats of a topic from those of its *partitions*. Counters are summed; each producer, subscription and consumer
    appears once."""
    total = {name: sum(stats[name] for stats in partitions.values()) for name in _SUMMED_OF_TOPIC}
    with_error = next((stats for stats in partitions.values() if "error" in stats), {})
    total |= {name: with_error.get(name) for name in ERROR_FIELDS}
    total |= {name: sum(stats.get(name, 0) for stats in partitions.values()) for name in HARM_FIELDS}
    only_if_any = (*ERROR_FIELDS, *HARM_FIELDS)  # as in the stats of a partition
    total = {name: value for name, value in total.items() if value or name not in only_if_any}
    publishers = {each["producerName"]: each for stats in partitions.values() for each in stats["publishers"]}
    subscriptions: dict[str, dict] = {}
    for stats in partitions.values():
        for name, subscription in stats["subscriptions"].items():
            if name not in subscriptions:
                subscriptions[name] = {
                    "type": subscription["type"],
                    **dict.fromkeys((*_SUMMED, DELETED_RANGES), 0),
                    "oldestUnackedSeconds": None,
                    "deadLetters": 0,
                    "blockedSubscriptionOnUnackedMsgs": False,
                    "consumers": {},
                }
            _add_subscription(subscriptions[name], subscription)
    for subscription in subscriptions.values():
        subscription["consumers"] = list(subscription["consumers"].values())
    total["publishers"] = [publishers[name] for name in sorted(publishers)]
    return {**total, "subscriptions": dict(sorted(subscriptions.items()))}


def _add_subscription(total: dict, subscription: dict) -> None:
    if "error" in subscription:
        total |= {name: subscription[name] for name in ERROR_FIELDS}
    total["type"] = total["type"] or subscription["type"]
    total["blockedSubscriptionOnUnackedMsgs"] |= subscription["blockedSubscriptionOnUnackedMsgs"]
    total["oldestUnackedSeconds"] = _oldest(total, subscription)
    # each partition counts the letters of the dead letter topic that all share
    total["deadLetters"] = max(total["deadLetters"], subscription["deadLetters"])
    for counter in _SUMMED:
        total[counter] += subscription[counter]
    deleted_ranges = total[DELETED_RANGES], subscription[DELETED_RANGES]
    total[DELETED_RANGES] = None if None in deleted_ranges else sum(deleted_ranges)
    add_key_shared(total, subscription)
    for consumer in subscription["consumers"]:
        so_far = total["consumers"].get(consumer["consumerId"])
        if so_far is None:
            total["consumers"][consumer["consumerId"]] = dict(consumer)
        else:
            so_far.update({counter: so_far[counter] + consumer[counter] for counter in _SUMMED_OF_CONSUMER})
            add_key_shared(so_far, consumer)
            so_far["oldestUnackedSeconds"] = _oldest(so_far, consumer)
            so_far["blockedConsumerOnUnackedMsgs"] |= consumer["blockedConsumerOnUnackedMsgs"]


def _oldest(*stats: dict) -> float | None:
    return max((one["oldestUnackedSeconds"] for one in stats if one["oldestUnackedSeconds"] is not None), default=None)
