"""Send dead letters back: a job selects letters once and publishes each at most once, wherever it is interrupted.

Letters stay in their topic, unacknowledged. A job writes, in order:

1. *The job's row with its claims*, one commit, transaction (job, 1). It fixes letters, order, chunks and table version.
2. *A publish commit for each destination and chunk*, transaction (job and destination, chunk). Delta refuses to repeat
   it, even from a second process or after a changed *fix*.
3. *The chunk's row with the letters sent*, same transaction. They are read from the files of commit 2, whose sequence
   ids number the claims.

After a crash between 2 and 3 both are repeated, and 2 does nothing. If *fix* drops every letter of a chunk, only 3 is
written. While one job selects, others wait, so no two select the same letter."""

import os
import time
from collections.abc import Callable, Sequence
from datetime import datetime

from pyspark.sql import Column, SparkSession

from pulsar_spark.client.arguments import check_count
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.frames.letters.reprocess_chunk import Fix
from pulsar_spark.frames.letters.reprocess_plan import SUBSCRIPTION, checked_target
from pulsar_spark.frames.letters.reprocess_run import COUNTS, Reprocessed, Run, Selection
from pulsar_spark.frames.letters.retry_subscription import warn_of_unread
from pulsar_spark.frames.publishing.producer import DEFAULT_HASHING_SCHEME, utc_now
from pulsar_spark.frames.publishing.routing_columns import checked_scheme
from pulsar_spark.protocol.topics.routing import Scheme
from pulsar_spark.protocol.topics.topic_name import check_name
from pulsar_spark.storage.spark.spark_root import layout_for_frames
from pulsar_spark.storage.topics.letter_topics import letter_topic, letter_topic_name

MAX_REPLAYS = 3
CHUNK_LETTERS = 10_000


def reprocess_dead_letters(
    spark: SparkSession,
    root: str | os.PathLike,
    topic: str,
    *,
    job_id: str,
    subscription: str | None = None,
    where: str | Column | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    keys: Sequence[str] | None = None,
    fix: Fix | None = None,
    to: str = SUBSCRIPTION,
    rate: float | None = None,
    max_replays: int = MAX_REPLAYS,
    limit: int | None = None,
    dry_run: bool = False,
    hashing_scheme: Scheme = DEFAULT_HASHING_SCHEME,
    chunk_letters: int = CHUNK_LETTERS,
    timeout: float = 30.0,
    clock: Callable[[], datetime] = utc_now,
    wait: Callable[[float], None] = time.sleep,
) -> Reprocessed:
    """Send the letters of a dead letter topic back. *spark*, *root*, *topic* and *subscription* name the topic as in
    :func:`dead_letters`.

    **Which letters**: at most *limit* letters for which the SQL text *where* is true, written at or after *since* and
    before *until*, with one of *keys*. *where* may use the columns of :func:`dead_letters` except ``sent_by``. Left out
    are letters that another job has selected, that were sent back *max_replays* times before, or whose chunks
    contradict their metadata, which the log reports.

    **Where to** (*to*):

    - "subscription": the retry letter topic of the subscription on which they died, which only its consumers with
      ``retry_enable`` read. A missing one is created and subscribed, which needs a broker.
    - "origin": the topic they first came from, into the same partition; all its subscriptions get them again.
    - "topic:<name>": any topic.

    **What is sent**: payload, key, ordering key, event time and properties. DEAD_LETTER_REPLAYS is counted up; cause,
    attempts, RECONSUMETIMES and DELAY_TIME are removed. REAL_TOPIC, REAL_SUBSCRIPTION and ORIGIN_MESSAGE_ID still name
    the first origin. *fix* gets the letters as a DataFrame, one chunk of at most *chunk_letters* at a time, and returns
    those to send, repaired; after an interruption it may be called again. It must keep ``message_id``; rows that it
    leaves out stay dead. Each chunk is one commit. A message whose key *fix* changes is routed by the new key. *rate*
    is the maximum of messages per second.

    **Once**: a call with the same *job_id* continues where the job stopped, or reports what it did. Its conditions must
    be the same, except *since* and *until*. Give each run of a scheduled job its own id, such as the date.

    If no message has died yet, the report is all zeros. *dry_run* records and sends nothing; the report says what would
    be selected.

    The driver makes the selection, in about 200 bytes per letter. *hashing_scheme* is that of the target's other
    producers. The call waits for the broker at most *timeout* seconds. *clock* gives the current time; *wait* sleeps
    for seconds."""
    check_name("job id", job_id)
    _check_numbers(rate=rate, max_replays=max_replays, limit=limit, chunk_letters=chunk_letters)
    checked_scheme(hashing_scheme)
    layout = layout_for_frames(spark, root)
    target, letters_in = checked_target(to), letter_topic(layout, topic, subscription)
    if letters_in is None:
        name = str(letter_topic_name(topic, subscription))
        return Reprocessed(job_id, name, dry_run, **dict.fromkeys(COUNTS, 0), causes={}, destinations={})
    settings = {
        "where": where if isinstance(where, str) or where is None else str(where),
        "keys": sorted(keys) if keys is not None else None,
        "to": target,
        "max_replays": max_replays,
        "limit": limit,
    }
    run = Run(spark, layout, letters_in, job_id, settings, fix, hashing_scheme, clock)
    at_once = chunk_letters if rate is None else min(chunk_letters, max(1, int(rate)))
    selecting = Selection(where, since, until, keys, at_once)
    if dry_run:
        return run.try_out(selecting)
    chosen = run.choose(selecting)
    run.prepare(chosen.claims, timeout)
    run.send(chosen, rate, wait)
    if target == SUBSCRIPTION:
        warn_of_unread(layout, {(claim.destination, claim.subscription) for claim in chosen.claims})
    return run.report(chosen)


def _check_numbers(*, rate: float | None, max_replays: int, limit: int | None, chunk_letters: int) -> None:
    if rate is not None and rate <= 0:
        raise InvalidConfiguration(f"rate {rate!r}: give messages per second above 0, or None")
    for name, value in (("max_replays", max_replays), ("limit", limit), ("chunk_letters", chunk_letters)):
        if value is not None:
            check_count(name, value)
