"""Consume a subscription as DataFrames: a function is called with each delivery.

Delivery is at least once; ``delta_sink`` makes it exactly once."""

import os
import time
from collections.abc import Callable, Sequence
from typing import Literal

from pyspark.sql import SparkSession

from pulsar_spark.client.arguments import one_of
from pulsar_spark.client.model.enums import ConsumerCryptoAction, Position, SubscriptionType
from pulsar_spark.client.model.policies import ConsumerDeadLetterPolicy, ConsumerKeySharedPolicy
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.frames.consuming.call import Caller, ConsumeFunction
from pulsar_spark.frames.consuming.consumer_thread import ConsumerThread
from pulsar_spark.frames.consuming.consumption import Consumption
from pulsar_spark.frames.consuming.letters import FrameLetters
from pulsar_spark.frames.consuming.membership import DEFAULT_INITIAL_POSITION, MAX_MESSAGES, SubscribeOptions
from pulsar_spark.frames.reading.payload_batches import KeyReader
from pulsar_spark.frames.reading.payloads import Decoding
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.spark.spark_root import layout_for_frames
from pulsar_spark.storage.topics.bundles import layout_of
from pulsar_spark.storage.topics.topics import existing_topic, prepare_root, resolve_topic

ON_ERROR = ("give_back", "stop")


def consume(
    spark: SparkSession,
    root: str | os.PathLike,
    topic: str,
    subscription: str,
    function: ConsumeFunction,
    *,
    subscription_type: SubscriptionType = "Exclusive",
    consumer_name: str | None = None,
    initial_position: Position = DEFAULT_INITIAL_POSITION,
    max_messages: int = MAX_MESSAGES,
    available_now: bool = False,
    on_error: Literal["give_back", "stop"] = "give_back",
    columns: Sequence[str] | None = None,
    with_payload: bool = True,
    priority_level: int = 0,
    key_shared_policy: ConsumerKeySharedPolicy | None = None,
    sorted_by_key: bool = False,
    dead_letter_policy: ConsumerDeadLetterPolicy | None = None,
    retry_enable: bool = False,
    crypto_key_reader: KeyReader | None = None,
    crypto_failure_action: ConsumerCryptoAction = "FAIL",
    create: bool = False,
    timeout: float = 30.0,
    clock: Callable[[], float] = time.monotonic,
) -> "Consumption":
    """Consume *subscription* of *topic*: call ``function(messages, delivery)`` (*function*) with each delivery until
    stopped.

    The root is the folder *root*, and the session *spark* reads it. The function runs in a thread of its own. When it
    returns, the messages are acknowledged; when it raises, they are given back; when it returns a frame of outcomes,
    each row decides about its message (see ``delivery``).

    *subscription_type* is "Exclusive", "Shared", "Failover" or "KeyShared". Consumers with a lower *priority_level* are
    served first and, on Failover, chosen first. A missing topic raises :class:`TopicNotFound`; with *create* it is
    created. A new subscription starts at *initial_position*: here "Earliest" by default, because a scheduled run that
    starts at "Latest" would silently do nothing.

    **The frame.** *messages* has the columns of the messages table and ``ledger_id``, ``position`` and
    ``redelivery_count``, or those in *columns* and ``partition``; without *with_payload* there is no payload. Rows have
    no order. Use the frame only inside the function, because its files may be deleted afterwards. A delivery has at
    most *max_messages*, over all partitions.

    **Key_Shared.** Each key has one consumer, chosen by *key_shared_policy* and the topic's policies, and *messages*
    also has ``sticky_key_hash``. Order holds per key and across deliveries: after a give-back no later message of the
    key is handled first. With *sorted_by_key*, on any type, all messages of a key in a delivery are in one task and in
    order. Keys with the same hash may be interleaved.

    **When it ends.** With *available_now* it ends once everything published before the start has been handled. Messages
    given back are left for the next run, and an error of the function is raised at the end. Otherwise an error is
    logged, and the function is called again after 1, 2, 4... and at most 60 seconds by *clock* (monotonic seconds).
    With *on_error* "stop" it ends at the first error.

    **Dead letters.** A message that is given back more often than *dead_letter_policy* allows becomes a dead letter.
    With *retry_enable* the function may put messages off (see ``letters``). To see these again, consume the retry
    letter topic too.

    **Payloads** come decompressed, and decrypted with the private keys of *crypto_key_reader*: a
    :class:`CryptoKeyReader` of files, or a function that makes one. *crypto_failure_action* decides about a message
    that cannot be decrypted. "FAIL" leaves it out, unacknowledged, and reports an error that names it. "DISCARD"
    acknowledges it. "CONSUME" passes it on as stored; then also ask for the *columns* ``encryption_keys``,
    ``encryption_param``, ``compression`` and ``uncompressed_size``. A message that cannot be decompressed is treated as
    with "FAIL".

    If this process already runs a consumer with this *consumer_name* on the subscription, that one is stopped first: a
    notebook cell can run again. Raises the broker's refusal, such as :class:`ConsumerBusy`, or :class:`Timeout` if no
    broker answers within *timeout* seconds."""
    options = SubscribeOptions.checked(
        subscription, subscription_type, consumer_name, initial_position, priority_level, key_shared_policy
    )
    one_of("on_error", on_error, ON_ERROR)
    decoding = Decoding.checked(crypto_key_reader, crypto_failure_action)
    if max_messages < 1:
        raise InvalidConfiguration(f"max_messages {max_messages!r}: ask for 1 message or more")
    layout = layout_for_frames(spark, root)
    if create:
        prepare_root(layout)
        found, partitions = resolve_topic(layout, topic, create=True)
    else:
        found, partitions = existing_topic(layout, topic, "create=True")
    if dead_letter_policy is not None or retry_enable:
        letters = FrameLetters(
            layout, found, subscription, options.consumer_name, dead_letter_policy, retry_enable=retry_enable
        )
        letters.prepare(timeout)
        options = options._replace(letters=letters)
    caller = Caller(
        spark,
        found,
        LedgerIndex(layout_of(layout, found.name)),
        function,
        columns,
        with_payload=with_payload,
        has_hash=options.is_key_shared,
        sorted_by_key=sorted_by_key,
        decoding=decoding,
    )
    consumer = ConsumerThread(
        spark,
        layout_of(layout, found.name),
        found,
        partitions,
        options,
        caller,
        max_messages=max_messages,
        available_now=available_now,
        on_error=on_error,
        timeout=timeout,
        clock=clock,
    )
    consumption = Consumption(consumer)
    consumption._start()
    return consumption
