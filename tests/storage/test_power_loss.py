"""What a power loss leaves of repairs, of logs that were shortened, of settings and of the delay index: all that was
there before, or what was put in its place, never half of it."""

import time
from pathlib import Path

import pytest

from pulsar_spark.admin import Admin
from pulsar_spark.broker.delays.delay_index import DelayIndex
from pulsar_spark.broker.delays.delay_upkeep import DelayUpkeep
from pulsar_spark.storage.delay_index.delay_segments import Places
from pulsar_spark.storage.delay_index.delay_table import DelayTable
from pulsar_spark.storage.delta.checkpoints import make_checkpoint
from pulsar_spark.storage.delta.definitions import read_definition
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import dataset_of
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.store.durability import read_durability, write_durability
from pulsar_spark.storage.upkeep import shortening
from pulsar_spark.storage.upkeep.shortening import shorten
from pulsar_spark.table_specs import REQUESTS
from tests.support.power import recorded
from tests.support.spark_engine import new_engine

TOPIC = "persistent://public/default/t"
APPENDS = 5

pytestmark = pytest.mark.local_disk


@pytest.fixture
def disk(tmp_path) -> Path:
    """A disk with a durable root, all of which is on it: a topic, and requests in some commits."""
    (tmp_path / "disk").mkdir()
    engine = new_engine(None, tmp_path / "disk/root")
    write_durability(engine.layout.root, "fsync")
    engine.create_topic(TOPIC)
    table = AppendTable(engine.layout.broker_table("requests"))
    for number in range(APPENDS):
        table.append(REQUESTS.rows([dict(request_id=str(number))]))
    return tmp_path / "disk"


def requests_of(base: Path) -> Path:
    return Layout(base / "root").broker_table("requests")


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_log_that_was_shortened_is_whole(disk, tmp_path, monkeypatch, is_removed):
    """Its checkpoint, and the name under which the first commit is kept, are on the disk before anything goes."""
    monkeypatch.setattr(shortening, "CHOSEN_SECONDS", 0)
    path = requests_of(disk)
    with recorded(disk) as power:
        make_checkpoint(path)
        assert sum(shorten(path, TableLog(path).latest(), time.time() + 1)) == APPENDS
        left = requests_of(power.lose_power(tmp_path / "lost", is_removed=is_removed))
    assert dataset_of(left).to_table().num_rows == APPENDS
    assert TableLog(left).life() is not None and read_definition(left).table == "requests"
    assert AppendTable(left).append(REQUESTS.rows([dict(request_id="more")])) == APPENDS + 1


def test_a_commit_that_repair_wrote_is_whole(disk, tmp_path):
    broken = TableLog(requests_of(disk)).file(APPENDS)
    with recorded(disk) as power:
        broken.write_text("")
        (mended,) = Admin(f"delta:{disk / 'root'}").repair()
        assert mended["is_done"]
        left = requests_of(power.lose_power(tmp_path / "lost"))
    assert dataset_of(left).to_table().num_rows == APPENDS


def test_a_setting_is_the_old_one_or_the_new_one(disk, tmp_path):
    with recorded(disk) as power:
        write_durability(disk / "root", "none")
        left = power.lose_power(tmp_path / "lost")
    assert read_durability(left / "root") == "none"


def test_a_bucket_of_the_delay_index_is_not_to_be_made_again(disk, tmp_path):
    engine = new_engine(None, disk / "root")
    state = engine.rounds.bundle.topic(TOPIC)
    engine.tables[TOPIC] = AppendTable(state.topic.path)
    engine.topic_ids[TOPIC] = state.topic.topic_id
    engine.publish(TOPIC, -1, [1, 1], deliver_at_ms=[5_000, 6_000])
    engine.round([], 0)
    with recorded(disk) as power:
        index = DelayIndex(engine.layout)
        index.add(state, -1, state.ledgers(-1).runs)
        assert DelayUpkeep(index).seal(is_forced=True)
        left = power.lose_power(tmp_path / "lost")
    found = DelayTable(Layout(left / "root")).load(Places())
    assert [bucket.entries for bucket in found.buckets] == [2] and found.lost == []
