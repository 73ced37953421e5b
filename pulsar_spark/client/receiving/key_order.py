"""Order per key on Key_Shared after a message was given back: later messages of its hash wait until it comes again.

The broker holds back later entries once a round has read the give-back (semantics 0.22). Those of earlier rounds are
given back unseen.
"""

import itertools
import sys
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import NamedTuple

_numbers = itertools.count()
_POSITION = attrgetter("position")


class UnderWay:
    """Requests sent together, and their version in ``requests``; above all others until committed."""

    __slots__ = ("number", "version")

    def __init__(self):
        self.number, self.version = next(_numbers), sys.maxsize

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
        """By hash, with ascending positions and requests; a guard replaces those of later positions and older
        requests."""
        self._returned: dict[int, UnderWay] = {}
        self._unknown: dict[int, UnderWay] = {}
        self._next, self._arrived = UnderWay(), -1
        """The unsent give-backs, and the version that the round of the present entries had read."""

    @property
    def is_guarding(self) -> bool:
        """Whether an entry that was given back may still be outstanding."""
        return bool(self._returned)

    @property
    def unknown(self) -> list[int]:
        return sorted(self._unknown)

    def give_back(self, positions: Iterable[int], sticky_hash: int | None = None) -> None:
        """Note entries given back; *sticky_hash* is that of a single one, if known."""
        for position in positions:
            self._returned[position] = self._next
            if sticky_hash is None:
                self._unknown[position] = self._next
            else:
                self._guard(sticky_hash, position, self._next)

    def learn(self, hashes: Mapping[int, int]) -> None:
        for position, sticky_hash in hashes.items():
            requests = self._unknown.pop(position, None)
            if requests is not None:
                self._guard(sticky_hash, position, requests)

    def _guard(self, sticky_hash: int, position: int, requests: UnderWay) -> None:
        guards = self._guards.setdefault(sticky_hash, [])
        at = bisect_left(guards, position, key=_POSITION)
        if at and guards[at - 1].requests.number >= requests.number:
            return
        end = at
        while end < len(guards) and guards[end].requests.number <= requests.number:
            end += 1
        guards[at:end] = [_Guard(position, requests)]

    def send(self) -> UnderWay:
        """Note that all give-backs so far are sent with the next commit."""
        requests, self._next = self._next, UnderWay()
        return requests

    def arrives(self, requests_version: int) -> None:
        """Note what the round of the following entries had read."""
        if requests_version == self._arrived:
            return
        self._arrived = requests_version
        left = {
            key: [guard for guard in guards if guard.requests.version > requests_version]
            for key, guards in self._guards.items()
        }
        self._guards = {key: guards for key, guards in left.items() if guards}
        self._returned = {at: each for at, each in self._returned.items() if each.version > requests_version}

    def is_returned(self, position: int, requests_version: int) -> bool:
        """Whether an entry was given back after the round that sent it, which had read this version."""
        requests = self._returned.get(position)
        return requests is not None and requests.version > requests_version

    def is_early(self, sticky_hash: int, position: int, requests_version: int) -> bool:
        """Whether an earlier entry of its hash was given back, unread by the round that sent this one."""
        guards = self._guards.get(sticky_hash, [])
        at = bisect_left(guards, position, key=_POSITION)
        return at > 0 and guards[at - 1].requests.version > requests_version

    def forget(self) -> None:
        """Forget all give-backs: everything unacknowledged comes again."""
        self._guards, self._returned, self._unknown, self._next = {}, {}, {}, UnderWay()
