"""Every way to a name that scripts written for the ``pulsar`` package have."""

# ruff: noqa: F403, F405

import pulsar_spark as pulsar
import pulsar_spark.asyncio as aio
from pulsar_spark import *
from pulsar_spark.broker.runner import Broker
from pulsar_spark.exceptions import AlreadyClosed as A
from pulsar_spark.exceptions import LookupError as L
from pulsar_spark.exceptions import PulsarException as P
from pulsar_spark.exceptions import Timeout as T
from pulsar_spark.functions.context import Context as C
from pulsar_spark.functions.function import Function as F
from pulsar_spark.functions.serde import IdentitySerDe as I
from pulsar_spark.functions.serde import PickleSerDe as PS
from pulsar_spark.schema.definition import Array, Record, String
from pulsar_spark.schema.schema import JsonSchema, Schema
from pulsar_spark.schema.schema_avro import AvroSchema
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.session import spark_session
from pulsar_spark.tableview import TableView as TV
from pulsar_spark.transforms.chunks import reassemble_chunks
from pulsar_spark.views.catalog import register


def use() -> tuple[object, ...]:
    client = Client("delta:/d")
    found = (
        A,
        L,
        P,
        T,
        TV,
        Array,
        Record,
        String,
        JsonSchema,
        Schema,
        AvroSchema,
        I,
        PS,
        C,
        F,
        Broker,
        register,
        aio.Client,
    )
    return (
        *found,
        schema.AvroSchema,
        pulsar.schema.Record,
        exceptions.Timeout,
        MessageId.earliest,
        pulsar.tableview.TableView,
        partition_for_key("k", 3, "BoostHash"),
        spark_session("app", root="/r"),
        Layout("/r"),
        reassemble_chunks,
        client.get_service_info().service_url,
    )
