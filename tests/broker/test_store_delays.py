"""The delay index of a root in an object store: it lies there as on a disk, bucket by bucket. ``pytest
tests/broker/test_delay_index.py --store s3`` runs all that is asked of it there."""

import pytest

from pulsar_spark.broker.delays import delay_commits
from pulsar_spark.storage.delay_index.delay_table import DelayTable
from tests.broker.test_delay_index import MS, TOPIC, Indexed
from tests.support.object_store import new_root
from tests.support.spark_engine import new_engine


@pytest.fixture
def indexed(s3) -> Indexed:
    engine = new_engine(None, new_root())
    engine.create_topic(TOPIC)
    return Indexed(engine)


def test_a_start_finds_what_was_there(indexed):
    indexed.publish([5, None, 4])
    indexed.seal()
    indexed.publish([4, 7])
    indexed.seal()
    indexed.publish([9])
    indexed.open()
    assert len(indexed.numbers) == 2 and indexed.index.head.entries == 1
    indexed.check(4 * MS, 5 * MS, 8 * MS)


def test_buckets_become_one_and_what_left_the_table_goes(indexed, monkeypatch):
    for time in range(3):
        indexed.publish([10 + time])
        indexed.seal()
    monkeypatch.setattr(delay_commits, "GRACE_SECONDS", -1.0)
    indexed.upkeep.work()
    assert len(indexed.numbers) <= 2
    assert indexed.index.table.unnamed()
    indexed.open()
    indexed.upkeep.retire(indexed.index.table.unnamed())  # as its thread does when it starts
    indexed.upkeep.work()
    assert indexed.index.table.unnamed() == []
    indexed.check(11 * MS)


def test_a_file_that_is_gone_or_another_is_found_out(indexed):
    indexed.publish([5, 4])
    indexed.seal()
    store, path = indexed.engine.layout.store, indexed.index.table.path
    (name,) = (name for name in store.below(path) if "kind=entry" in name)
    content = store.get(path / name)
    store.remove([path / name])
    indexed.open()
    assert indexed.numbers == []
    indexed.check(4 * MS)
    store.put(path / name, content)


def test_it_can_be_removed(indexed):
    indexed.publish([5, 4])
    indexed.seal()
    DelayTable(indexed.engine.layout).remove()
    assert not indexed.engine.layout.store.below(indexed.index.table.path)
    indexed.open()
    indexed.seal()
    indexed.check(4 * MS)
