"""Payments are booked by two workers of one queue; what cannot be booked is tried three times and looked at by hand."""

import threading

import pulsar

SERVICE_URL = "pulsar://localhost:6650"


class Payment(pulsar.schema.Record):
    account = pulsar.schema.String(required=True)
    cents = pulsar.schema.Integer(required=True)


def work(consumer, booked, done):
    while not done.is_set():
        try:
            message = consumer.receive(timeout_millis=500)
        except pulsar.Timeout:
            continue
        payment = message.value()
        if payment.cents <= 0:
            consumer.negative_acknowledge(message)
            continue
        with lock:
            booked[payment.account] = booked.get(payment.account, 0) + payment.cents
        consumer.acknowledge(message)


lock = threading.Lock()
client = pulsar.Client(SERVICE_URL)
schema = pulsar.schema.JsonSchema(Payment)
letters = client.subscribe("payments-by-hand", "clerk", schema=schema)
workers = [
    client.subscribe(
        "payments",
        "booking",
        consumer_type=pulsar.ConsumerType.Shared,
        schema=schema,
        consumer_name=f"worker-{number}",
        negative_ack_redelivery_delay_ms=100,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(3, "payments-by-hand", "clerk"),
    )
    for number in range(2)
]
producer = client.create_producer("payments", schema=schema, batching_enabled=True)
for number in range(100):
    producer.send_async(Payment(account=f"account-{number % 3}", cents=number), None, partition_key=f"{number % 3}")
producer.flush()

booked, done = {}, threading.Event()
threads = [threading.Thread(target=work, args=(worker, booked, done)) for worker in workers]
for thread in threads:
    thread.start()
letter = letters.receive(timeout_millis=60_000)
letters.acknowledge(letter)
done.set()
for thread in threads:
    thread.join()
print("by hand:", letter.value().account, letter.value().cents, letter.partition_key())
print("booked:", sorted(booked.items()), sum(booked.values()) == sum(range(100)))
try:
    client.create_producer(
        "payments",
        schema=pulsar.schema.JsonSchema(
            type("Other", (pulsar.schema.Record,), {"account": pulsar.schema.Integer(required=True)})
        ),
    )
except pulsar.IncompatibleSchema:
    print("another schema is refused")
client.close()
