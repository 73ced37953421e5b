"""Messages of a Key_Shared subscription that wait in the client until an earlier one of their key comes again."""

from collections import Counter
from collections.abc import Callable, Collection
from operator import attrgetter

from pulsar_spark.client.model.block import Block
from pulsar_spark.client.model.message import Message

WAIT_SECONDS = 10.0
"""How long messages wait; then they are given back, because the earlier one may come to no one or to another
consumer."""

MOST_BYTES = 16 << 20
"""Up to how many bytes of blocks they keep in memory."""
_POSITION = attrgetter("_position")


class WaitingMessages:
    """By hash, in order. Up to a queue full of them count as taken from the queue, so that other keys go on. The caller
    holds the subscription's lock."""

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

    def put(self, sticky_hash: int, message: Message, *, now: float) -> bool:
        """Let *message* wait, unless too many bytes would have to be kept."""
        block = message._block
        new_bytes = 0 if block in self._blocks else block.nbytes
        if self._bytes and self._bytes + new_bytes > MOST_BYTES:
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
        return self._take(sticky_hash, lambda position: before is None or position < before)

    def _take(self, sticky_hash: int, is_taken: Callable[[int], bool]) -> list[Message]:
        left, taken = list[Message](), list[Message]()
        for message in self._by_hash.pop(sticky_hash, ()):
            (taken if is_taken(message._position) else left).append(message)
        if left:
            self._by_hash[sticky_hash] = left
        else:
            self._since.pop(sticky_hash, None)
        for message in taken:
            self._forget(message)
        return sorted(taken, key=_POSITION)

    def take_late(self, now: float) -> list[tuple[int, Message]]:
        """Take the messages, with their hashes, of hashes in which one waits too long."""
        late = [each for each, since in self._since.items() if now >= since + WAIT_SECONDS]
        return [(each, message) for each in late for message in self.take(each)]

    def drop(self, positions: Collection[int]) -> None:
        """Drop the messages of these entries, which come again."""
        dropped = {position: self._hashes[position] for position in positions if position in self._hashes}
        for sticky_hash in {*dropped.values()}:
            self._take(sticky_hash, dropped.__contains__)

    def clear(self) -> None:
        self._by_hash.clear()
        self._since.clear()
        self._hashes.clear()
        self._blocks.clear()
        self._count = self._bytes = 0

    def _forget(self, message: Message) -> None:
        block = message._block
        self._count -= 1
        self._hashes.pop(message._position, None)
        self._blocks[block] -= 1
        if not self._blocks[block]:
            del self._blocks[block]
            self._bytes -= block.nbytes
