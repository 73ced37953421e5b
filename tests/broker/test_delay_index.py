"""What the broker asks of its delay index, with entries in memory, in buckets and on the way between."""

import itertools
import random
import shutil
from contextlib import suppress

import pyarrow as pa
import pytest

from pulsar_spark.admin import Admin
from pulsar_spark.broker.delays import delay_commits, delay_head
from pulsar_spark.broker.delays.delay_index import DelayIndex
from pulsar_spark.broker.delays.delay_upkeep import DelayUpkeep
from pulsar_spark.errors import BrokerFenced, CorruptState, DelayIndexNotReady
from pulsar_spark.protocol.keys.sticky_key import NONE_KEY, sticky_key_hash
from pulsar_spark.storage.delay_index.delay_buckets import EVER
from pulsar_spark.storage.delay_index.delay_index import IndexReader
from pulsar_spark.storage.delay_index.delay_table import DelayTable
from pulsar_spark.storage.delta.staged_files import staging_folder
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.table_specs import LEDGERS, MESSAGES, TIME
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.conftest import START
from tests.support.faults import faults
from tests.support.model_keys import Key
from tests.support.requests import request
from tests.support.spark_engine import SparkEngine
from tests.support.waiting import eventually

TOPIC = "persistent://public/default/t"
NOBODY = sticky_key_hash(NONE_KEY)
MS = 1000


class Indexed:
    """A topic, its delay index, and what must be in it."""

    def __init__(self, engine: SparkEngine):
        self.engine, self.topic_id = engine, engine.topic_ids[TOPIC]
        self.ledgers = AppendTable(engine.layout.broker_table("ledgers"))
        self.expected: list[tuple[int, int]] = []
        self.open()

    def open(self) -> None:
        """As a broker that starts does."""
        self.index = DelayIndex(self.engine.layout)
        self.upkeep = DelayUpkeep(self.index, max_num_buckets=2)
        self.state = self.engine.rounds.bundle.topic(TOPIC)
        self.index.add(self.state, -1, self.state.ledgers(-1).runs)

    def publish(self, due_ms: list[int | None], delayed_after: int = 0, **columns) -> None:
        self.engine.publish(TOPIC, -1, [1] * len(due_ms), deliver_at_ms=due_ms, **columns)
        self.number(delayed_after)
        first = self.state.ledgers(-1).end_position - len(due_ms)
        times = enumerate((ms or 0) * MS for ms in due_ms)
        self.expected += [(time, first + at) for at, time in times if time > delayed_after]
        self.expected.sort()

    def number(self, delayed_after: int) -> None:
        """What a round does: number, commit the rows, let the index know."""
        ledgers = self.state.ledgers(-1)
        before = len(ledgers)
        rows = self.engine.rounds.bundle.number_new(delayed_after=lambda *_: delayed_after)[1]
        self.ledgers.append(LEDGERS.rows(rows))
        self.index.add(self.state, -1, ledgers.runs[before:])

    def due(self, after: int, until: int) -> list[tuple[int, int]]:
        found = self.index.due(self.topic_id, -1, after, until)
        assert self.index.count(self.topic_id, -1, after, until) == len(found)
        return list(zip(found.times.tolist(), found.positions.tolist()))

    def next_due(self, after: int) -> int | None:
        return self.index.next_due(self.topic_id, -1, after)

    @property
    def numbers(self) -> list[int]:
        """Of its buckets."""
        return [bucket.number for bucket in self.index.buckets.buckets]

    def seal(self) -> None:
        self.upkeep.seal(is_forced=True)

    def check(self, *bounds: int) -> None:
        """The index says what it must of all intervals between *bounds*, and so does who looks from outside."""
        for after in (-1, *bounds):
            later = [time for time, _ in self.expected if time > after]
            assert self.next_due(after) == min(later, default=None)
            assert self.index.count(self.topic_id, -1, after) == len(later)
            for until in (*bounds, EVER):
                if after <= until:
                    assert self.due(after, until) == [each for each in self.expected if after < each[0] <= until]
        parts = IndexReader(self.engine.layout, self.state.topic, -1).between(-1, 2**63 - 1, most=2)
        assert [each for part in parts for each in zip(part.times.tolist(), part.positions.tolist())] == self.expected


@pytest.fixture
def indexed(engine) -> Indexed:
    return Indexed(engine)


def test_entries_come_in_order_of_deliver_time_and_position(indexed):
    indexed.publish([9, None, 3, 9])
    indexed.publish([3, 20, 1], delayed_after=1 * MS)
    assert indexed.due(0, EVER) == [(3 * MS, 2), (3 * MS, 4), (9 * MS, 0), (9 * MS, 3), (20 * MS, 5)]
    for _ in range(2):
        indexed.check(0, 3 * MS - 1, 3 * MS, 9 * MS, 20 * MS)
        indexed.seal()
    assert indexed.numbers == [1] and not indexed.index.head
    assert indexed.due(20 * MS, 3 * MS) == [] and indexed.index.ready_until(indexed.topic_id, -1) == EVER
    assert indexed.index.count(indexed.topic_id, 0, 0) == 0 and indexed.index.next_due("another", -1, 0) is None


def test_what_is_in_memory_for_long_becomes_a_bucket(indexed, monkeypatch):
    indexed.publish([5, 4])
    indexed.upkeep.work()
    assert (indexed.numbers, indexed.index.head.entries) == ([], 2)
    monkeypatch.setattr(delay_head, "MOST_SECONDS", 0.0)
    indexed.upkeep.work()
    assert (indexed.numbers, indexed.index.head.entries) == ([1], 0)
    indexed.check(4 * MS)


def test_what_is_known_after_a_start_is_what_was_known_before(indexed):
    indexed.publish([5, 4])
    indexed.seal()
    indexed.publish([4, 7])
    indexed.open()
    assert (indexed.numbers, indexed.index.head.entries) == ([1], 2)
    indexed.check(4 * MS, 5 * MS)
    indexed.seal()
    indexed.open()
    assert (indexed.numbers, indexed.index.head.entries) == ([1, 2], 0)
    indexed.check(4 * MS, 5 * MS)


def test_a_run_is_taken_in_once_and_what_is_dropped_or_forgotten_is_gone(indexed):
    indexed.publish([9, 3, 5])
    for _ in range(2):
        indexed.index.add(indexed.state, -1, indexed.state.ledgers(-1).runs)
        assert indexed.due(0, EVER) == [(3 * MS, 1), (5 * MS, 2), (9 * MS, 0)]
        indexed.seal()
    indexed.index.drop(indexed.topic_id, -1, 5 * MS)
    indexed.upkeep.work()
    assert indexed.due(5 * MS, EVER) == [(9 * MS, 0)]
    indexed.publish([6])
    indexed.index.drop(indexed.topic_id, -1, 9 * MS)
    assert indexed.index.head.entries == 0
    indexed.upkeep.work()
    assert indexed.numbers == [] and indexed.next_due(9 * MS) is None
    indexed.publish([10])
    indexed.index.forget(indexed.topic_id)
    assert indexed.due(0, EVER) == [] and indexed.next_due(0) is None


def test_too_many_buckets_become_one_without_what_nobody_needs(indexed):
    for due in ([9, 3], [3, 4], [5], [1, 3, 3], [2, 8, 3]):
        indexed.publish(due)
        indexed.seal()
    indexed.upkeep.work()
    assert len(indexed.numbers) == 2
    indexed.check(2 * MS, 3 * MS, 8 * MS)
    indexed.open()
    indexed.check(2 * MS, 3 * MS, 8 * MS)
    indexed.index.drop(indexed.topic_id, -1, 3 * MS)
    for due in ([11], [12]):
        indexed.publish(due)
        indexed.seal()
        indexed.upkeep.work()
    assert sum(bucket.entries for bucket in indexed.index.buckets.buckets) < len(indexed.expected)
    assert indexed.due(3 * MS, EVER) == [each for each in indexed.expected if each[0] > 3 * MS]


def test_hashes_are_those_of_the_first_messages_keys(indexed):
    indexed.publish([5, 4, 3], keys=[(Key("a"),), (Key("b"), Key("c")), (Key(),)])
    for _ in range(2):
        found = indexed.index.due(indexed.topic_id, -1, 0, EVER)
        assert found.hashes.tolist() == [NOBODY, sticky_key_hash(b"b"), sticky_key_hash(b"a")]
        indexed.seal()


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_the_index_says_the_same(indexed, monkeypatch, seed):
    """Publishes, seals, merges, starts, rebuilds and lost files in any order, with segments of a few entries."""
    chance = random.Random(seed)
    monkeypatch.setattr(delay_head, "MOST_ENTRIES", 12)
    for name in ("delay_merge", "delay_segments"):
        monkeypatch.setattr(f"pulsar_spark.storage.delay_index.{name}.SEGMENT_ENTRIES", 3)
    monkeypatch.setattr("pulsar_spark.storage.delay_index.delay_merge.FILE_ENTRIES", 6)
    for _ in range(30):
        step = chance.choice(["publish"] * 6 + ["seal", "open", "rebuild", "lose", "lose table"])
        if step == "publish":
            indexed.publish([chance.choice([None, *range(1, 9)]) for _ in range(chance.randrange(1, 9))])
        elif step == "rebuild":
            indexed.index.rebuild()
        elif step.startswith("lose"):
            files = sorted(indexed.index.table.path.glob("bucket=*/**/*.parquet" if step == "lose" else "**/*.parquet"))
            for path in files and (chance.sample(files, 1) if step == "lose" else files):
                path.unlink()
            indexed.open()
        else:
            getattr(indexed, step)()
        indexed.upkeep.work()
        indexed.check(chance.randrange(9) * MS, chance.randrange(9) * MS)
    assert indexed.numbers


@pytest.mark.parametrize("what", ["file", "notes", "log"])
def test_what_is_lost_is_noticed_at_a_start_and_made_again(indexed, what):
    indexed.publish([5, 4, 9])
    indexed.seal()
    indexed.publish([6])
    (path,) = indexed.index.table.path.glob(
        {"file": "bucket=*/kind=entry/*", "notes": "bucket=*/kind=segment/*", "log": "_delta_log/*1.json"}[what]
    )
    path.write_text("")
    (finding,) = Admin(f"delta:{indexed.engine.layout.root}").doctor()
    assert (finding["kind"], finding["command"]) == ("delay_index", "pulsar-spark repair delay-index")
    indexed.open()
    indexed.check(4 * MS, 6 * MS)
    indexed.seal()
    indexed.open()
    assert Admin(f"delta:{indexed.engine.layout.root}").doctor() == [] and indexed.index.head.entries == 0
    indexed.check(4 * MS, 6 * MS)


def test_what_is_lost_while_it_serves_is_not_ready_until_it_is_made_again(indexed):
    indexed.publish([5, 4, 9])
    indexed.seal()
    for path in indexed.index.table.path.glob("bucket=*/kind=entry/*"):
        path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(CorruptState, match="bucket 1 cannot be read .*repair delay-index"):
        list(IndexReader(indexed.engine.layout, indexed.state.topic, -1).between(0, 2**63 - 1))
    assert indexed.index.ready_until(indexed.topic_id, -1) == EVER
    for ask in (indexed.index.count, indexed.index.due):
        with pytest.raises(DelayIndexNotReady, match="the broker tries again"):
            ask(indexed.topic_id, -1, 0, 5 * MS)
    assert indexed.index.ready_until(indexed.topic_id, -1) < 0 and indexed.next_due(4 * MS) is not None
    indexed.upkeep.work()
    assert indexed.index.ready_until(indexed.topic_id, -1) == EVER
    indexed.seal()
    assert len(indexed.numbers) == 1 and indexed.numbers != [1]
    indexed.check(4 * MS, 5 * MS)


def test_a_table_that_is_removed_while_it_serves_is_made_anew(indexed):
    indexed.publish([5, 4])
    indexed.seal()
    indexed.publish([3])
    shutil.rmtree(indexed.index.table.path)
    indexed.index.rebuild()
    indexed.upkeep.work()
    indexed.upkeep.work()
    indexed.check(4 * MS)
    indexed.seal()
    indexed.open()
    assert len(indexed.numbers) == 1 and indexed.index.head.entries == 0
    indexed.check(4 * MS)


def test_a_table_that_somebody_else_changed_is_read_again(indexed):
    indexed.publish([5, 4])
    indexed.seal()
    indexed.publish([3, 6])
    other = DelayIndex(indexed.engine.layout)
    other.add(indexed.state, -1, indexed.state.ledgers(-1).runs)
    assert DelayUpkeep(other).seal(is_forced=True)
    indexed.publish([1])
    with pytest.raises(BrokerFenced, match="changed by another writer"):
        indexed.seal()
    indexed.check(4 * MS)
    indexed.index.load()
    indexed.upkeep.work()
    assert indexed.numbers == [1, 2]
    indexed.check(4 * MS)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", ["seal", "merge", "rebuild", "drop"])
def test_a_disk_that_refuses_any_write_of_it_loses_nothing(indexed, step, after):
    """And so a crash there: the next start finds the same."""
    for due in ([5, 4], [9, 3], [4, 8]):
        indexed.publish(due)
        indexed.seal()
    indexed.upkeep.work()
    for write in itertools.count(1):
        indexed.publish([write % 7 + 2])
        while step == "merge" and len(indexed.numbers) < 3:
            indexed.publish([write % 5 + 2])
            indexed.seal()
        if step == "rebuild":
            indexed.index.rebuild()
        if step == "drop":
            indexed.seal()
            indexed.publish([10 + write])
            indexed.index.drop(indexed.topic_id, -1, 9 * MS)
            indexed.expected = [each for each in indexed.expected if each[0] > 9 * MS]
        with faults(first=write, after=after) as found, suppress(OSError):
            indexed.seal() if step == "seal" else indexed.upkeep.work()
        if not found.raised:
            break
        for _ in range(2):
            assert indexed.due(9 * MS if step == "drop" else 0, EVER) == indexed.expected
            indexed.open()
    assert write > 3


def test_deliver_times_at_the_ends_of_time(indexed):
    """As far as a timestamp goes, 290,000 years before 1970 and behind it, in whole milliseconds."""
    ends = [-(2**63) + 1, -(10**15), 0, 10**15, 253402300800000000, 2**62, 2**63 - 1]
    rows = [
        dict(publish_id="0" * 31 + "e", entry_id=at, batch_size=1, partition=-1, payload=b"x", publish_time=START)
        for at in range(len(ends))
    ]
    table = MESSAGES.rows(rows)
    column = table.schema.get_field_index("deliver_at_time")
    table = table.set_column(column, table.schema.field(column), pa.array(ends).cast(TIME))
    indexed.engine.tables[TOPIC].append(table)
    indexed.number(-(2**63))
    ends = [-(2**63) + 808, -(10**15), 0, 10**15, 253402300800000000, 2**62 + 96, 2**63 - 808]
    for _ in range(2):
        found = indexed.index.due(indexed.topic_id, -1, -(2**63), 2**63 - 1)
        assert found.times.tolist() == ends and found.positions.tolist() == list(range(len(ends)))
        assert [indexed.next_due(time) for time in [-(2**63), *ends]] == [*ends, None]
        assert [indexed.index.count(indexed.topic_id, -1, time) for time in ends] == [6, 5, 4, 3, 2, 1, 0]
        parts = IndexReader(indexed.engine.layout, indexed.state.topic, -1).between(-(2**63), 2**63 - 1, most=1)
        assert [time for part in parts for time in part.times.tolist()] == ends
        indexed.seal()
    indexed.open()
    assert [indexed.next_due(time) for time in [-(2**63), *ends]] == [*ends, None]


def test_a_request_has_it_made_anew_while_what_is_there_serves(indexed):
    indexed.publish([5, 4])
    indexed.seal()
    indexed.publish([3])
    indexed.engine.rounds.bundle.delay_index = indexed.index
    (reply,) = indexed.engine.round([request("rebuild_delay_index")], 0)["replies"]
    assert (reply.error, reply.text) == (None, "1")
    indexed.check(4 * MS)
    assert indexed.numbers == [1]
    indexed.upkeep.work()
    assert indexed.numbers == [2] and indexed.index.head.entries == 1
    indexed.check(4 * MS)


def test_repair_asks_the_broker_or_removes_the_index_where_none_serves(root):
    admin = Admin(f"delta:{root}")
    with PlainBroker(root):
        (dry,) = admin.repair("delay-index", dry_run=True)
        assert dry["text"] == "it would be rebuilt from the topics"
        (done,) = admin.repair("delay-index")
        assert done["is_done"] and "rebuilds it from 0 topics; the present index serves until then" in done["text"]
    _, folder = (table := DelayTable(Layout(root))).new_folder()
    assert folder.exists()
    (done,) = admin.repair("delay_index")
    assert done["text"] == "removed: the next broker rebuilds it from the topics" and not table.path.exists()


def test_a_large_run_is_pending_until_it_is_indexed_in_the_background(indexed, monkeypatch):
    """Until then its topic partition is ready up to its first deliver time, as its file's footer says."""
    indexed.publish([4, 60])
    monkeypatch.setattr("pulsar_spark.broker.delays.delay_index.AT_ONCE", 1)
    indexed.index.is_attended = True
    indexed.publish([50, 40, 70], delayed_after=5 * MS)
    assert indexed.index.ready_until(indexed.topic_id, -1) == 5 * MS
    assert indexed.next_due(0) == 4 * MS and indexed.next_due(4 * MS) == 5 * MS + 1
    assert indexed.due(0, 5 * MS) == [(4 * MS, 0)]
    with pytest.raises(DelayIndexNotReady):
        indexed.due(0, 5 * MS + 1)
    indexed.upkeep._look_up()
    assert indexed.index.ready_until(indexed.topic_id, -1) == 40 * MS - 1 and indexed.next_due(4 * MS) == 40 * MS
    indexed.publish([6], delayed_after=5 * MS)
    assert indexed.due(0, 40 * MS - 1) == [(4 * MS, 0), (6 * MS, 5)]
    indexed.upkeep.start()
    eventually(lambda: indexed.index.ready_until(indexed.topic_id, -1) == EVER)
    indexed.check(6 * MS, 40 * MS)
    indexed.upkeep.close()


def test_what_a_crash_left_is_removed_at_the_next_start(indexed, monkeypatch):
    """And nobody waits for a reader for ever: files that left the table go some time later."""
    monkeypatch.setattr(delay_commits, "GRACE_SECONDS", 0.0)
    indexed.publish([5, 4])
    with pytest.MonkeyPatch.context() as dying:
        dying.setattr(indexed.index.table, "commit", faults)  # no such arguments: as if the process had ended there
        with pytest.raises(TypeError):
            indexed.seal()
    (left,) = indexed.index.table.path.glob("bucket=*/kind=entry/*")
    staged = staging_folder(indexed.index.table.path) / "half"
    staged.mkdir(parents=True)
    indexed.open()
    indexed.upkeep.start()
    eventually(lambda: not left.exists() and not staged.exists())
    indexed.upkeep.close()
    for _ in range(2):
        indexed.seal()
        indexed.publish([6])
    indexed.index.rebuild()
    indexed.upkeep = DelayUpkeep(indexed.index)
    indexed.upkeep.work()
    indexed.upkeep.remove()
    live = {path for bucket in indexed.index.buckets.buckets for path in map(bucket.folder.joinpath, bucket.names)}
    assert set(indexed.index.table.path.glob("bucket=*/kind=entry/*")) == live
    indexed.check(4 * MS)
