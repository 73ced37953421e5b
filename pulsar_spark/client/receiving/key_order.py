"""Order per key on Key_Shared after a message was given back: later messages of its hash wait until it comes again.

The broker holds back later entries once a round has read the give-back (semantics 0.22). Those of earlier rounds wait
in the client, if the message comes again soon and there is room, or else are given back unseen.
"""

import sys
from bisect import bisect_left
from collections.abc import Collection, Mapping
from operator import attrgetter
from typing import NamedTuple

from pulsar_spark.client.model.message import Message
from pulsar_spark.client.receiving.waiting_messages import WaitingMessages

_POSITION = attrgetter("position")


class UnderWay:
    """Requests sent together, not before those of an earlier *time*, and their version in ``requests``; above all
    others until committed."""

    __slots__ = ("time", "version")

    def __init__(self, time: float = 0.0):
        self.time, self.version = time, sys.maxsize

    def committed(self, version: int) -> None:
        self.version = version


class _Guard(NamedTuple):
    """Entries after *position* are too early if their round has not read *requests*."""

    position: int
    requests: UnderWay


class KeyOrder:
    """The entries a consumer gave back on one partition; callers hold the subscription's lock."""

    def __init__(self):
        self._guards: dict[int, list[_Guard]] = {}
        """By hash, with ascending positions and times of requests; a guard replaces those of later positions and
        earlier requests."""
        self._returned: dict[int, UnderWay] = {}
        self._unknown: dict[int, tuple[UnderWay, bool]] = {}
        self._awaited: dict[int, dict[int, UnderWay]] = {}
        """By hash, the positions that come again soon."""
        self._not_soon: dict[int, UnderWay] = {}
        """Hashes of entries that come again later, or were given back unseen: their messages do not wait here."""
        self.waiting = WaitingMessages()
        self._arrived = -1
        """The latest version that the round of an entry had read."""

    @property
    def is_guarding(self) -> bool:
        """Whether an entry that was given back may still be outstanding."""
        return bool(self._returned or self.waiting)

    @property
    def unknown(self) -> list[int]:
        return sorted(self._unknown)

    def give_back(
        self, positions: Collection[int], requests: UnderWay, sticky_hash: int | None = None, *, is_soon: bool = False
    ) -> None:
        """Note entries that *requests* give back; *sticky_hash* is that of a single one, if known. *is_soon*: they come
        again soon."""
        if self.waiting:
            self.waiting.drop(positions)
        for position in positions:
            self._returned[position] = requests
            if sticky_hash is None:
                self._unknown[position] = requests, is_soon
            else:
                self._guard(sticky_hash, position, requests, is_soon)

    def learn(self, hashes: Mapping[int, int]) -> None:
        for position, sticky_hash in hashes.items():
            unknown = self._unknown.pop(position, None)
            if unknown is not None:
                self._guard(sticky_hash, position, *unknown)

    def _guard(self, sticky_hash: int, position: int, requests: UnderWay, is_soon: bool) -> None:
        if is_soon:
            self._awaited.setdefault(sticky_hash, {})[position] = requests
        else:
            self._not_soon[sticky_hash] = requests
        guards = self._guards.setdefault(sticky_hash, [])
        at = bisect_left(guards, position, key=_POSITION)
        if at and guards[at - 1].requests.time >= requests.time:
            return
        end = at
        while end < len(guards) and guards[end].requests.time <= requests.time:
            end += 1
        guards[at:end] = [_Guard(position, requests)]

    def arrives(self, requests_version: int) -> None:
        """Note what the round of an entry had read; messages of earlier rounds may follow it."""
        if requests_version <= self._arrived:
            return
        self._arrived = requests_version
        left = {
            key: [guard for guard in guards if guard.requests.version > requests_version]
            for key, guards in self._guards.items()
        }
        self._guards = {key: guards for key, guards in left.items() if guards}
        self._returned = _unread(self._returned, requests_version)
        self._not_soon = _unread(self._not_soon, requests_version)
        awaited = {
            key: positions if key in self.waiting else _unread(positions, requests_version)
            for key, positions in self._awaited.items()
        }
        self._awaited = {key: positions for key, positions in awaited.items() if positions}

    def is_returned(self, position: int, requests_version: int) -> bool:
        """Whether an entry was given back after the round that sent it, which had read this version."""
        requests = self._returned.get(position)
        return requests is not None and requests.version > requests_version

    def is_early(self, sticky_hash: int, position: int, requests_version: int) -> bool:
        """Whether an earlier entry of its hash was given back, unread by the round that sent this one."""
        guards = self._guards.get(sticky_hash, [])
        at = bisect_left(guards, position, key=_POSITION)
        return at > 0 and guards[at - 1].requests.version > requests_version

    def let_wait(self, sticky_hash: int, message: Message, requests_version: int, now: float) -> bool:
        """Let an early message wait here, if there is room and the earlier one comes again soon."""
        if sticky_hash not in self._awaited or sticky_hash in self._not_soon:
            return False
        awaited, position = self._awaited[sticky_hash], message._position
        if position in awaited and awaited[position].version <= requests_version:
            del awaited[position]  # it came before an earlier one
        return self.waiting.put(sticky_hash, message, now=now)

    def release(self, sticky_hash: int, position: int, requests_version: int, *, is_last: bool) -> list[Message]:
        """Take the messages that need not wait any more, in order, since an entry came in order: it was awaited, or
        the broker would have kept it back while earlier ones are to come. Before its last message, only those of
        earlier entries."""
        if sticky_hash not in self.waiting:
            return []
        awaited = self._awaited.get(sticky_hash, {})
        last = position if is_last else position - 1
        for each in [each for each in awaited if each <= last and awaited[each].version <= requests_version]:
            del awaited[each]
        ends = [*awaited] if is_last else [*awaited, position]
        return self.waiting.take(sticky_hash, min(ends, default=None))

    def take_late(self, now: float) -> list[tuple[int, Message]]:
        """Take the messages that waited too long, with their hashes."""
        late = self.waiting.take_late(now)
        for sticky_hash, _ in late:
            self._awaited.pop(sticky_hash, None)
        return late

    def forget(self) -> None:
        """Forget all give-backs: everything unacknowledged comes again."""
        self._guards, self._returned, self._unknown, self._arrived = {}, {}, {}, -1
        self._awaited, self._not_soon = {}, {}
        self.waiting.clear()


def _unread(returned: dict[int, UnderWay], requests_version: int) -> dict[int, UnderWay]:
    return {key: each for key, each in returned.items() if each.version > requests_version}
