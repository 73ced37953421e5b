"""The client for programs on ``asyncio``, with the names of ``pulsar.asyncio``.

Nothing of it waits in a thread. What a broker or the publisher answers (a message, a commit, a reply) completes a
future on the program's loop, from the thread of the client that heard of it; a reader looks at the topic's log by the
loop's own clock. Files are read and written by the few threads of each client (``futures.Files``), however many calls
wait: opening and seeking, decoding messages, compressing and splitting them. Nothing that was received is lost to a
call that is cancelled: the next one gets it.

What fails raises :class:`PulsarException`, which knows the :class:`~pulsar_spark.Result`; wrong arguments are
ValueErrors as they are elsewhere.
"""

from pulsar_spark.asyncio.client import Client
from pulsar_spark.asyncio.consumer import Consumer
from pulsar_spark.asyncio.futures import PulsarException, _set_future
from pulsar_spark.asyncio.producer import Producer
from pulsar_spark.asyncio.reader import Reader
from pulsar_spark.client.enums import (
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
