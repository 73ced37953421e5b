"""Messages of a Key_Shared subscription that wait in the client until an earlier one of their key comes again."""

from collections import Counter
from collections.abc import Collection

from pulsar_spark.client.model.block import Block
from pulsar_spark.client.model.message import Message

WAIT_SECONDS = 10.0
"""How long messages wait; then they are given back, because the earlier one may come to no one or to another
consumer."""

MOST_BYTES = 16 << 20
"""Up to how many bytes of blocks they keep in memory."""


class WaitingMessages:
    """By hash, in order. They count as taken from the queue, so that other keys go on. The caller holds the
    subscription's lock."""

    def __init__(self) -> None:
        self._by_hash: dict[int, list[Message]] = {}
        self._since: dict[int, float] = {}
        self._blocks: Counter[Block] = Counter()
        self._hashes: dict[int, int] = {}
        """By position."""
        self._count = self._bytes = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, sticky_hash: int) -> bool:
        return sticky_hash in self._by_hash

    def put(self, sticky_hash: int, message: Message, *, most: int, now: float) -> bool:
        """Let *message* wait, unless *most* do, or too many bytes would have to be kept."""
        block = message._block
        new_bytes = 0 if block in self._blocks else block.nbytes
        if self._count >= most or (self._bytes and self._bytes + new_bytes > MOST_BYTES):
            return False
        self._blocks[block] += 1
        self._bytes += new_bytes
        self._count += 1
        self._since.setdefault(sticky_hash, now)
        self._hashes[message._position] = sticky_hash
        self._by_hash.setdefault(sticky_hash, []).append(message)
        return True

    def take(self, sticky_hash: int, before: int | None = None) -> list[Message]:
        """Take the messages of a hash, in order, or those *before* a position."""
        found = sorted(self._by_hash.pop(sticky_hash, ()), key=lambda each: each._position)
        taken = [each for each in found if before is None or each._position < before]
        if len(taken) < len(found):
            self._by_hash[sticky_hash] = found[len(taken) :]
        else:
            self._since.pop(sticky_hash, None)
        self._forget(taken)
        return taken

    def take_late(self, now: float) -> list[tuple[int, Message]]:
        """Take the messages, with their hashes, of hashes in which one waits too long."""
        late = [each for each, since in self._since.items() if now >= since + WAIT_SECONDS]
        return [(each, message) for each in late for message in self.take(each)]

    def drop(self, positions: Collection[int]) -> None:
        """Drop the messages of these entries, which come again."""
        for position in positions:
            sticky_hash = self._hashes.get(position)
            if sticky_hash is not None:
                messages = self._by_hash[sticky_hash]
                self._by_hash[sticky_hash] = [each for each in messages if each._position != position]
                self._forget([each for each in messages if each._position == position])

    def clear(self) -> None:
        self._by_hash.clear()
        self._since.clear()
        self._hashes.clear()
        self._blocks.clear()
        self._count = self._bytes = 0

    def _forget(self, messages: list[Message]) -> None:
        for message in messages:
            block = message._block
            self._count -= 1
            self._hashes.pop(message._position, None)
            self._blocks[block] -= 1
            if not self._blocks[block]:
                del self._blocks[block]
                self._bytes -= block.nbytes
