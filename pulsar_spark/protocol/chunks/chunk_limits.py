"""How many incomplete chunked messages a consumer keeps, and for how long.

Rule: semantics 1.14, 1.15 (ConsumerImpl: maxPendingChunkedMessage, autoAckOldestChunkedMessageOnQueueFull,
expireTimeOfIncompleteChunkedMessage). Each chunk 0 evicts the oldest messages above the limit: they are acknowledged,
or withheld from this consumer."""

from collections import deque
from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from typing import NamedTuple

from pulsar_spark.protocol.chunks.chunking import AUTO_ACK_OLDEST, EXPIRE_TIME_MS, MAX_PENDING


class ChunkLimits(NamedTuple):
    """A consumer's limits; 0 means no limit."""

    most: int = 0
    auto_acks: bool = False
    expire_ms: int = 0

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "ChunkLimits":
        """The limits in the properties of a consumer's request.

        >>> ChunkLimits.of({MAX_PENDING: "10", AUTO_ACK_OLDEST: "true"})
        ChunkLimits(most=10, auto_acks=True, expire_ms=0)
        """
        return cls(
            max(int(properties.get(MAX_PENDING, 0)), 0),
            properties.get(AUTO_ACK_OLDEST) == "true",
            max(int(properties.get(EXPIRE_TIME_MS, 0)), 0),
        )

    def request_properties(self) -> dict[str, str]:
        return {
            MAX_PENDING: str(self.most),
            AUTO_ACK_OLDEST: str(self.auto_acks).lower(),
            EXPIRE_TIME_MS: str(self.expire_ms),
        }


def begun_too_early(expire_ms: int, now: int) -> int:
    """The latest publish time of a chunk 0 whose message has expired at *now* (microseconds).

    >>> begun_too_early(60_000, 90_000_000)
    30000000
    """
    return now - 1000 * expire_ms


class Group(NamedTuple):
    """Where a message's chunk 0 is, and where the message is complete or given up."""

    first: int
    end: int


class Eviction(NamedTuple):
    """The chunk 0 at *position* evicts a message."""

    position: int
    evicted: Group


def evictions(groups: Iterable[Group], *, most: int, begin: int) -> list[Eviction]:
    """The messages evicted by each chunk 0 at or after *begin*, with at most *most* incomplete. *groups* are ordered by
    first chunk.

    >>> evictions([Group(0, 3), Group(1, 2), Group(4, 9)], most=1, begin=0)
    [Eviction(position=1, evicted=Group(first=0, end=3))]
    """
    found, count = list[Eviction](), 0
    waiting, by_end, gone = deque[Group](), list[tuple[int, int]](), set[tuple[int, int]]()
    for group in groups:
        while by_end and by_end[0][0] <= group.first:
            ended = heappop(by_end)
            count -= ended not in gone
            gone.add(ended)
        if group.end == group.first:  # complete at once
            continue
        waiting.append(group)
        heappush(by_end, (group.end, group.first))
        count += 1
        while count > most and group.first >= begin:
            oldest = waiting.popleft()
            if (oldest.end, oldest.first) not in gone:
                gone.add((oldest.end, oldest.first))
                count -= 1
                found.append(Eviction(group.first, oldest))
    return found
