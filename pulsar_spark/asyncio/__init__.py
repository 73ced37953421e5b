"""The client for programs on ``asyncio``, with the names of ``pulsar.asyncio``.

No call blocks a thread while it waits. A client thread that receives a message, a commit or a reply completes a future
on the program's event loop. A reader checks the topic's log with a timer of the loop. A few threads of each client read
and write files, decode, compress and split messages (``futures.Files``), however many calls wait. A cancelled call
loses no message: the next call gets it.

Failures raise :class:`PulsarException`, which has the :class:`~pulsar_spark.Result`. Wrong arguments raise ValueError,
as in the other client.
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
