"""Buckets of the delay index: segments of many topic partitions, written, read, asked and merged."""

import numpy as np
import pytest

from pulsar_spark.protocol.acknowledgement.positions import Positions
from pulsar_spark.protocol.delays.delays import whole_ms
from pulsar_spark.storage.delay_index import delay_merge, delay_segments
from pulsar_spark.storage.delay_index.delay_buckets import Bucket, Buckets, Segments
from pulsar_spark.storage.delay_index.delay_merge import merge_buckets, write_entries
from pulsar_spark.storage.delay_index.delay_notes import Indexed
from pulsar_spark.storage.delay_index.delay_segments import Entries, Places
from pulsar_spark.storage.delay_index.delay_table import DelayTable
from pulsar_spark.storage.delay_index.delayed import Due
from pulsar_spark.storage.layout import Layout

MS = 1000
PLACES = [("b", 0), ("b", -1), ("a", 1), ("c", 0)]


class Index:
    """A table with buckets of a few entries a segment, and what is in them."""

    def __init__(self, layout: Layout, seed: int = 0):
        self.layout, self.random = layout, np.random.default_rng(seed)
        self.places, self.table, self.buckets = Places(), DelayTable(layout), []
        self.numbers = [self.places.number(*place) for place in PLACES]
        self.indexed = {number: Indexed(0, Positions([(0, 99)])) for number in self.numbers}
        self.rows: list[tuple[int, int, int, int]] = []

    def add(self, entries: int) -> None:
        """A bucket of entries with times from 0 to 9."""
        times, places = (self.random.integers(0, most, entries) for most in (10, len(PLACES)))
        positions = np.arange(len(self.rows), len(self.rows) + entries)
        hashes = self.random.integers(0, 2**31, entries).astype(np.int32)
        found = Entries(Due(positions, times * MS, hashes), places.astype(np.int32))
        self.rows += zip(places.tolist(), (times * MS).tolist(), positions.tolist(), hashes.tolist())
        self.buckets.append(
            self.table.commit(write_entries(self.table, found, self.places), [], self.indexed, self.places)
        )

    def loaded(self) -> tuple[Segments, Buckets, list[int]]:
        """What a start finds, with the numbers that it gives to the places."""
        places = Places()
        found = DelayTable(self.layout).load(places)
        assert not found.lost
        segments = Segments(places)
        since = {place: of.since for place, of in found.indexed.items()}
        return segments, Buckets(segments, found.buckets, since), [places.number(*place) for place in PLACES]

    def check(self) -> None:
        _, buckets, numbers = self.loaded()
        for number, at in enumerate(numbers):
            expected = sorted(row[1:] for row in self.rows if row[0] == number)
            for after in range(-1, 10):
                later = [row for row in expected if row[0] > after * MS]
                assert buckets.next_due(at, after * MS) == min((row[0] for row in later), default=None)
                assert buckets.count(at, after * MS, None) == len(later)
                for until in (after, after + 3, 20):
                    found = buckets.due(at, after * MS, until * MS)
                    wanted = [row for row in later if row[0] <= until * MS]
                    assert list(zip(found.times.tolist(), found.positions.tolist(), found.hashes.tolist())) == wanted
                    assert buckets.count(at, after * MS, until * MS) == len(wanted)
            parts = [part.times.tolist() for _, part in buckets.parts(at, -1, 20 * MS, 2)]
            assert sum(parts, []) == [row[0] for row in expected]
        assert buckets.next_due(len(PLACES) + 1, 0) is None


@pytest.fixture
def layout(tmp_path, monkeypatch) -> Layout:
    for module in (delay_segments, delay_merge):
        monkeypatch.setattr(module, "SEGMENT_ENTRIES", 4)
    monkeypatch.setattr(delay_merge, "FILE_ENTRIES", 8)
    return Layout(tmp_path)


@pytest.mark.parametrize("seed", range(3))
def test_buckets_say_what_was_written_whole_and_merged(layout, seed):
    index = Index(layout, seed)
    for entries in (30, 1, 13):
        index.add(entries)
    assert [len(bucket.names) for bucket in index.buckets] == [4, 1, 2]
    index.check()
    new = merge_buckets(index.table, index.buckets, index.places, lambda _, found: np.full(len(found), True))
    gone = [bucket.number for bucket in index.buckets]
    (index.buckets) = [index.table.commit(new, gone, index.indexed, index.places)]
    index.check()
    assert index.buckets[0].entries == 44 and len(index.buckets[0].names) == 6


def test_what_is_written_is_in_order_of_time_topic_partition_and_position(layout):
    index = Index(layout)
    index.add(30)
    index.add(30)
    new = merge_buckets(index.table, index.buckets, index.places, lambda _, found: np.full(len(found), True))
    rows = []
    for name in new.files:
        file = delay_segments.SegmentFile(new.folder / name)
        for segment in range(file.segments):
            found = file.read(segment, index.places)
            here = [index.places.known[number] for number in found.places.tolist()]
            assert len(here) == 4 or (name, segment) == (new.files[-1], file.segments - 1)
            rows += zip(found.due.times.tolist(), here, found.due.positions.tolist())
    assert rows == sorted(rows) and len(rows) == 60


def test_an_entry_costs_ten_bytes_at_most(tmp_path):
    """One of 10^6 in a year, in microseconds at random, and with a key of its own."""
    random, entries = np.random.default_rng(1), 1 << 16
    table, places = DelayTable(Layout(tmp_path)), Places()
    places.number(*PLACES[0])
    times = np.sort(random.integers(0, 365 * 24 * 3600 * entries, entries))
    hashes = random.integers(0, 2**31, entries).astype(np.int32)
    due = Due(random.permutation(1_000_000)[:entries], whole_ms(times), hashes)
    new = write_entries(table, Entries(due, np.zeros(entries, np.int32)), places)
    assert sum((new.folder / name).stat().st_size for name in new.files) < 10 * entries


def test_entries_that_are_not_needed_are_left_out(layout):
    index = Index(layout)
    index.add(20)
    index.add(20)
    new = merge_buckets(
        index.table, index.buckets, index.places, lambda bucket, found: found.due.times > 5 * MS * (bucket.number == 1)
    )
    kept = [row for at, row in enumerate(index.rows) if row[1] > (5 * MS if at < 20 else 0)]
    found = Bucket(new.number, new.folder, dict.fromkeys(new.files, 0), new.statistics)
    assert found.entries == len(kept) and found.statistics.entries.sum() == len(kept)
    times = [
        time
        for name in new.files
        for file in [delay_segments.SegmentFile(new.folder / name)]
        for segment in range(file.segments)
        for time in file.read(segment, index.places).due.times.tolist()
    ]
    assert times == sorted(row[1] for row in kept)


def test_the_next_deliver_time_is_known_without_a_look_at_the_disk(layout):
    """But where the instant lies within a segment, which is read once."""
    index = Index(layout)
    index.rows = []
    times = np.arange(10) * MS
    found = Entries(Due(np.arange(10), times, np.zeros(10, np.int32)), np.zeros(10, np.int32))
    index.table.commit(write_entries(index.table, found, index.places), [], index.indexed, index.places)
    segments, buckets, (place, *_) = index.loaded()
    assert [buckets.next_due(place, after * MS) for after in (-1, 3, 7, 9)] == [0, 4 * MS, 8 * MS, None]
    assert buckets.count(place, -1, None) == 10 and buckets.count(place, 3 * MS, 7 * MS) == 4 and segments.read == 0
    assert [buckets.next_due(place, 5 * MS) for _ in range(3)] == [6 * MS] * 3 and segments.read == 1
    assert buckets.due(place, 5 * MS, 6 * MS).positions.tolist() == [6] and segments.read == 1
    assert buckets.next_due(place, 5 * MS + 1) == 6 * MS and segments.read == 1


def test_what_stays_in_memory_of_segments_is_bounded(layout):
    index = Index(layout)
    index.add(40)
    _, buckets, numbers = index.loaded()
    segments = Segments(index.places, cached_bytes=200)
    for bucket in buckets.buckets:
        for file in range(len(bucket.names)):
            segments.of(bucket, file, 0)
    assert len(segments._decoded) == 2 and segments._bytes <= 200
