"""What stands in for something that is gone is believed only as far as it can be read, and is what it says: checkpoints
for commits, files for the commits that named them, claims for letters that are not sent yet."""

import time
from datetime import datetime, timezone

import pytest

from pulsar_spark.admin import Admin
from pulsar_spark.protocol.policies.deduplication import app_id
from pulsar_spark.storage.cursor_ledger.reprocessing import Claim, Job, Reprocessing
from pulsar_spark.storage.delta.checkpoints import checkpoints, make_checkpoint
from pulsar_spark.storage.delta.data_files import write_files
from pulsar_spark.storage.delta.definitions import create_table
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import dataset_of
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.topics.sequence_ids import SequenceIds
from pulsar_spark.storage.upkeep import shortening
from pulsar_spark.storage.upkeep.shortening import shorten
from pulsar_spark.table_specs import CURSOR_LEDGER, REQUESTS
from tests.support.requests import On
from tests.support.spark_engine import SparkEngine, new_engine

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)
APPENDS = 4

pytestmark = pytest.mark.local_disk


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.setattr(shortening, "CHOSEN_SECONDS", 0)
    create_table(tmp_path / "t", REQUESTS)
    for number in range(APPENDS):
        AppendTable(tmp_path / "t").append(REQUESTS.rows([dict(request_id=str(number))]))
    return tmp_path / "t"


def shortened(table, followed: int = APPENDS) -> int:
    """How many commits go that may, where everybody has *followed* so far."""
    return sum(shorten(table, followed, time.time() + 1))


@pytest.mark.parametrize("followed, gone", [(1, 0), (APPENDS - 2, 0), (APPENDS - 1, APPENDS), (APPENDS, APPENDS)])
def test_no_commit_goes_that_somebody_has_not_followed(table, followed, gone):
    make_checkpoint(table)
    assert shortened(table, followed) == gone
    assert TableLog(table).has(followed + 1) or followed >= APPENDS - 1


@pytest.mark.parametrize("content", [b"", b"PAR1" + b"x" * 100 + b"PAR1"], ids=["empty", "damaged"])
def test_no_commit_goes_for_a_checkpoint_that_cannot_be_read(table, content):
    make_checkpoint(table)
    (made,) = checkpoints(table)
    made.files[0].write_bytes(content)
    assert shortened(table) == 0 and TableLog(table).earliest() == 0


def test_sequence_ids_are_read_from_the_newest_checkpoint_that_can_be(table):
    name, handle = app_id(7, -1, "p"), AppendTable(table)
    for sequence_id in (5, 6):
        known = TableLog(table).latest()
        assert handle.append_after(known, REQUESTS.rows([dict(request_id=f"s{sequence_id}")]), {name: sequence_id})
        make_checkpoint(table)
        if sequence_id == 5:
            assert shortened(table, known + 1) > 0
    newest = checkpoints(table)[-1]
    newest.files[0].write_bytes(b"")
    ids = SequenceIds(table, lambda each: each == name)
    ids.catch_up()
    assert ids.highest == {name: 6}


@pytest.fixture
def engine(tmp_path) -> SparkEngine:
    engine = new_engine(None, tmp_path / "root")
    engine.create_topic(TOPIC)
    for number in range(3):
        engine.round([ON.subscribe("A"), ON.flow("A", 1)], number)
    return engine


def test_a_commit_that_is_mended_still_says_what_is_not_to_be_written_twice(engine):
    path = engine.layout.broker_table("requests")
    rows = REQUESTS.rows([dict(request_id="once")])
    version = AppendTable(path).append_once(rows, "app", 3)
    file = TableLog(path).file(version)
    file.write_text(file.read_text()[:-20])
    (mended,) = Admin(f"delta:{engine.layout.root}").repair()
    assert mended["is_done"] and dataset_of(path).to_table().num_rows == 1
    assert AppendTable(path).append_once(rows, "app", 3) is None


def test_a_round_that_is_lost_is_not_replaced_by_files_of_another(engine):
    """Such as those that a broker left which died before its commit."""
    path = engine.layout.broker_table("cursor_ledger")
    log = TableLog(path)
    (lost,) = log.commit(log.latest()).added
    (path / lost.path).unlink()
    write_files(path, CURSOR_LEDGER.rows([dict(kind="round", round=99, is_snapshot=False)]), is_partitioned=False)
    log.file(log.latest()).write_text("")
    (found,) = Admin(f"delta:{engine.layout.root}").repair()
    assert not found["is_done"] and "lost" in found["text"]


@pytest.mark.parametrize("sends", [True, False])
def test_a_letter_is_taken_from_its_claim_on_unless_the_job_drops_it(layout, sends):
    jobs, now = Reprocessing(layout), datetime.fromtimestamp(0, timezone.utc)
    jobs.create()
    job = Job("job", TOPIC, "id", now, 1, {}, {})
    claim = Claim("destination", 0, 0, "(1,0,-1,-1)", -1, 0, "s", None, 0)
    jobs.record_job(job, [claim], jobs.version())
    assert jobs.read_taken("id") == {claim.message_id} and jobs.read_taken("other") == set()
    jobs.record_chunk(job, "destination", 0, "0" * 32, [claim] if sends else [], now)
    assert jobs.read_taken("id") == ({claim.message_id} if sends else set())
