"""What clients ask of a broker."""

import pyarrow as pa

from pulsar_spark.table_specs.spec import PROPERTIES, TIME, table_spec

VALID_UNTIL = "valid_until_ms"
"""Property of a request: when it expires, in milliseconds since 1970 by the client's clock."""

REQUESTS = table_spec(
    "requests",
    "a request of a client to the broker",
    ("request_id", pa.string(), "id of the request, which its reply repeats"),
    (
        "kind",
        pa.string(),
        "subscribe, flow, ack, cumulative_ack, negative_ack, reconsume_later, redeliver_all, seek, unsubscribe, "
        "keep_alive, close, create_subscription, skip, clear_backlog, expire, reschedule, policy, unload, "
        "retry_set_aside, drop_set_aside, retry_waiting_letters, drop_waiting_letters, rebuild_delay_index",
    ),
    ("client_id", pa.string(), "the client process; each request of it renews the leases of all its consumers"),
    ("consumer_id", pa.string(), "one consumer of the client, on all partitions of its topics"),
    ("topic", pa.string(), "full name of the topic, without a partition"),
    ("partition", pa.int32(), "partition, -1 where the topic has none"),
    ("subscription", pa.string(), "name of the subscription"),
    ("first", pa.int64(), "first position of the request"),
    ("last", pa.int64(), "last position of the request, inclusive"),
    (
        "ack_set",
        pa.list_(pa.int64()),
        "batch indexes still unacknowledged, 64 a word, low bit first; null = the whole entry",
    ),
    ("permits", pa.int64(), "messages that the consumer can take in addition to earlier permits (flow)"),
    ("delay_ms", pa.int64(), "delay before the redelivery (negative_ack)"),
    ("request_time", TIME, "the client's clock"),
    (
        "properties",
        PROPERTIES,
        "arguments of one kind of request; valid_until_ms if a caller waits for the answer: refused with Timeout from "
        "then on",
    ),
)
