"""Schemas and records."""

from enum import Enum
from typing import Any

import pulsar_spark as pulsar
from pulsar_spark.schema import (
    Array,
    AvroSchema,
    Boolean,
    Bytes,
    BytesSchema,
    CustomEnum,
    Double,
    Float,
    Integer,
    JsonSchema,
    Long,
    Map,
    Record,
    Schema,
    String,
    StringSchema,
)


class Color(Enum):
    red = 1
    green = 2


class Item(Record):
    sku = String(required=True)
    price = Double(default=1.0)


class Order(Record):
    customer = String(required=True)
    items = Array(Item())
    counts = Map(Integer())
    color = CustomEnum(Color)
    raw = Bytes()
    big = Long()
    flag = Boolean()
    share = Float()


class Upper(Schema):
    def encode(self, obj: Any) -> bytes:
        return str(obj).upper().encode()

    def decode(self, data: bytes) -> str:
        return data.decode()


def main() -> None:
    client = pulsar.Client("delta:/d")
    producer = client.create_producer("t", schema=AvroSchema(Order))
    producer.send(Order(customer="c", items=[Item(sku="s")], counts={"a": 1}, color=Color.red))
    consumer = client.subscribe("t", "s", schema=JsonSchema(Order))
    order: Order = consumer.receive().value()
    print(order.customer, order.items, Order.schema())
    client.create_producer("u", schema=StringSchema()).send("text")
    client.create_producer("v", schema=BytesSchema()).send(b"text")
    print(AvroSchema(Order).schema_info().schema_type() == 4)
