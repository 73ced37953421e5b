"""A ledger is kept in a topic: written in order, read again from where somebody stopped, and summed up by key."""

import pulsar

SERVICE_URL = "pulsar://localhost:6650"

client = pulsar.Client(SERVICE_URL, operation_timeout_seconds=30)
producer = client.create_producer(
    "ledger", producer_name="teller", initial_sequence_id=99, compression_type=pulsar.CompressionType.ZLib
)
ids = [
    producer.send(
        f"{change:+d}".encode(), properties={"teller": "7"}, partition_key=account, event_timestamp=1_700_000_000_000
    )
    for account, change in [("anna", 10), ("bert", 5), ("anna", -3), ("cleo", 8), ("bert", -5)]
]
print("last sequence id:", producer.last_sequence_id())

reader = client.create_reader("ledger", pulsar.MessageId.earliest)
sums = {}
while reader.has_message_available():
    message = reader.read_next()
    sums[message.partition_key()] = sums.get(message.partition_key(), 0) + int(message.data())
print("sums:", sorted(sums.items()))
kept = ids[2].serialize()
reader.close()

again = client.create_reader("ledger", pulsar.MessageId.deserialize(kept))
print("after the third:", [again.read_next().data() for _ in range(2)])
try:
    again.read_next(timeout_millis=100)
except pulsar.Timeout:
    print("nothing more")
again.seek(pulsar.MessageId.earliest)
print("from the beginning:", again.read_next().data(), again.topic())
again.close()

consumer = client.subscribe("ledger", "audit", initial_position=pulsar.InitialPosition.Earliest)
messages = [consumer.receive() for _ in range(5)]
print(
    "audited:",
    [(message.partition_key(), message.properties()["teller"], message.event_timestamp()) for message in messages[:2]],
    [message.message_id() == sent for message, sent in zip(messages, ids)],
)
consumer.acknowledge_cumulative(messages[3])
consumer.close()
consumer = client.subscribe("ledger", "audit")
print("left:", consumer.receive().data(), consumer.subscription_name(), consumer.topic())
consumer.seek(ids[0])
print("sought:", consumer.receive().data())
consumer.unsubscribe()

view = client.create_table_view("ledger", schema=pulsar.schema.StringSchema())
print("view:", sorted((key, view.get(key)) for key in ("anna", "bert", "cleo", "dora")), len(view))
view.close()
producer.close()
client.close()
try:
    client.create_producer("ledger")
except pulsar.AlreadyClosed:
    print("closed")
