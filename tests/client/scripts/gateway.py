"""A gateway sends readings of many meters at once and hears their sums, on one event loop."""

import asyncio

import pulsar
import pulsar.asyncio

SERVICE_URL = "pulsar://localhost:6650"
METERS, READINGS = 5, 20


async def send(client, meter):
    producer = await client.create_producer("readings")
    sent = [producer.send(f"{meter}:{reading}".encode(), partition_key=f"meter-{meter}") for reading in range(READINGS)]
    ids = await asyncio.gather(*sent)
    await producer.close()
    return len(set(map(str, ids)))


async def hear(consumer):
    last, sums = {}, {}
    for _ in range(METERS * READINGS):
        message = await consumer.receive()
        meter, reading = map(int, message.data().split(b":"))
        assert reading == last.get(meter, -1) + 1, "a meter's readings come in order"
        last[meter], sums[meter] = reading, sums.get(meter, 0) + reading
        await consumer.acknowledge(message)
    return sums


async def main():
    client = pulsar.asyncio.Client(SERVICE_URL)
    consumer = await client.subscribe("readings", "sums", consumer_type=pulsar.ConsumerType.KeyShared)
    hearing = asyncio.ensure_future(hear(consumer))
    print("sent:", await asyncio.gather(*(send(client, meter) for meter in range(METERS))))
    print("sums:", sorted((await hearing).items()))
    reader = await client.create_reader("readings", pulsar.MessageId.earliest)
    print(
        "read:", await reader.has_message_available(), (await reader.read_next()).partition_key().startswith("meter-")
    )
    await reader.close()
    try:
        await asyncio.wait_for(consumer.receive(), 0.2)
    except TimeoutError:
        print("nothing more")
    await consumer.close()
    try:
        await consumer.receive()
    except pulsar.asyncio.PulsarException as error:
        print("closed:", error.error())
    await client.close()


asyncio.run(main())
