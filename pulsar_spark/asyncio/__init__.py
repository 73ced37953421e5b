"""The client for programs on ``asyncio``, with the names of ``pulsar.asyncio``.

No call blocks the event loop. A few threads of each client read and write files (``futures.Files``). A cancelled call
loses no message: the next call gets it.

Failures raise :class:`PulsarException`, which has the :class:`~pulsar_spark.Result`; wrong arguments raise ValueError.
"""

from pulsar_spark.asyncio.client import Client
from pulsar_spark.asyncio.consumer import Consumer
from pulsar_spark.asyncio.futures import PulsarException, _set_future
from pulsar_spark.asyncio.producer import Producer
from pulsar_spark.asyncio.reader import Reader
from pulsar_spark.client.model.enums import (
    BatchingType,
    CompressionType,
    ConsumerCryptoFailureAction,
    InitialPosition,
    PartitionsRoutingMode,
    ProducerAccessMode,
    RegexSubscriptionMode,
)

__all__ = [
    "BatchingType",
    "Client",
    "CompressionType",
    "Consumer",
    "ConsumerCryptoFailureAction",
    "InitialPosition",
    "PartitionsRoutingMode",
    "Producer",
    "ProducerAccessMode",
    "PulsarException",
    "Reader",
    "RegexSubscriptionMode",
    "_set_future",
]
