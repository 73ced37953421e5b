"""The table of samples from which activity over time is made."""

import pyarrow as pa

from pulsar_spark.table_specs.spec import TIME, table_spec

ACTIVITY = table_spec(
    "activity",
    "the state of a subscription on a topic partition, or of a topic partition, at the end of a minute in which it "
    "changed; of older ones the last of each hour, then of each day",
    ("minute_time", TIME, "the minute, by the machine's clock of the broker"),
    ("round", pa.int64(), "the latest round then; of several rows of a minute the one of the highest round counts"),
    ("topic", pa.string(), "full name of the topic, without a partition"),
    ("topic_id", pa.string(), "Delta's id of the topic's table"),
    ("partition", pa.int32(), "partition, -1 where the topic has none"),
    ("subscription", pa.string(), "name of the subscription; null in rows of topic partitions"),
    ("msg_in_counter", pa.int64(), "messages published to the topic partition so far"),
    ("msg_out_counter", pa.int64(), "messages delivered so far; as this and the following, null for topic partitions"),
    ("msg_redeliver_counter", pa.int64(), "those among them that had been delivered before"),
    ("msg_ack_counter", pa.int64(), "messages acknowledged so far"),
    ("msg_dead_counter", pa.int64(), "messages given back or put off too often so far"),
    ("backlog", pa.int64(), "entries not acknowledged, a batch as one"),
    ("delayed", pa.int64(), "those among them that wait for their deliver time, or were put off"),
    ("unacked", pa.int64(), "messages delivered and not acknowledged"),
    ("consumers", pa.int32(), "connected consumers"),
    (
        "oldest_publish_time",
        TIME,
        "when the oldest entry of the backlog was published that does not wait for its deliver time; null for none",
    ),
)
