"""A reader whose messages are awaited."""

import asyncio

from pulsar_spark.asyncio.futures import Files, raises_exceptions
from pulsar_spark.client.model.message import Message
from pulsar_spark.client.readers import reader as blocking
from pulsar_spark.described import Described
from pulsar_spark.protocol.topics.message_id import MessageId


class Reader(Described):
    """Reads one topic; made by ``Client.create_reader``."""

    def __init__(self, reader: blocking.Reader, files: Files):
        self._reader, self._files = reader, files
        self._turn = asyncio.Lock()

    def _facts(self) -> dict[str, object]:
        return self._reader._facts()

    @raises_exceptions
    async def read_next(self) -> Message:
        """The next message."""
        async with self._turn:
            wait = blocking.FIRST_WAIT
            while not await self._files.submit(self._reader.has_message_available):
                await asyncio.sleep(wait)
                wait = min(2 * wait, blocking.LONGEST_WAIT)
            return self._reader.read_next(0)  # already read; a cancelled call leaves it

    @raises_exceptions
    async def has_message_available(self) -> bool:
        """Whether :meth:`read_next` would return a message at once."""
        return await self._files.submit(self._reader.has_message_available)

    @raises_exceptions
    async def seek(self, messageid: MessageId | int) -> None:
        """Continue after the message *messageid* (at it with ``start_message_id_inclusive``), or at the first message
        published at or after a time in ms."""
        await self._files.submit(self._reader.seek, messageid)

    @raises_exceptions
    async def close(self) -> None:
        """Stop reading. A second call raises ``AlreadyClosed``."""
        self._reader.close()

    def topic(self) -> str:
        """Full name of the topic, with the partition if one was named."""
        return self._reader.topic()

    def is_connected(self) -> bool:
        """Whether the reader is open. It needs no broker."""
        return self._reader.is_connected()
