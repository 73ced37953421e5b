"""The table that a broker writes in each round: the columns of all kinds of rows."""

import pyarrow as pa

from pulsar_spark.table_specs.spec import COUNTS, HASH_RANGES, PROPERTIES, TIME, table_spec

CURSOR_LEDGER = table_spec(
    "cursor_ledger",
    "the state of a subscription, consumer, topic or round after a round",
    ("round", pa.int64(), "number of the round; each round is one commit"),
    (
        "kind",
        pa.string(),
        "round, topic, cursor, reset, range, consumer, policy, letter, waiting_letter, letterless, reply,  set_aside, "
        "waiting_request, housekeeping",
    ),
    (
        "topic",
        pa.string(),
        "full name of the topic, without a partition; housekeeping: or the name of a table of the broker",
    ),
    ("topic_id", pa.string(), "Delta's id of the topic's table, so that a topic created again starts clean"),
    ("partition", pa.int32(), "partition, -1 where the topic has none"),
    ("subscription", pa.string(), "name of the subscription"),
    (
        "first",
        pa.int64(),
        "range, letter, waiting_letter: first position; topic: the first one that was not trimmed; set_aside, "
        "waiting_request: row of the request within its commit, null = the whole commit",
    ),
    (
        "last",
        pa.int64(),
        "range, letter, waiting_letter: last position, inclusive; set_aside: the last of several versions of the "
        "requests table that no longer exist",
    ),
    (
        "status",
        pa.string(),
        "range: acknowledged, pending (delivered, not acknowledged) or replay (to be redelivered); letter, "
        "waiting_letter: retry or dead; cursor: blocked_by_broker while the broker's own limit of unacknowledged "
        "messages holds it back; set_aside: request, topic or subscription; housekeeping: rows_removed, files_joined, "
        "log_shortened or files_removed",
    ),
    ("consumer_id", pa.string(), "consumer: its id; pending: the consumer that holds the entries; reply: its receiver"),
    (
        "delivery_round",
        pa.int64(),
        "pending: the round that delivered the entries; acknowledged: all that the consumer still had of this round's "
        "delivery between first and last, else null; waiting_letter: the round after which it was tried first; with "
        "join_order it identifies the letter",
    ),
    (
        "redelivery_count",
        pa.int32(),
        "pending, replay, letter: how often the entries were given back by a negative acknowledgement or a timeout",
    ),
    (
        "due_time",
        TIME,
        "pending: when the entries are given back unless acknowledged; replay: not to be delivered before; cursor: "
        "when a consumer that became active begins to receive; round: the broker's own clock, by which pending "
        "entries, cursors and leases fall due; waiting_letter: when it is tried again, null: after this round",
    ),
    (
        "ack_set",
        pa.list_(pa.int64()),
        "pending, replay: batch indexes of each entry still unacknowledged, null = all; letter: those with a letter, "
        "null = all",
    ),
    ("batch_size", pa.int32(), "pending, replay: messages in each entry of the range"),
    ("mark_delete_position", pa.int64(), "cursor: everything up to here is acknowledged; -1 = nothing"),
    (
        "read_position",
        pa.int64(),
        "cursor: first position never delivered; consumer: the first position after everything that was delivered when "
        "it joined a KeyShared subscription, while it waits for these (classic implementation only), else null",
    ),
    (
        "subscription_type",
        pa.string(),
        "cursor: Exclusive, Failover, Shared or KeyShared while consumers are connected, else null",
    ),
    (
        "is_removed",
        pa.bool_(),
        "topic, cursor, consumer, policy, set_aside, waiting_letter, waiting_request: gone since this round",
    ),
    ("consumer_name", pa.string(), "consumer: its name"),
    ("client_id", pa.string(), "consumer: the client it belongs to"),
    ("priority_level", pa.int32(), "consumer: 0 is served first"),
    ("permits", pa.int64(), "consumer: messages it may still be sent; negative after a batch larger than its permits"),
    ("is_active", pa.bool_(), "consumer: receives on an Exclusive or Failover subscription; null on the others"),
    ("is_blocked", pa.bool_(), "consumer, cursor: held back by the limit of unacknowledged messages"),
    ("lease_time", TIME, "consumer: when it counts as gone, unless its client is heard before"),
    (
        "join_order",
        pa.int64(),
        "consumer: counts up over the subscription's life; waiting_letter: its number among those tried first after "
        "one round",
    ),
    (
        "msg_out_counter",
        pa.int64(),
        "cursor, consumer: messages delivered; waiting_letter: how often it was tried; letterless: messages that were "
        "deleted or trimmed before their letter was written",
    ),
    (
        "msg_redeliver_counter",
        pa.int64(),
        "cursor, consumer: those of the delivered messages that had been delivered before, even if no application got "
        "them",
    ),
    (
        "msg_ack_counter",
        pa.int64(),
        "cursor: messages acknowledged, each index of a batch counted once, by consumers and by the broker (time to "
        "live, quotas, skips, trimming, put off for later); not the dead ones, and not those that a seek passes: what "
        "is acknowledged again after a seek back counts again",
    ),
    (
        "msg_dead_counter",
        pa.int64(),
        "cursor: messages given back or put off too often, whether or not their letter is written yet",
    ),
    ("ledger_id", pa.int64(), "topic: the last version of its messages table that is numbered"),
    ("end_position", pa.int64(), "topic: the position the next entry of the partition gets"),
    (
        "request_id",
        pa.string(),
        "reply: the request it answers; letter: the request that asked for it, null for entries given back too often; "
        "set_aside: the request's id",
    ),
    (
        "error",
        pa.string(),
        "reply: name of the refusal; null = done; set_aside: name of the exception; waiting_letter: name of what kept "
        "it from being written",
    ),
    (
        "text",
        pa.string(),
        "reply: the refusal in words, or the result as JSON; set_aside: what the exception said; waiting_letter: what "
        "kept it, in words",
    ),
    (
        "round_time",
        TIME,
        "round: its time by the machine's clock; cursor: when a consumer last came or left, or the cursor was created, "
        "by the broker's own clock; set_aside: when it was set aside; waiting_letter: since when it waits; "
        "housekeeping: the time of the round",
    ),
    (
        "requests_version",
        pa.int64(),
        "round: the last version of the requests table that is consumed; set_aside, waiting_request: the version that "
        "holds the request",
    ),
    ("epoch", pa.int64(), "round: counts the brokers that took the bundle"),
    ("broker_id", pa.string(), "round: the broker that committed it"),
    ("is_snapshot", pa.bool_(), "round: holds every latest row, so that readers may start here"),
    (
        "properties",
        PROPERTIES,
        "cursor, consumer, policy: settings as asked for; cursor: the Key_Shared policies that hold while its "
        "consumers are connected; letter: the dead letter policy, or the properties of the request; round: "
        "bundle_range, the hashes of the topics that the bundle serves, null = all",
    ),
    (
        "due_since",
        TIME,
        "cursor: entries due at or before this do not wait, null = none waited yet; topic: entries due until then are "
        "not in the delay index",
    ),
    (
        "entries",
        pa.int64(),
        "range: number of its entries if it is limited to positions; null = all, last - first + 1; housekeeping: "
        "number of files, with log_shortened of commits",
    ),
    (
        "positions",
        pa.list_(pa.int64()),
        "range: the positions of its entries, if it does not mean all from first to last; of delayed ones, in the "
        "round that delivers them, in the order they came due; else null",
    ),
    (
        "chunks",
        pa.binary(),
        "range, in the round that delivers it: positions of the first and the last chunk of each chunked message whose "
        "last chunk is in it, as pairs in the order of the last, packed (protocol.acknowledgement.packing); else null; "
        "cursor: incomplete chunked messages that count as acknowledged: pairs of first and last position, packed "
        "likewise, between which only such messages begin; consumer: incomplete chunked messages above its limit, "
        "which it gets once they are complete, packed likewise",
    ),
    (
        "hash_ranges",
        HASH_RANGES,
        "consumer: what it owns on a KeyShared subscription, both ends inclusive, in order: hashes (31 bits) on the "
        "ring of consistent hashing, where several may share a range, else slots (hash modulo 65536; on the ring of "
        "4.0 from 1 on, modulo 65535), modulus and remainder null; null = as in its row before, because no consumer "
        "has come or gone",
    ),
    ("key_shared_mode", pa.string(), "cursor: AUTO_SPLIT or STICKY on a KeyShared subscription, else null"),
    (
        "counts",
        COUNTS,
        "round: what it did: published (entries), requests, delivered, redelivered, acknowledged and dead (messages, "
        "counted as in cursors), returned (entries given back, or left by consumers that went away); and how long its "
        "steps took, in microseconds: number_us, requests_us, gather_us, plan_us; write_us is of the broker's round "
        "before; null = the round only takes the bundle over",
    ),
    (
        "allow_out_of_order_delivery",
        pa.bool_(),
        "cursor: a KeyShared subscription may deliver the entries of a key out of order; null = it may not",
    ),
)
