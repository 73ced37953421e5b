"""A round of a Key_Shared cursor kept by lane that changes only whole ranges, so no entry is looked at by itself.

Consumers that acknowledge all of a delivery acknowledge whole ranges (protocol.acknowledgement.cursor's
``delivery_round``), and with enough permits each owner gets all of its new entries. Other rounds are for
:mod:`keyed_lanes`.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.cursors.consumer import Consumer
from pulsar_spark.broker.gathering.unread_run import UnreadRun
from pulsar_spark.broker.gathering.unread_runs import MAX_ROUND_ENTRIES
from pulsar_spark.broker.gathering.unread_slices import delayed_unread
from pulsar_spark.broker.key_shared.keyed import permits_of
from pulsar_spark.broker.key_shared.lane_form import LaneForm, Stored
from pulsar_spark.broker.key_shared.lane_work import LaneWork
from pulsar_spark.broker.key_shared.whole_ranges import first_met
from pulsar_spark.broker.requests.drafts import CursorDraft, Return, RoundDraft
from pulsar_spark.broker.round.entry_states import UNREAD
from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, PENDING, Range

_MOST_STRETCHES = 64
"""Of new entries by batch size; with more, working by entry is as quick."""


class _Span(NamedTuple):
    """Entries *first*..*last* of a lane, by index, which are *entries* adjacent places; *held* is their range, None for
    new ones."""

    lane: int
    first: int
    last: int
    entries: int
    batch_size: int
    held: Range | None = None


class RangeWork(NamedTuple):
    """Like :class:`LaneWork`, for ranges: *planned* on the axis of places, and the *spans* that the places are, in
    order. Nothing dies, as nothing is given back."""

    planned: list[Range]
    form: LaneForm
    spans: list[_Span]

    def acknowledged(self, ranges: Iterable[Range]) -> int:
        return sum(held.size for held in ranges if held.status == ACKNOWLEDGED)

    def dead(self, ranges: Iterable[Range]) -> Iterator[Range]:
        return iter(())

    def store(self, ranges: Iterable[Range]) -> Stored:
        """Store the plan's result, by span if each has one state, else by entry."""
        ranges = list(ranges)
        said = _of_spans(self.spans, ranges)
        if said is None:
            return self._by_entry().store(ranges)
        changed: dict[int, list[Range]] = {}
        for span, held in zip(self.spans, said, strict=True):
            now = held._replace(first=span.first, last=span.last, entries=span.entries)
            of_lane = changed.setdefault(span.lane, [*self.form.ranges_of(span.lane)])
            if span.held is None:
                of_lane.append(now)
            else:
                of_lane[of_lane.index(span.held)] = now
        return self.form.store_ranges(changed, max([self.form.end, *(span.last + 1 for span in self.spans)]))

    def _by_entry(self) -> LaneWork:
        form = self.form
        base, end = form.base, max([form.end, *(span.last + 1 for span in self.spans)])
        codes, parts = np.full(end - base, UNREAD, np.int32), form.parts.of_first(end - base)
        codes[: form.end - base] = form.codes
        places = [
            span.first - base + np.flatnonzero(parts[span.first - base : span.last + 1 - base] == span.lane)
            for span in self.spans
        ]
        return LaneWork(self.planned, form, base, codes, parts, np.concatenate(places or [np.empty(0, np.int64)]))


def _of_spans(spans: Sequence[_Span], ranges: Sequence[Range]) -> list[Range] | None:
    """The range, by place, that covers each span; None unless each has one."""
    found, at, first = [], 0, 0
    for span in spans:
        while at < len(ranges) and ranges[at].last < first:
            at += 1
        if at == len(ranges) or ranges[at].first > first or ranges[at].last < first + span.entries - 1:
            return None
        found.append(ranges[at])
        first += span.entries
    return found


class KeyedByRange:
    """A :class:`~pulsar_spark.broker.key_shared.keyed_lanes.KeyedByLane` for such a round. After :meth:`plan`,
    :attr:`known` and :attr:`new` are rows on the axis of places."""

    def __init__(
        self, bundle: Bundle, draft: RoundDraft, changes: CursorDraft, takers: Sequence[Consumer], form: LaneForm
    ):
        self._bundle, self._draft, self._changes, self._cursor = bundle, draft, changes, changes.cursor
        self._takers, self._form = takers, form
        self.known: list[tuple[Range, str | None, bool]] = []
        self.new: list[UnreadRun] = []

    def plan(self) -> RangeWork | None:
        """Work out what is planned; None if it must be by entry."""
        changes, selector = self._changes, self._cursor.selector
        names_entries = changes.acks or changes.ack_sets or changes.returns or changes.tails
        names_entries = names_entries or changes.left or changes.redelivered
        if names_entries or self._cursor.recently_joined or not self._form.has_whole_ranges(selector):
            return None
        answered = self._answered()
        new = None if answered is None else self._new_spans()
        if answered is None or new is None:
            return None
        owners, places = self._form.parts.owners, _places(answered)
        self.known = [
            (span.held._replace(first=first, last=last, entries=None), owners[span.lane], False)
            for span, (first, last) in zip(answered, places, strict=True)
        ]
        self.first_new = sum(span.entries for span in answered)
        self.new = [
            UnreadRun(*place, span.batch_size, None, owners[span.lane])
            for span, place in zip(new, _places(new, self.first_new), strict=True)
        ]
        return RangeWork([held for held, _, _ in self.known], self._form, [*answered, *new])

    @property
    def found_nothing(self) -> bool:
        return not self.new

    @property
    def unacked(self) -> Counter:
        return self._cursor.unacked

    def acks(self) -> list[tuple[int, int]]:
        return [(0, self.first_new - 1)] if self.known else []

    def ack_sets(self) -> Sequence[tuple]:
        return ()

    def never_delivered(self) -> Sequence[tuple]:
        return ()

    def returns(self) -> Sequence[Return]:
        return ()

    def _answered(self) -> list[_Span] | None:
        """Acknowledged ranges; None if any is acknowledged in part."""
        found, of_delivery = [], defaultdict(list)
        for first, last, *whose in self._changes.delivered_acks:
            of_delivery[tuple(whose)].append((first, last))
        for lane in range(len(self._form.parts)) if of_delivery else ():
            for held in self._form.ranges_of(lane):
                spans = of_delivery.get((held.consumer_id, held.delivery_round), ()) if held.status == PENDING else ()
                overlaps = [(first, last) for first, last in spans if first <= held.last and last >= held.first]
                if any(first <= held.first and last >= held.last for first, last in overlaps):
                    found.append(_Span(lane, held.first, held.last, held.size, held.batch_size, held))
                elif overlaps:
                    return None
        return found

    def _new_spans(self) -> list[_Span] | None:
        """New entries by lane; None if their owners do not take all."""
        cursor, form, topic = self._cursor, self._form, self._bundle.topics.get(self._cursor.topic)
        cursor.advance_read_position()
        first, permits, owners = (
            cursor.read_position,
            permits_of(self._draft, self._changes, self._takers),
            form.parts.owners,
        )
        entries = 0 if topic is None else min(topic.end_position(cursor.key.partition) - first, MAX_ROUND_ENTRIES)
        if not self._draft.reads(self._changes) or not permits or entries <= 0:
            return []
        if len(owners) == 1:
            entries = min(entries, permits.get(owners[0], 0))
        if first != form.end or not 0 < entries <= sum(permits.values()):
            return None
        stretches = delayed_unread(self._bundle, cursor, first, first + entries - 1, self._draft.wall)
        if stretches.num_rows > _MOST_STRETCHES or stretches["due_time"].null_count < stretches.num_rows:
            return None
        lanes = form.parts.of_entries(form.base, first - form.base + entries, cursor.selector)[first - form.base :]
        counts = np.bincount(lanes, minlength=len(owners)).tolist()
        if any(count > permits.get(owner, 0) for owner, count in zip(owners, counts, strict=True)):
            return None
        found = []
        for stretch in stretches.to_pylist():
            begin = stretch["first"] - first
            of_stretch = lanes[begin : stretch["last"] + 1 - first]
            numbers = np.bincount(of_stretch, minlength=len(owners))
            ends = zip(*(each.tolist() for each in (*first_and_last(of_stretch, numbers), numbers)))
            found += [
                _Span(lane, stretch["first"] + at, stretch["first"] + until, count, stretch["batch_size"])
                for lane, (at, until, count) in enumerate(ends)
                if count
            ]
        return sorted(found, key=lambda span: span[:2])


def _places(spans: Sequence[_Span], first: int = 0) -> list[tuple[int, int]]:
    firsts = list(accumulate((span.entries for span in spans), initial=first))
    return [(at, until - 1) for at, until in pairwise(firsts)]


def first_and_last(lanes: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first and last index of each lane in *lanes*; *numbers* has its number of occurrences.

    >>> [each.tolist() for each in first_and_last(np.array([2, 0, 0, 2]), np.array([2, 0, 2]))]
    [[1, -1, 0], [2, -1, 3]]
    """
    lasts = first_met(lanes[::-1], numbers)
    return first_met(lanes, numbers), np.where(lasts < 0, -1, len(lanes) - 1 - lasts)
