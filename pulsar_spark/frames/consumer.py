"""Consuming a subscription as DataFrames: a function is called with each delivery, and what it does decides what
becomes of the messages.

It returns: acknowledged. It raises: given back, to be delivered again after a pause that grows with each error in a row
(see ``backoff``), and logged. It returns a frame of outcomes: row by row (see ``delivery``). What runs is a
:class:`Consumption`. At-least-once: a crash between the function's return and the acknowledgement's commit delivers
again; ``delta_sink`` says how to have it exactly once.
"""

import os
import time
from collections.abc import Callable, Sequence
from typing import Literal

from pyspark.sql import SparkSession

from pulsar_spark.client.enums import ConsumerCryptoAction, Position, SubscriptionType
from pulsar_spark.client.policies import ConsumerDeadLetterPolicy, ConsumerKeySharedPolicy
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.frames.call import Caller, ConsumeFunction
from pulsar_spark.frames.consumption import Consumption
from pulsar_spark.frames.letters import FrameLetters
from pulsar_spark.frames.membership import DEFAULT_INITIAL_POSITION, SubscribeOptions, one_of
from pulsar_spark.frames.payload_batches import KeyReader
from pulsar_spark.frames.payloads import Decoding
from pulsar_spark.storage.bundles import layout_of
from pulsar_spark.storage.ledger_index import LedgerIndex
from pulsar_spark.storage.spark_root import layout_for_frames
from pulsar_spark.storage.topics import existing_topic, prepare_root, resolve_topic

MAX_MESSAGES = 4_000_000
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
    """Join *subscription* of *topic* of the root in the folder *root*, and call ``function(messages, delivery)``
    (*function*) with each delivery in a thread of its own until stopped. *spark* is the session that reads;
    *subscription_type* is "Exclusive", "Shared", "Failover" or "KeyShared". With *priority_level* above 0 others are
    served first, of Failover chosen first. A missing topic is refused (:class:`TopicNotFound`), or made if *create*.

    *messages* has the columns of the messages table (*columns* of them and ``partition``, no payload without
    *with_payload*) and ``ledger_id``, ``position``, ``redelivery_count``, in no order: sort by partition and position
    where order matters. The frame is for the function: what it reads may be gone when that has returned.
    *max_messages* is what is asked for per delivery, over all partitions. A new subscription
    starts at *initial_position*: "Earliest" unless "Latest" is asked for, since who reads a topic as tables wants all
    of it, and a scheduled run that starts at the end would do nothing, in silence. (Pulsar's clients, and
    ``pulsar.Client`` here, start at the latest.)

    On "KeyShared" each key has one consumer, as *key_shared_policy* and the policies of the topic split them, and
    messages have their ``sticky_key_hash``, too. Order is then per key, over deliveries: nothing of a key is handled
    before what was given back of it. With *sorted_by_key*, on any type, all messages of a key in a delivery are in one
    task and in order (keys of one hash lie between each other).

    With *available_now* it ends when everything published before the start has been handled; what was given back is
    left to the next run, and an error of the function is raised at the end. Otherwise a delivery whose function raises
    is given back, the error is logged, and the function is called again after a second, two, four... a minute at most,
    by *clock* (seconds that never go back). *on_error* "stop" ends at the first error. What is given back more often
    than *dead_letter_policy* says becomes a dead letter; with *retry_enable* the function may put messages off (see
    ``letters``): consume the retry letter topic, too, to see them again.

    Payloads are plain, whatever they are stored as: compressed, or encrypted for a private key that *crypto_key_reader*
    has, a :class:`CryptoKeyReader` of files or a function that makes one (see ``payload_batches``). With
    *crypto_failure_action* "FAIL" a message that cannot be decrypted is not handed over and stays unacknowledged, an
    error that names it; with "DISCARD" it is acknowledged; with "CONSUME" it comes as it is stored (ask for *columns*
    ``encryption_keys``, ``encryption_param``, ``compression`` and ``uncompressed_size``, too). One that cannot be
    decompressed is an error likewise.

    A consumer of the same *consumer_name* on the same subscription that runs in this process is stopped first, so a
    notebook's cell that gives a name can be run again. The broker's refusal (:class:`ConsumerBusy`, ...) is raised
    here, as :class:`Timeout` is when no broker answers in *timeout* seconds.
    """
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
    consumption = Consumption(
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
    consumption._start()
    return consumption
