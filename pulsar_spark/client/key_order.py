"""Order per key after a give-back: on Key_Shared a client hands out nothing of a hash of which it gave something back
before that came again.

From the round on that reads of a give-back the broker keeps back what comes later of its hash (semantics 0.22). What it
had sent before comes too early: it is given back, too, unseen, so that it comes again behind the other, to whoever owns
the hash by then. A delivery says which requests its round had read, which tells the two apart. The broker alone knows
what became of what was given back: it may come to another consumer, become a dead letter or be acknowledged by
somebody; here nothing waits for it, so nothing waits for ever. (Pulsar's client hands out what is in its queue.)
"""

import itertools
import sys
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import NamedTuple

_numbers = itertools.count()


class UnderWay:
    """Requests that are sent together: the version of ``requests`` that holds them, above all others until they are
    committed. Of two, those with the higher *number* are sent later."""

    __slots__ = ("number", "version")

    def __init__(self):
        self.number, self.version = next(_numbers), sys.maxsize

    def committed(self, version: int) -> None:
        self.version = version


class InLine(NamedTuple):
    """Where an entry stands: among those of its hash at this *place*, which is its position, or its number in the due
    lane, behind all positions, as the broker has it."""

    sticky_hash: int
    place: int


class _Guard(NamedTuple):
    """What stands behind a *place* is too early in rounds that have not read the requests."""

    place: int
    requests: UnderWay


class KeyOrder:
    """Of one consumer on one topic partition; for callers that hold the subscription's lock."""

    def __init__(self):
        self._guards: dict[int, _Guard] = {}
        self._returned: dict[int, UnderWay] = {}
        self._unknown: dict[int, UnderWay] = {}
        self._next, self._arrived = UnderWay(), -1
        """What is given back and was not sent yet; and how far the round had read whose entries are handed out."""

    @property
    def is_guarding(self) -> bool:
        """Has anything been given back that may not have come again?"""
        return bool(self._returned)

    @property
    def unknown(self) -> list[int]:
        """Positions that were given back and whose hashes are not known, in order."""
        return sorted(self._unknown)

    def give_back(self, positions: Iterable[int], in_line: InLine | None = None) -> None:
        """Note what is given back, and where it stands if that is known."""
        for position in positions:
            self._returned[position] = self._next
            if in_line is None:
                self._unknown[position] = self._next
            else:
                self._guard(in_line, self._next)

    def learn(self, hashes: Mapping[int, int]) -> None:
        """Positions that were given back have these *hashes*."""
        for position, sticky_hash in hashes.items():
            requests = self._unknown.pop(position, None)
            if requests is not None:
                self._guard(InLine(sticky_hash, position), requests)

    def _guard(self, in_line: InLine, requests: UnderWay) -> None:
        place, known = in_line.place, self._guards.get(in_line.sticky_hash)
        if known is not None:
            place = min(place, known.place)
            requests = max(requests, known.requests, key=attrgetter("number"))
        self._guards[in_line.sticky_hash] = _Guard(place, requests)

    def send(self) -> UnderWay:
        """What was given back until now is sent."""
        requests, self._next = self._next, UnderWay()
        return requests

    def arrives(self, requests_version: int) -> None:
        """What is handed out from now on was sent by rounds that had read so far, or further."""
        if requests_version == self._arrived:
            return
        self._arrived = requests_version
        self._guards = {key: each for key, each in self._guards.items() if each.requests.version > requests_version}
        self._returned = {at: each for at, each in self._returned.items() if each.version > requests_version}

    def is_returned(self, position: int, requests_version: int) -> bool:
        """Is an entry, as a round sent it that had read so far, given back already?"""
        requests = self._returned.get(position)
        return requests is not None and requests.version > requests_version

    def is_early(self, in_line: InLine, requests_version: int) -> bool:
        """Is an entry sent before something of its hash that was given back and stands before it?"""
        guard = self._guards.get(in_line.sticky_hash)
        return guard is not None and in_line.place > guard.place and guard.requests.version > requests_version

    def forget(self) -> None:
        """Everything the consumer held comes again."""
        self._guards, self._returned, self._unknown, self._next = {}, {}, {}, UnderWay()
