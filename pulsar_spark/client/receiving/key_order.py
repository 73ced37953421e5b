"""Order per key on Key_Shared after a message was given back: later messages of its hash wait until it comes again.

The broker holds back later entries once a round has read the give-back (semantics 0.22). Those of earlier rounds are
given back unseen.
"""

import itertools
import sys
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import NamedTuple

_numbers = itertools.count()


class UnderWay:
    """Requests sent together, and their version in ``requests``; above all others until committed."""

    __slots__ = ("number", "version")

    def __init__(self):
        self.number, self.version = next(_numbers), sys.maxsize

    def committed(self, version: int) -> None:
        self.version = version


class KeyPlace(NamedTuple):
    """The *place* of an entry among those of its hash: its position, or for a due entry a number above all
    positions."""

    sticky_hash: int
    place: int


class _Guard(NamedTuple):
    """Entries after *place* are too early if their round has not read *requests*."""

    place: int
    requests: UnderWay


class KeyOrder:
    """The entries a consumer gave back on one partition; callers hold the subscription's lock."""

    def __init__(self):
        self._guards: dict[int, _Guard] = {}
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

    def give_back(self, positions: Iterable[int], key_place: KeyPlace | None = None) -> None:
        """Note entries given back; *key_place* is that of a single one, if known."""
        for position in positions:
            self._returned[position] = self._next
            if key_place is None:
                self._unknown[position] = self._next
            else:
                self._guard(key_place, self._next)

    def learn(self, hashes: Mapping[int, int]) -> None:
        for position, sticky_hash in hashes.items():
            requests = self._unknown.pop(position, None)
            if requests is not None:
                self._guard(KeyPlace(sticky_hash, position), requests)

    def _guard(self, key_place: KeyPlace, requests: UnderWay) -> None:
        place, known = key_place.place, self._guards.get(key_place.sticky_hash)
        if known is not None:
            place = min(place, known.place)
            requests = max(requests, known.requests, key=attrgetter("number"))
        self._guards[key_place.sticky_hash] = _Guard(place, requests)

    def send(self) -> UnderWay:
        """Note that all give-backs so far are sent with the next commit."""
        requests, self._next = self._next, UnderWay()
        return requests

    def arrives(self, requests_version: int) -> None:
        """Note what the round of the following entries had read."""
        if requests_version == self._arrived:
            return
        self._arrived = requests_version
        self._guards = {key: each for key, each in self._guards.items() if each.requests.version > requests_version}
        self._returned = {at: each for at, each in self._returned.items() if each.version > requests_version}

    def is_returned(self, position: int, requests_version: int) -> bool:
        """Whether an entry was given back after the round that sent it, which had read this version."""
        requests = self._returned.get(position)
        return requests is not None and requests.version > requests_version

    def is_early(self, key_place: KeyPlace, requests_version: int) -> bool:
        """Whether an earlier entry of its hash was given back, unread by the round that sent this one."""
        guard = self._guards.get(key_place.sticky_hash)
        return guard is not None and key_place.place > guard.place and guard.requests.version > requests_version

    def forget(self) -> None:
        """Forget all give-backs: everything unacknowledged comes again."""
        self._guards, self._returned, self._unknown, self._next = {}, {}, {}, UnderWay()
