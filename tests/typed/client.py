"""The client: producers, consumers, readers, table views."""

from __future__ import annotations

import datetime
import logging
import re
from collections.abc import Iterator

import pulsar_spark as pulsar
from pulsar_spark import Client, Consumer, ConsumerType, Message, MessageId, Producer, Reader, Result, TableView


def on_sent(result: Result, message_id: MessageId) -> None:
    if result != Result.Ok:
        logging.warning("not sent: %s %s", result, message_id)


def listener(consumer: Consumer, message: Message) -> None:
    consumer.acknowledge(message)


def produce(client: Client, topic: str) -> MessageId:
    producer: Producer = client.create_producer(
        topic,
        producer_name="p",
        compression_type=pulsar.CompressionType.LZ4,
        batching_enabled=True,
        batching_type=pulsar.BatchingType.KeyBased,
        access_mode=pulsar.ProducerAccessMode.Exclusive,
        properties={"a": "b"},
        hashing_scheme=pulsar.HashingScheme.Murmur3_32Hash,
        send_timeout_millis=10_000,
    )
    producer.send_async(b"x", on_sent, partition_key="k", deliver_after=datetime.timedelta(minutes=1))
    producer.send_async(b"y", None)
    producer.flush()
    last: int = producer.last_sequence_id()
    print(last, producer.topic(), producer.producer_name(), producer.is_connected())
    sent: MessageId = producer.send(
        b"hello", properties={"a": "b"}, event_timestamp=5, sequence_id=7, ordering_key="o", deliver_at=1
    )
    return sent


def messages(consumer: Consumer) -> Iterator[tuple[str, bytes]]:
    while True:
        try:
            message = consumer.receive(timeout_millis=1000)
        except pulsar.Timeout:
            return
        except pulsar.UnreadableMessage as wrong:
            print(wrong.message_id)
            continue
        key: str = message.partition_key()
        data: bytes = message.data()
        properties: dict[str, str] = message.properties()
        print(properties, message.redelivery_count() + 1, message.publish_timestamp(), message.topic_name())
        context = message.encryption_context()
        if context is not None:
            print(context.algorithm(), context.batch_size(), context.keys()[0].metadata)
        yield key, data
        consumer.acknowledge(message)
        consumer.negative_acknowledge(message.message_id())


def main() -> None:
    logger = logging.getLogger("mine")
    client = pulsar.Client("delta:/data/pulsar", logger=logger, operation_timeout_seconds=30)
    consumer = client.subscribe(
        ["a", "b"],
        "sub",
        consumer_type=ConsumerType.KeyShared,
        initial_position=pulsar.InitialPosition.Earliest,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(3, dead_letter_topic="d"),
        key_shared_policy=pulsar.ConsumerKeySharedPolicy(pulsar.KeySharedMode.Sticky, sticky_ranges=[(0, 32767)]),
        batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(10, 100, 1000),
        retry_enable=True,
        message_listener=listener,
    )
    client.subscribe(re.compile("persistent://public/default/.*"), "s", is_read_compacted=True)
    for message in consumer.batch_receive():
        print(message.value())
        consumer.reconsume_later(message, delay_millis=60_000)
    consumer.seek(MessageId.earliest)
    consumer.seek(1700000000000)
    consumer.acknowledge_cumulative(consumer.receive())
    consumer.pause_message_listener()
    consumer.unsubscribe()
    ids = [MessageId.deserialize(each.serialize()) for each in (MessageId.earliest, MessageId.latest)]
    print(sorted(ids), consumer.get_last_message_id(), consumer.consumer_name(), consumer.topic())
    reader: Reader = client.create_reader("t", MessageId.earliest, reader_name="r")
    while reader.has_message_available():
        print(reader.read_next(100).data().decode())
    reader.seek(ids[0])
    reader.close()
    view: TableView = client.create_table_view("t")
    view.for_each(lambda key, value: print(key, value))
    print(view.get("x"), len(view), "x" in view)
    partitions: list[str] = client.get_topic_partitions("t")
    print(partitions, list(messages(consumer)), produce(client, "t"))
    with_backoff = pulsar.MultiplierRedeliveryBackoff(1000, 60_000, 2)
    client.subscribe("t", "x", ack_timeout_redelivery_backoff=with_backoff, consumer_type=pulsar.ConsumerType.Shared)
    try:
        client.create_producer(
            "t", message_router=lambda message, partitions: hash(message.partition_key()) % partitions
        )
    except (pulsar.ProducerBusy, pulsar.exceptions.ConnectError) as error:
        print(error)
    finally:
        client.close()
    client.shutdown()


if __name__ == "__main__":
    main()
