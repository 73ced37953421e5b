"""Routing: which partition of a topic a producer's message goes to.

Rules: RoundRobinPartitionMessageRouterImpl and SinglePartitionMessageRouterImpl, semantics golden g1 and g2. A
partition key always decides, by hash modulo partitions; the ordering key does not count."""

from collections.abc import Callable
from itertools import count
from typing import Literal

from pulsar_spark.protocol.keys.sticky_key import boost_hash, java_string_hash, sticky_key_hash
from pulsar_spark.protocol.numbered import Numbered


class HashingScheme(Numbered):
    """Hashes of a partition key, with the names and numbers of Pulsar's C++ client. Its default is BoostHash, the Java
    client's is JavaStringHash."""

    Murmur3_32Hash = 0
    BoostHash = 1
    JavaStringHash = 2


Scheme = HashingScheme | Literal["Murmur3_32Hash", "BoostHash", "JavaStringHash"]
"""A scheme, or its name."""


def key_hash(key: str, scheme: HashingScheme) -> int:
    """The 31-bit hash of a partition key's text (for a key of bytes, its base64).

    >>> key_hash("key1", HashingScheme.JavaStringHash), key_hash("key1", HashingScheme.Murmur3_32Hash)
    (3288498, 462881061)
    """
    if scheme is HashingScheme.JavaStringHash:
        return java_string_hash(key)
    data = key.encode("utf-8")
    return sticky_key_hash(data) if scheme is HashingScheme.Murmur3_32Hash else boost_hash(data)


def partition_for_key(key: str, partitions: int, hashing_scheme: Scheme = HashingScheme.BoostHash) -> int:
    """The partition of *key* in a topic with this many *partitions*; all producers with one *hashing_scheme*, or its
    name, choose the same. ValueError for an invalid key, number or scheme.

    >>> partition_for_key("key1", 7, HashingScheme.Murmur3_32Hash), partition_for_key("key1", 7, "Murmur3_32Hash")
    (6, 6)
    """
    if not isinstance(key, str):
        raise ValueError(f"key {key!r}: give a text")
    scheme = HashingScheme.__members__.get(hashing_scheme) if isinstance(hashing_scheme, str) else hashing_scheme
    if not isinstance(scheme, HashingScheme):
        raise ValueError(f"hashing_scheme {hashing_scheme!r}: give one of {', '.join(HashingScheme.__members__)}")
    if isinstance(partitions, bool) or not isinstance(partitions, int) or partitions < 1:
        raise ValueError(f"partitions {partitions!r}: give a number of at least 1")
    return key_hash(key, scheme) % partitions


class SinglePartitionRouter:
    """Routes every message without a key to *partition*."""

    def __init__(self, partition: int, *, scheme: HashingScheme = HashingScheme.BoostHash):
        self._partition = partition
        self._scheme = scheme

    def partition(self, key: str | None, partitions: int) -> int:
        return self._partition if key is None else partition_for_key(key, partitions, self._scheme)


class RoundRobinRouter:
    """Routes messages without a key to the partitions in turn, from *start* on.

    With *clock_ms*, for batching, the partition changes every *switch_ms* (at least 1) instead of per message.

    >>> router = RoundRobinRouter(start=1)
    >>> [router.partition(None, 3) for _ in range(4)]
    [1, 2, 0, 1]
    """

    def __init__(
        self,
        *,
        start: int = 0,
        scheme: HashingScheme = HashingScheme.BoostHash,
        clock_ms: Callable[[], int] | None = None,
        switch_ms: int = 1,
    ):
        self._start = start
        self._scheme = scheme
        self._clock_ms = clock_ms
        self._switch_ms = max(1, switch_ms)
        self._turns = count(start)

    def partition(self, key: str | None, partitions: int) -> int:
        if key is not None:
            return partition_for_key(key, partitions, self._scheme)
        turn = next(self._turns) if self._clock_ms is None else self._clock_ms() // self._switch_ms + self._start
        return turn % partitions
