"""The client for asyncio."""

import asyncio

import pulsar_spark
import pulsar_spark.asyncio
from pulsar_spark import Message, MessageId
from pulsar_spark.asyncio import Client, Consumer, Producer, PulsarException, Reader


async def main() -> None:
    client = Client("delta:/data/pulsar")
    producer: Producer = await client.create_producer("t", batching_enabled=True)
    ids: list[MessageId] = await asyncio.gather(*(producer.send(b"%d" % i, partition_key=str(i)) for i in range(10)))
    consumer: Consumer = await client.subscribe(
        "t", "s", consumer_type=pulsar_spark.ConsumerType.Shared, initial_position=pulsar_spark.InitialPosition.Earliest
    )
    try:
        message: Message = await asyncio.wait_for(consumer.receive(), 5)
        await consumer.acknowledge(message)
        await consumer.acknowledge_cumulative(message.message_id())
        await consumer.negative_acknowledge(message)
    except PulsarException as error:
        print(error.error(), ids)
    reader: Reader = await client.create_reader("t", MessageId.earliest)
    if await reader.has_message_available():
        print((await reader.read_next()).data())
    print(await client.get_topic_partitions("t"), consumer.topic(), await consumer.get_last_message_id())
    await consumer.seek(MessageId.earliest)
    await consumer.unsubscribe()
    await producer.flush()
    await producer.close()
    await reader.close()
    await consumer.close()
    await client.close()


if __name__ == "__main__":
    asyncio.run(main())
